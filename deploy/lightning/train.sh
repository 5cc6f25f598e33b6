#!/usr/bin/env bash
# A Lightning script from the last checkpoint proven good: trainer.fit(…, ckpt_path=…) of the script gets it.
#   RUN=pretrain-7 ./train.sh [options of `ckptguard resume`]
#
# By itself `ckpt_path="last"` is the newest modification time; and with None, under Slurm, Lightning takes what
# it saved when the job was requeued (`hpc_ckpt_N.ckpt`). So a script never passes "last", and turns the latter
# off: plugins=[SLURMEnvironment(auto_requeue=False)].
set -euo pipefail
: "${RUN:?the name of the run}"
unset "${!CKPTGUARD_RESUME_@}"

target=$(ckptguard resume --run "$RUN" --wait "${WAIT:-120s}" --format env "$@") || exit $?
eval "$target"

exec torchrun --nproc-per-node "${NPROC:-8}" train.py ${CKPTGUARD_RESUME_PATH:+--ckpt_path "$CKPTGUARD_RESUME_PATH"}
