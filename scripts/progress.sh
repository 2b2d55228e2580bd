# Sourced by setup.sh and install.sh: says what goes on. `self` is the name before each line, `log` the file for output.

say() { printf '%s: %s\n' "$self" "$*"; }
die() { printf '%s: %s\n' "$self" "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else return 127; fi
}

# apt_install PACKAGE...
apt_install() {
    command -v apt-get >/dev/null || die "please install with this system's package manager: $*"
    say "installing OS packages: $*"
    as_root apt-get -qq update || die "apt-get update failed; as root: apt-get update && apt-get install $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$@" \
        >/dev/null </dev/null || die "apt-get could not install: $*"
}

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
compile_settings() {
    local memory_gb cores
    memory_gb=$(awk '/^MemTotal/ {print int($2 / 1000000) + 1}' /proc/meminfo 2>/dev/null || echo 1)
    cores=$(nproc)
    export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$((cores < memory_gb ? cores : memory_gb))}
    # only the libraries: no vision, no TLS, no web page
    export CMAKE_ARGS=${CMAKE_ARGS:--DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF}
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
