#!/usr/bin/env bash
# A Hugging Face Trainer script from the last checkpoint proven good.
#   RUN=pretrain-7 OUTPUT=/ckpts/pretrain-7 ./train.sh [options of `ckptguard resume`]
#
# By itself the Trainer takes the highest checkpoint-N that is a folder, whatever is in it; so do the example
# scripts of transformers where they get no --resume_from_checkpoint.
set -euo pipefail
: "${RUN:?the name of the run}" "${OUTPUT:?its --output_dir}"
unset "${!CKPTGUARD_RESUME_@}"

target=$(ckptguard resume --run "$RUN" --wait "${WAIT:-120s}" --format env "$@") || exit $?
eval "$target"

load=()
if [[ -n "${CKPTGUARD_RESUME_PATH:-}" ]]; then
  load=(--resume_from_checkpoint "$CKPTGUARD_RESUME_PATH")
elif compgen -G "$OUTPUT/checkpoint-*" >/dev/null; then
  echo "$OUTPUT has checkpoints that the service does not know: a script would take one (ckptguard adopt)" >&2
  exit 30
fi
exec torchrun --nproc-per-node "${NPROC:-8}" train.py --output_dir "$OUTPUT" "${load[@]}"
