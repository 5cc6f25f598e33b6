#!/usr/bin/env bash
# A script under torchrun, from the last checkpoint proven good.
#   RUN=pretrain-7 ./train.sh [options of `ckptguard resume`; the very first start: --allow-fresh]
# Exit code: that of `ckptguard resume` where nothing may be started, else that of the training.
set -euo pipefail
: "${RUN:?the name of the run}"
unset "${!CKPTGUARD_RESUME_@}" # of an earlier start; a fresh one must not find them

# `|| exit` stands at the assignment: `eval "$(…)"` would lose the exit code, and start from scratch.
target=$(ckptguard resume --run "$RUN" --wait "${WAIT:-120s}" --format env "$@") || exit $?
eval "$target"

code=0
torchrun --nproc-per-node "${NPROC:-8}" train.py ${CKPTGUARD_RESUME_PATH:+--resume "$CKPTGUARD_RESUME_PATH"} || code=$?
if ((code)) && [[ -n "${CKPTGUARD_RESUME_PATH:-}" ]]; then
  ckptguard restarted --failed --reason "exit code $code" >&2 || true
fi
exit "$code"
