#!/bin/sh
# Builds the image, starts it, calls it, stops it and prints its size. Without a Docker daemon, the
# same steps run in a bare virtual environment: the wheel, the requirements without torch, the
# entrypoint.
#
#   deploy/check.sh            PYTHON=python3.12 deploy/check.sh
set -eu
cd "$(dirname "$0")/.."
home="$(mktemp -d)"
port="${REGARD_CHECK_PORT:-7399}"
address="http://127.0.0.1:$port"
REGARD_TOKEN="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
export REGARD_TOKEN
server="" container=""

finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$container" ] || docker rm -f "$container" >/dev/null 2>&1 || true
    rm -rf "$home"
}
trap finish EXIT INT TERM

fail() {
    echo "check.sh: $1" >&2
    [ ! -f "$home/log" ] || tail -n 20 "$home/log" >&2
    exit 1
}

request() { # PATH [BODY]
    path="$1"
    shift
    curl --silent --show-error --fail --max-time 20 "$address$path" \
        --header "authorization: Bearer $REGARD_TOKEN" \
        ${1:+--header "content-type: application/json" --data "$1"}
}

wait_until_ready() {
    for _ in $(seq 300); do
        curl --silent --fail --max-time 2 "$address/v2/health/ready" >/dev/null 2>&1 && return
        sleep 0.2
    done
    fail "the server did not become ready"
}

call() {
    answer="$(request /v1/generate '{"input": "attention"}')" || fail "/v1/generate failed"
    case "$answer" in *"AH T EH N SH AH N"*) ;; *) fail "unexpected answer: $answer" ;; esac
    request /metrics >"$home/metrics" || fail "/metrics failed"
    grep -q '^regard_' "$home/metrics" || fail "/metrics has no metrics of Regard"
    status="$(curl --silent --output /dev/null --write-out '%{http_code}' "$address/v1/models")"
    [ "$status" = 401 ] || fail "a request without the token got $status instead of 401"
}

if docker info >/dev/null 2>&1; then
    docker build --quiet -f deploy/Dockerfile -t regard:check . >/dev/null || fail "the build failed"
    container="$(docker run --detach --read-only --cap-drop ALL --env REGARD_TOKEN \
        --tmpfs /run/regard:uid=10001,mode=0700 --publish "127.0.0.1:$port:7342" regard:check)"
    wait_until_ready
    call
    docker exec "$container" python -c "import torch" 2>/dev/null && fail "the image has torch"
    [ "$(docker exec "$container" id -u)" != 0 ] || fail "the server runs as root"
    docker stop --time 30 "$container" >/dev/null
    code="$(docker inspect --format '{{.State.ExitCode}}' "$container")"
    size="$(docker image inspect --format '{{.Size}}' regard:check)"
    what="image"
else
    echo "no Docker daemon: the steps of the image run in a virtual environment" >&2
    "${PYTHON:-python3}" -m venv "$home/venv"
    bin="$home/venv/bin"
    "$bin/pip" install --quiet --no-compile -r deploy/requirements-serve.txt || fail "no requirements"
    if [ -n "${REGARD_WHEEL:-}" ]; then
        cp "$REGARD_WHEEL" "$home"
    else
        "$bin/pip" wheel --quiet --no-deps -w "$home" . || fail "the wheel cannot be built"
    fi
    "$bin/pip" install --quiet --no-compile --no-deps "$home"/*.whl || fail "the wheel is broken"
    mkdir -m 0700 "$home/run"
    cd "$home" # so that nothing is imported from the checkout
    unset PYTHONPATH
    "$bin/python" -c "import torch" 2>/dev/null && fail "the environment has torch"
    "$bin/python" -c "from regard.native.library import load_library; load_library()" ||
        fail "the wheel has no native engine"
    PATH="$bin:$PATH" REGARD_RUN="$home/run" REGARD_PORT="$port" \
        "$OLDPWD/deploy/entrypoint.sh" spelling >"$home/log" 2>&1 &
    server=$!
    wait_until_ready
    call
    kill -TERM "$server"
    code=0
    wait "$server" || code=$?
    server=""
    size="$(du -sk "$home/venv" | cut -f1)"
    size=$((size * 1024))
    what="virtual environment"
fi
[ "$code" = 0 ] || [ "$code" = 143 ] || fail "the server exited with $code after SIGTERM"
echo "$what: $((size / 1000000)) MB; served, called and stopped (exit status $code)"
