"""The service itself: does it answer, what does it warn of, is it the same release as this edgectl."""

from __future__ import annotations

import platform
import re
import subprocess
from typing import Any, Final

from msgspec import Struct

from edged import __version__
from edged.doctor import finding, manager, units
from edged.doctor.box import STOPPED, Box
from edged.doctor.finding import Finding
from edged.places import SOCKETS_AFRESH, absent

SERVICE: Final = "service"
VERSIONS: Final = "versions"
FILES: Final = "open-files"

ENOUGH: Final = 512
"""Open files: limits.connections (256), the handshakes beside them, and what the daemon has open itself."""

SYSTEMD: Final = 252
"""The oldest that edged's units were tried on."""

LOG: Final = "edgectl status; journalctl -u edged -p warning"


def check_service(box: Box) -> list[Finding]:
    if not box.here:
        return [finding.info(SERVICE, "the service is looked at on the box itself")]
    status, removed = box.ask("status"), False
    if isinstance(status, str):
        removed = any(absent(address) for address in box.held.addresses if address.startswith("/"))
    return judge_service(status, installed=box.installed, removed=removed)


def judge_service(status: dict[str, Any] | str, *, installed: bool, removed: bool = False) -> list[Finding]:
    """`status`: its reply, or why there is none. `removed`: systemd listens at a file that is gone."""
    if isinstance(status, str):
        make = finding.error if installed else finding.info
        do = "sudo systemctl start edged" if installed else "make serve, or install it (docs/operations.md)"
        if status.startswith("no permission"):
            return [finding.unknown(SERVICE, status, do="sudo edgectl doctor; `groups` says how to get it")]
        if removed:
            return [make(SERVICE, f"the service cannot be reached: {status}", do=SOCKETS_AFRESH)]
        if status == STOPPED:
            return [finding.warning(SERVICE, STOPPED, "it was not asked, since that would start it", do)]
        return [make(SERVICE, f"the service does not answer: {status}", do=do)]
    state = str(status.get("state", "?"))
    said = [str(text) for text in status.get("warnings", []) if isinstance(text, str)]
    out = [finding.warning(SERVICE, text, do=LOG) for text in said if not text.startswith("unavailable: ")]
    if state == "unavailable":
        why = "; ".join(text.removeprefix("unavailable: ") for text in said if text.startswith("unavailable: "))
        out.append(finding.error(SERVICE, "unavailable: nothing is answered", why, LOG))
    elif state == "degraded" and not out:
        watchdog = status.get("watchdog")
        why = str(watchdog.get("why") or "") if isinstance(watchdog, dict) else ""
        out.append(finding.warning(SERVICE, "degraded: it serves, not as configured", why, LOG))
    elif state == "draining":
        out.append(finding.info(SERVICE, "draining: new requests are refused", do="edgectl resume"))
    return out or [finding.ok(SERVICE, f"it answers: {state}")]


# ---- versions -----------------------------------------------------------------------------------------------------


class Versions(Struct, frozen=True):
    """`daemon` None: it does not answer. `systemd` None: there is none."""

    own: str
    daemon: str | None
    python: str
    libc: str
    systemd: int | None


def check_versions(box: Box) -> list[Finding]:
    reply = box.ask("ping")
    daemon = str(reply.get("version", "?")) if isinstance(reply, dict) else None
    libc = " ".join(platform.libc_ver()).strip() or "an unknown C library"
    return judge_versions(Versions(__version__, daemon, platform.python_version(), libc, _systemd(box)))


def _systemd(box: Box) -> int | None:
    if not box.here:
        return None
    try:
        done = subprocess.run(
            ["systemctl", "--version"], capture_output=True, text=True, timeout=manager.SYSTEMCTL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"systemd (\d+)", done.stdout)
    return int(found[1]) if found else None


def judge_versions(versions: Versions) -> list[Finding]:
    rest = [f"Python {versions.python}", versions.libc]
    rest += [f"systemd {versions.systemd}"] if versions.systemd is not None else []
    out = []
    if versions.daemon is not None and versions.daemon != versions.own:
        what = f"the daemon is {versions.daemon}, this edgectl {versions.own}"
        why = "a newer release was installed and the daemon not restarted, or there are two edgectl"
        out.append(finding.warning(VERSIONS, what, why, "sudo systemctl restart edged; type -a edgectl"))
    if versions.systemd is not None and versions.systemd < SYSTEMD:
        why = f"the units are for {SYSTEMD} and later"
        out.append(finding.warning(VERSIONS, f"systemd {versions.systemd}", why, "a newer system (Debian 12)"))
    return out or [finding.ok(VERSIONS, f"edged {versions.own}, {', '.join(rest)}")]


# ---- descriptors --------------------------------------------------------------------------------------------------


def check_files(box: Box) -> list[Finding]:
    """The limit of this box's daemon, and of no other on the machine: it raises its own to the hard one."""
    if not box.here:
        return [finding.info(FILES, "the limit of open files is looked at on the box itself")]
    listeners = box.listeners()
    pid = next((pid for pid in listeners if pid is not None), None)
    if pid is not None and _is_manager(box, pid):
        pid = units.main_pid(box)
        if pid is None:  # it waits for the first who asks
            return judge_files(None, running=False)
    limit = None if pid is None else most_files(box.text(f"proc/{pid}/limits") or "")
    return judge_files(limit, running=bool(listeners))


def _is_manager(box: Box, pid: int) -> bool:
    """Under socket activation systemd listens, and hands the sockets over."""
    return box.text(f"proc/{pid}/comm") == "systemd" or pid == 1


def most_files(text: str) -> int | None:
    """The hard one of /proc/PID/limits."""
    found = re.search(r"^Max open files\s+\S+\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def judge_files(limit: int | None, *, running: bool) -> list[Finding]:
    if limit is None:
        if running:
            return [finding.unknown(FILES, "the daemon's limit may not be looked at", do="sudo edgectl doctor")]
        return [finding.info(FILES, "no daemon runs whose limit could be looked at")]
    if limit < ENOUGH:
        why = "each connection takes one; beyond the limit nobody is let in"
        return [finding.warning(FILES, f"at most {limit} open files", why, f"LimitNOFILE={ENOUGH} or more in the unit")]
    return [finding.ok(FILES, f"at most {limit} open files")]
