#!/bin/sh
# One daemon, one question, its status: `sh once.sh BIN MODEL PROMPT TOKENS`. Prints two lines of JSON: answer, status.
bin=$1 model=$2 prompt=$3 tokens=$4
dir=$(mktemp -d)
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; rm -rf "$dir"' EXIT
mkdir -m 700 "$dir/run" "$dir/state"
printf '{"runtime_dir": "%s/run", "state_dir": "%s/state", "model": {"path": "%s"}, "profiles": [{"name": "one", "context": 512, "sequences": 2, "batch": 64, "prefill_chunk": 32}], "watchdog": {"stall_s": 120}}' \
    "$dir" "$dir" "$model" >"$dir/config.yaml"
"$bin/edged" --config "$dir/config.yaml" 2>"$dir/log" &
daemon=$!
edgectl() { "$bin/edgectl" --config "$dir/config.yaml" --timeout 300 "$@"; }
until [ -S "$dir/run/request.sock" ] || ! kill -0 $daemon; do sleep 0.2; done
edgectl health --wait 300 >&2 &&
    edgectl --json ask --temperature 0 --max-tokens "$tokens" --deadline 600 "$prompt" &&
    edgectl --json status || { cat "$dir/log" >&2; exit 1; }
