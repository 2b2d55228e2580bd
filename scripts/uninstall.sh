#!/usr/bin/env bash
# `make uninstall`: the service and the program go. Configuration, keys, models and state stay, unless PURGE=1.
set -euo pipefail
cd "$(dirname "$0")/.."

self=uninstall
. scripts/progress.sh
[ "$(id -u)" = 0 ] || die "this needs root: sudo make uninstall"

units=(edged.service edged.socket edged-control.socket)
if [ -d /run/systemd/system ]; then
    say "stopping the service"
    for unit in "${units[@]}"; do
        [ ! -e "/etc/systemd/system/$unit" ] || systemctl disable -q --now "$unit" || say "could not stop $unit"
    done
fi
for unit in "${units[@]}"; do rm -f "/etc/systemd/system/$unit"; done
[ ! -d /run/systemd/system ] || systemctl daemon-reload
[ "$(readlink /usr/local/bin/edgectl 2>/dev/null)" != /opt/edged/current/venv/bin/edgectl ] || rm -f /usr/local/bin/edgectl
rm -f /usr/local/share/man/man1/edgectl.1 /usr/local/share/man/man5/edged.yaml.5 /usr/local/share/man/man8/edged.8
rm -rf /opt/edged /run/edged /etc/tmpfiles.d/edged.conf /etc/sysusers.d/edged.conf

if [ "${PURGE:-}" = 1 ]; then
    rm -rf /etc/edged /var/lib/edged
    for user in edged; do ! getent passwd $user >/dev/null || userdel $user; done
    for group in edged edged-admin; do ! getent group $group >/dev/null || groupdel $group; done
    say "done; configuration, keys, models, state, user and groups are gone too"
else
    say "done; kept: /etc/edged, /var/lib/edged (models and state), the user edged. PURGE=1 removes these as well"
fi
