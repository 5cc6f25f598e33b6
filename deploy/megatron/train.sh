#!/usr/bin/env bash
# Megatron-LM from the last checkpoint proven good.
#   RUN=pretrain-7 ./train.sh [options of `ckptguard resume`] -- <arguments of pretrain_gpt.py>
#
# By itself Megatron reads latest_checkpointed_iteration.txt, and without it starts from random weights.
# --ckpt-step wins over that file, except for step 0, which it takes for "not given".
set -euo pipefail
: "${RUN:?the name of the run}"
options=()
while (($#)) && [[ "$1" != -- ]]; do options+=("$1") && shift; done
[[ "${1:-}" == -- ]] && shift
unset "${!CKPTGUARD_RESUME_@}"

target=$(ckptguard resume --run "$RUN" --wait "${WAIT:-120s}" --format env "${options[@]}") || exit $?
eval "$target"

load=()
if [[ -n "${CKPTGUARD_RESUME_PATH:-}" ]]; then
  if [[ "$CKPTGUARD_RESUME_TAG" != "$(printf 'iter_%07d' "$CKPTGUARD_RESUME_STEP")" ]] || ((CKPTGUARD_RESUME_STEP == 0)); then
    echo "Megatron would not find $CKPTGUARD_RESUME_PATH by --ckpt-step $CKPTGUARD_RESUME_STEP" >&2
    exit 30
  fi
  load=(--load "$CKPTGUARD_RESUME_ROOT" --ckpt-step "$CKPTGUARD_RESUME_STEP" --exit-on-missing-checkpoint)
fi
exec torchrun --nproc-per-node "${NPROC:-8}" pretrain_gpt.py "$@" "${load[@]}"
