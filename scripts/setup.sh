#!/usr/bin/env bash
# Makes .venv in the project. Needs make, git and python3 >= 3.11; installs the rest.
# Quick when nothing changed: .venv/.stamp holds what the packages were chosen from.
set -euo pipefail
cd "$(dirname "$0")/.."

self=setup
. scripts/progress.sh

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 /usr/bin/python3; do
        if new_enough "$candidate"; then printf '%s\n' "$candidate"; return; fi
    done
    die "no python3 >= 3.11 here (set PYTHON=/path/to/python3 if it lies elsewhere)"
}

python=$(find_python)
# systemd's side (edged[service]) is built where its headers are: it is not needed here, but by its tests
extras=dev,engine
if [ -e /usr/include/systemd/sd-daemon.h ] && command -v pkg-config >/dev/null; then extras=$extras,service; fi
# what the environment was made from: the packages wanted, this script, the interpreter, the place (a venv cannot be moved)
key=$( { cat pyproject.toml scripts/setup.sh scripts/progress.sh; echo $extras; "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; pwd -P; } |
    sha256sum | cut -d' ' -f1)
current() { [ "$(cat .venv/.stamp 2>/dev/null)" = "$key" ] && .venv/bin/python -c '' 2>/dev/null; }
if current; then exit 0; fi

exec 9<scripts/setup.sh
flock 9 # two at once (make run beside make test): the second waits, then finds the work done
if current; then exit 0; fi
rm -f .venv/.stamp

missing_packages() {
    "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 || echo python3-venv
    if ! command -v c++ >/dev/null || ! command -v make >/dev/null; then echo build-essential; fi
    command -v git >/dev/null || echo git
}

mapfile -t packages < <(missing_packages)
if [ "${#packages[@]}" -gt 0 ]; then apt_install "${packages[@]}"; fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    [ "$(.venv/bin/python -c 'import sys; print(sys.version)')" != "$("$python" -c 'import sys; print(sys.version)')" ] ||
    ! head -3 .venv/bin/pip | grep -qF "$(pwd -P)/.venv/"; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

log=$(pwd -P)/.venv/setup.log
: >"$log"
compile_settings

pip=(.venv/bin/python -m pip --disable-pip-version-check)
run "installing the Python packages (no compiler needed for these)" "${pip[@]}" install -e '.[dev]'
run "installing the engine, llama.cpp: it is compiled here unless pip has a ready wheel
setup: (the first time about 8 minutes on 2 cores; on a Pi 4 perhaps half an hour, which has not been measured)" \
    "${pip[@]}" install -v -e ".[$extras]"

printf '%s\n' "$key" >.venv/.stamp
say "done"
