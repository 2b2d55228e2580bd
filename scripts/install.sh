#!/usr/bin/env bash
# `make install`: edged as a systemd service of this box, in /opt/edged/releases/VERSION. Run again it upgrades.
#   WHEELS=DIR  take every Python package from there and nothing from a network: what `make wheelhouse` made (each file is
#               checked by its hash), or a plain directory of wheels (`pip wheel '.[engine,service,metrics]'` fills it)
#   MODEL=FILE  copy this GGUF into /var/lib/edged/models; without it the self-test model is fetched, once
# What runs is never touched: a release is built beside it, then `current` is switched. When the new one does not answer,
# it is switched back. Configuration, keys, models and state are kept.
set -euo pipefail
cd "$(dirname "$0")/.."

self=install
log=$(mktemp /tmp/edged-install.XXXXXX.log)
. scripts/progress.sh

home=/opt/edged
models=/var/lib/edged/models
endpoint=ipc:///run/edged/request.sock
answer_s=60
ready_s=300
units=(edged.socket edged-control.socket edged.service)

# ---- may it, can it ----
[ "$(id -u)" = 0 ] || die "this needs root: sudo make install"
[ -d /run/systemd/system ] || die "systemd does not run here; in the foreground: make serve"
python=${PYTHON:-/usr/bin/python3}
command -v "$python" >/dev/null && new_enough "$python" ||
    die "$python is not Python 3.11 or newer (set PYTHON=/path/to/python3; the system's own is best)"
wheels=${WHEELS:+$(realpath -e "$WHEELS")} || die "WHEELS: there is no directory $WHEELS"
model=${MODEL:+$(realpath -e "$MODEL")} || die "MODEL: there is no file $MODEL"
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' edged/__init__.py)
house= # a wheelhouse, with hashes
if [ -n "$wheels" ] && [ -e "$wheels/manifest.json" ]; then
    house=$wheels wheels=$wheels/wheels
    of() { "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$house/manifest.json" "$1"; }
    [ "$(of version)" = "$version" ] || die "$house holds edged $(of version), this is $version"
    [ "$(of arch)" = "$(uname -m)" ] || die "$house is for $(of arch), this box is $(uname -m)"
    (cd "$house" && sha256sum --check --quiet --strict SHA256SUMS) || die "$house is damaged or was changed: copy it anew"
fi

missing_packages() {
    "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 || echo python3-venv
    if ! ldconfig -p | grep -q 'libgomp\.so\.1'; then echo libgomp1; fi # the engine's threads
    if [ -n "$wheels" ]; then return; fi
    if ! command -v c++ >/dev/null || ! command -v make >/dev/null; then echo build-essential; fi
    command -v pkg-config >/dev/null || echo pkg-config
    [ -e /usr/include/systemd/sd-daemon.h ] || echo libsystemd-dev
    "$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
        echo python3-dev
}
mapfile -t packages < <(missing_packages)
if [ "${#packages[@]}" -gt 0 ]; then apt_install "${packages[@]}"; fi

# a file whole or not at all: MODE FROM TO
put() {
    if ! install -D -m "$1" "$2" "$3.new" || ! mv -T "$3.new" "$3"; then
        rm -f "$3.new"
        die "cannot write $3: is the disk full?"
    fi
}
runs() { "$1/venv/bin/edged" --version >/dev/null 2>&1; }

# ---- a release of its own ----
umask 022
mkdir -p "$home/releases"
exec 9>"$home/.lock"
flock -n 9 || die "another make install runs"
# one more than the highest there is: newer ones have higher numbers
last=0
for old in "$home/releases/$version" "$home/releases/$version"-*; do
    [ -e "$old" ] || continue
    n=${old#"$home/releases/$version"}
    n=${n#-}
    case "${n:-1}" in *[!0-9]*) continue ;; esac
    [ "${n:-1}" -le "$last" ] || last=${n:-1}
done
name=$version
[ "$last" = 0 ] || name=$version-$((last + 1))
release=$home/releases/$name
previous=$(readlink "$home/current" 2>/dev/null || true)
# never what is in force
abandon() { [ "$(readlink "$home/current" 2>/dev/null)" = "releases/$name" ] || rm -rf "$release"; }
trap 'stop_child; exit 130' INT TERM HUP
trap '[ $? -eq 0 ] || abandon' EXIT

mkdir -p "$release"
"$python" -m venv "$release/venv"
pip=("$release/venv/bin/python" -m pip --disable-pip-version-check install)
if [ -n "$house" ]; then
    run "installing edged $version into $release, from $house" \
        "${pip[@]}" --no-index --find-links "$wheels" --require-hashes -r "$house/requirements.txt"
    cp "$house/manifest.json" "$house/sbom.json" "$release/"
elif [ -n "$wheels" ]; then
    run "installing edged $version into $release, from $wheels" \
        "${pip[@]}" --no-index --find-links "$wheels" "edged[engine,service,metrics]==$version"
else
    compile_settings
    run "installing edged $version into $release; the engine is compiled unless pip has a ready wheel
install: (some 8 minutes on a 2-core x86-64 machine; on a Pi 4 perhaps half an hour, which has not been measured)" \
        "${pip[@]}" -v "$PWD[engine,service,metrics]"
fi
cp -r docs deploy config.yaml README.md CHANGELOG.md LICENSE "$release/"
"$release/venv/bin/edged" --version >/dev/null || die "the installed edged does not run; all of the output: $log"
"$release/venv/bin/python" -m edged.doctor.selftest || die "nothing was changed: what runs goes on"

# ---- user, directories, configuration, units ----
say "user, directories, configuration, units"
put 0644 deploy/sysusers.d/edged.conf /etc/sysusers.d/edged.conf
put 0644 deploy/tmpfiles.d/edged.conf /etc/tmpfiles.d/edged.conf
systemd-sysusers /etc/sysusers.d/edged.conf
systemd-tmpfiles --create /etc/tmpfiles.d/edged.conf
[ -e /etc/edged/config.yaml ] || put 0644 config.yaml /etc/edged/config.yaml
"$release/venv/bin/edgectl" config check /etc/edged/config.yaml ||
    say "the configuration is wrong (above): the service will answer, and say so, until it is mended and reloaded"
put_units() { for unit in "${units[@]}"; do put 0644 "$1/$unit" "/etc/systemd/system/$unit"; done; }
put_units deploy/systemd
for page in docs/man/*.[1-8]; do put 0644 "$page" "/usr/local/share/man/man${page##*.}/$(basename "$page")"; done

if [ -n "$model" ]; then
    say "copying the model to $models"
    put 0644 "$model" "$models/$(basename "$model")"
elif ! ls "$models"/*.gguf >/dev/null 2>&1; then
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=${wheels:+1} PIP_FIND_LINKS=$wheels \
        "$release/venv/bin/python" -m edged.models.embedded ||
        say "no model yet: edgectl model import FILE, then edgectl reload"
fi

# ---- switch ----
switch() { ln -sfn "$1" "$home/.current.new" && mv -T "$home/.current.new" "$home/current"; }

start() {
    systemctl daemon-reload
    # a socket unit does not start while its service holds the path
    systemctl is-active -q edged.socket edged-control.socket || systemctl stop edged.service
    systemctl enable -q "${units[@]}" && systemctl start edged.socket edged-control.socket &&
        systemctl restart edged.service
}

answers() {
    local until=$((SECONDS + answer_s))
    until "$home/current/venv/bin/edgectl" --endpoint "$endpoint" --timeout 2 ping >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.5
    done
}

switch "releases/$name"
mkdir -p /usr/local/bin && ln -sfn "$home/current/venv/bin/edgectl" /usr/local/bin/edgectl
say "starting edged.service"
if ! start || ! answers; then
    journalctl -u edged -n 20 --no-pager -o cat >&2 || true
    if [ -n "$previous" ] && [ -d "$home/$previous" ]; then
        switch "$previous"
        put_units "$home/$previous/deploy/systemd"
        abandon
        if start && answers; then die "edged $version does not answer; $previous runs again"; fi
        die "edged $version does not answer, nor does $previous any more: journalctl -u edged"
    fi
    die "edged $version does not answer: journalctl -u edged"
fi

# the one before stays, for `ln -sfn` and a restart; older ones go, unless the one before is broken
if [ -n "$previous" ] && runs "$home/$previous"; then
    for old in "$home"/releases/*; do
        case "releases/$(basename "$old")" in
        "releases/$name" | "$previous") ;;
        *) rm -rf "$old" ;;
        esac
    done
fi

say "it answers; loading the model"
"$home/current/venv/bin/edgectl" --endpoint "$endpoint" health --wait "$ready_s" ||
    say "not ready yet: edgectl status says why, journalctl -u edged what happened"
rm -f "$log"
say "done. Next:
  sudo adduser ${SUDO_USER:-USER} edged          # may ask; then log in anew
  sudo adduser ${SUDO_USER:-USER} edged-admin    # may operate as well: reload, drain, cancel for others
  edgectl ask \"Why is the sky blue?\"
  /etc/edged/config.yaml, then: sudo systemctl reload edged"
