#!/usr/bin/env bash
# A Megatron launcher whose command line cannot be changed: it goes by the tracker file beside the checkpoints.
# The tracker is written only for a checkpoint that was just seen as it was validated, and in one step.
#   RUN=pretrain-7 RESUME_OPTIONS='…' ./train_by_tracker.sh <the launcher and its arguments>
set -euo pipefail
: "${RUN:?the name of the run}"
ckptguard resume --run "$RUN" --wait "${WAIT:-120s}" --write-tracker megatron ${RESUME_OPTIONS:-} >/dev/null || exit $?
exec "$@"
