#!/usr/bin/env bash
# DeepSpeed from the last checkpoint proven good: load_checkpoint(load_dir, tag) of the script gets both.
#   RUN=pretrain-7 ./train.sh [options of `ckptguard resume`]
#
# By itself DeepSpeed reads the file `latest`, and without it warns, returns None and trains from scratch.
set -euo pipefail
: "${RUN:?the name of the run}"
unset "${!CKPTGUARD_RESUME_@}"

target=$(ckptguard resume --run "$RUN" --wait "${WAIT:-120s}" --format env "$@") || exit $?
eval "$target"

load=()
if [[ -n "${CKPTGUARD_RESUME_PATH:-}" ]]; then
  load=(--load_dir "$CKPTGUARD_RESUME_ROOT" --tag "$CKPTGUARD_RESUME_TAG")
fi
exec deepspeed --num_gpus "${NPROC:-8}" train.py "${load[@]}"
