#!/bin/sh
# Puts a Chromium where the page tests find it: Debian's where this user may install it, else playwright's own.
set -eu
python=$1
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
  "$python" -m playwright install chromium
fi
