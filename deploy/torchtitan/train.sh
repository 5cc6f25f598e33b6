#!/usr/bin/env bash
# torchtitan from the last checkpoint proven good.
#   RUN=pretrain-7 CONFIG=llama3_8b.toml DUMP=/ckpts/pretrain-7 ./train.sh [options of `ckptguard resume`]
#
# By itself torchtitan takes the highest step-N that has a `.metadata`; and where its folder is missing, it
# starts from scratch even with --checkpoint.load_step. So both are looked at here.
set -euo pipefail
: "${RUN:?the name of the run}" "${CONFIG:?the job config}" "${DUMP:?its --job.dump_folder}"
folder=$DUMP/checkpoint # --checkpoint.folder
unset "${!CKPTGUARD_RESUME_@}"

target=$(ckptguard resume --run "$RUN" --wait "${WAIT:-120s}" --format env "$@") || exit $?
eval "$target"

load=()
if [[ -n "${CKPTGUARD_RESUME_PATH:-}" ]]; then
  if [[ ! "$CKPTGUARD_RESUME_PATH" -ef "$folder/step-$CKPTGUARD_RESUME_STEP" ]]; then
    echo "$CKPTGUARD_RESUME_PATH is not what torchtitan finds as step $CKPTGUARD_RESUME_STEP of $folder" >&2
    exit 30
  fi
  load=(--checkpoint.load_step "$CKPTGUARD_RESUME_STEP")
elif compgen -G "$folder/step-*" >/dev/null; then
  echo "$folder has steps that the service does not know: torchtitan would take one (ckptguard adopt)" >&2
  exit 30
fi
exec torchrun --nproc-per-node "${NPROC:-8}" -m torchtitan.train \
  --job.config_file "$CONFIG" --job.dump_folder "$DUMP" --checkpoint.enable "${load[@]}"
