#!/bin/sh
# Starts `regard serve` in a container; the arguments are its models and options.
# The token is REGARD_TOKEN, or the file that REGARD_TOKEN_FILE names (a mounted secret). It is copied
# to a file that only this user can read, as `regard serve` requires.
set -eu
umask 077
folder="${REGARD_RUN:-/run/regard}"
if [ -n "${REGARD_TOKEN:-}" ]; then
    printf '%s\n' "$REGARD_TOKEN" > "$folder/token"
elif [ -n "${REGARD_TOKEN_FILE:-}" ]; then
    cat "$REGARD_TOKEN_FILE" > "$folder/token"
else
    echo "regard-serve: set REGARD_TOKEN, or REGARD_TOKEN_FILE to the path of a secret" >&2
    exit 2
fi
unset REGARD_TOKEN
exec regard serve --host "${REGARD_HOST:-0.0.0.0}" --port "${REGARD_PORT:-7342}" \
    --token-file "$folder/token" "$@"
