#!/bin/sh
# Random secrets for docker-compose.yml, once; files that are there already stay as they are.
# The folder is yours alone; the files in it can be read by the users inside the containers.
set -eu

folder="$(dirname "$0")/secrets"
mkdir -p "$folder"
chmod 0700 "$folder"

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
keep() { # keep NAME TEXT
    [ -e "$folder/$1" ] && return 0
    printf '%s' "$2" > "$folder/$1"
    chmod 0444 "$folder/$1"
}

password="$(random)"
if [ ! -e "$folder/postgres_password" ]; then
    keep postgres_password "$password"
    keep database_url "postgresql+psycopg://ckptguard:$password@postgres/ckptguard"
fi

if [ ! -e "$folder/s3_identities" ]; then
    writer="$(random)" reader="$(random)"
    keep s3_identities "{\"identities\": [
  {\"name\": \"trainer\", \"credentials\": [{\"accessKey\": \"trainer\", \"secretKey\": \"$writer\"}], \"actions\": [\"Admin\", \"Read\", \"Write\", \"List\", \"Tagging\"]},
  {\"name\": \"worker\", \"credentials\": [{\"accessKey\": \"worker\", \"secretKey\": \"$reader\"}], \"actions\": [\"Read\", \"List\"]}
]}"
    keep s3_reader "{\"demo\": {\"key\": \"worker\", \"secret\": \"$reader\", \"endpoint_url\": \"http://s3:8333\"}}"
fi

# Made later by `ckptguard token create`; until then a file must be there for compose to start anything.
[ -e "$folder/worker_token" ] || { : > "$folder/worker_token"; chmod 0644 "$folder/worker_token"; }
echo "secrets are in $folder" >&2
