#!/usr/bin/env bash
# Makes .venv in the project. Needs make, git and python3 >= 3.11; installs the rest.
# Quick when nothing changed: .venv/.stamp holds what the packages were chosen from.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 /usr/bin/python3; do
        if new_enough "$candidate"; then printf '%s\n' "$candidate"; return; fi
    done
    die "no python3 >= 3.11 here (set PYTHON=/path/to/python3 if it lies elsewhere)"
}

python=$(find_python)
# what the environment was made from: the packages wanted, this script, the interpreter, the place (a venv cannot be moved)
key=$( { cat pyproject.toml scripts/setup.sh; "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; pwd -P; } |
    sha256sum | cut -d' ' -f1)
current() { [ "$(cat .venv/.stamp 2>/dev/null)" = "$key" ] && .venv/bin/python -c '' 2>/dev/null; }
if current; then exit 0; fi

exec 9<scripts/setup.sh
flock 9 # two at once (make run beside make test): the second waits, then finds the work done
if current; then exit 0; fi
rm -f .venv/.stamp

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else return 127; fi
}

missing_packages() {
    "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 || echo python3-venv
    if ! command -v c++ >/dev/null || ! command -v make >/dev/null; then echo build-essential; fi
    command -v git >/dev/null || echo git
}

mapfile -t packages < <(missing_packages)
if [ "${#packages[@]}" -gt 0 ]; then
    command -v apt-get >/dev/null || die "please install with this system's package manager: ${packages[*]}"
    say "installing OS packages: ${packages[*]}"
    as_root apt-get -qq update || die "apt-get update failed; as root: apt-get update && apt-get install ${packages[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "${packages[@]}" \
        >/dev/null </dev/null || die "apt-get could not install: ${packages[*]}"
fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    [ "$(.venv/bin/python -c 'import sys; print(sys.version)')" != "$("$python" -c 'import sys; print(sys.version)')" ] ||
    ! head -3 .venv/bin/pip | grep -qF "$(pwd -P)/.venv/"; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

log=$(pwd -P)/.venv/setup.log
: >"$log"
child=
set -m # the child gets a process group: stopping it stops the compilers too
stop_child() { if [ -n "$child" ]; then kill -- "-$child" 2>/dev/null || true; fi; }
trap 'stop_child; exit 130' INT TERM HUP

# run TITLE COMMAND...: output to the log, a line with the time gone by every 10 s, the log's end on failure
run() {
    local title=$1 begun=$SECONDS told=$SECONDS steps rc=0
    shift
    say "$title"
    "$@" >>"$log" 2>&1 </dev/null 9<&- &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        sleep 0.3
        if [ $((SECONDS - told)) -ge 10 ]; then
            told=$SECONDS
            steps=$(grep -aoE '^ *\[[0-9]+/[0-9]+\]' "$log" | tail -1 | tr -d ' ' || true)
            say "  $(printf '%d:%02d' $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60))) ${steps:-working}"
        fi
    done
    wait "$child" || rc=$?
    child=
    if [ "$rc" -ne 0 ]; then
        tail -40 "$log" >&2
        die "failed: $title (all of it: $log)"
    fi
}

# one compiler per core, but no more than one per GB of memory: a Pi with 1 GB would swap itself to death
memory_gb=$(awk '/^MemTotal/ {print int($2 / 1000000) + 1}' /proc/meminfo 2>/dev/null || echo 1)
cores=$(nproc)
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$((cores < memory_gb ? cores : memory_gb))}
# only the libraries: no vision, no TLS, no web page
export CMAKE_ARGS=${CMAKE_ARGS:--DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF}

pip=(.venv/bin/python -m pip --disable-pip-version-check)
run "installing the Python packages (no compiler needed for these)" "${pip[@]}" install -e '.[dev]'
run "installing the engine, llama.cpp: it is compiled here unless pip has a ready wheel
setup: (the first time about 8 minutes on 2 cores; on a Pi 4 perhaps half an hour, which has not been measured)" \
    "${pip[@]}" install -v -e '.[dev,engine]'

printf '%s\n' "$key" >.venv/.stamp
say "done"
