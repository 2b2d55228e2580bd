"""systemd as it answers, and where it listens for the service.

Whoever connects to a socket that systemd holds starts the service behind it, which may have been stopped on purpose:
doctor looks here first, and connects only where the service runs. Where `systemctl` does not answer (no D-Bus, systemd
busy), the control group says whether it runs, and the unit files say where systemd listens.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

SERVICE: Final = "edged.service"
SOCKETS: Final = ("edged.socket", "edged-control.socket")
SYSTEMCTL_S: Final = 1.5

RUNS: Final = ("active", "activating", "reloading", "refreshing")
"""ActiveState in which a connection starts nothing that is not started already."""

PLACES: Final = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
"""In the order in which systemd prefers them."""

_GROUPS: Final = ("sys/fs/cgroup", "sys/fs/cgroup/systemd")

Shown = dict[str, dict[str, str]]
"""Unit → property → value."""


class Held(Struct, frozen=True):
    """`addresses` where systemd listens for the service: paths, and `:PORT`. `runs`: the service does.
    `stopped`: socket units that do not listen."""

    addresses: frozenset[str] = frozenset()
    runs: bool = True
    stopped: tuple[str, ...] = ()

    def has(self, endpoint: str) -> bool:
        """systemd listens there: `ipc:///path`, `tcp://host:port` or a path."""
        scheme, _, rest = endpoint.rpartition("://")
        return (f":{rest.rpartition(':')[2]}" if scheme == "tcp" else rest) in self.addresses

    def asleep(self, endpoint: str) -> bool:
        """A connection would start the service."""
        return not self.runs and self.has(endpoint)


def show(units: Sequence[str], properties: Sequence[str]) -> Shown | None:
    """Of `systemctl show`; None: systemd does not run here, or does not say."""
    if not os.path.isdir("/run/systemd/system"):
        return None
    command = ["systemctl", "show", *units, f"--property={','.join(('Id', *properties))}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parsed(done.stdout) or None


def parsed(text: str) -> Shown:
    """A block for each unit. A property with several values has them in lines of their own: they are joined."""
    found: Shown = {}
    for block in text.split("\n\n"):
        rows: dict[str, str] = {}
        for name, _, value in (line.partition("=") for line in block.splitlines()):
            rows[name] = f"{rows[name]}\n{value}" if name in rows else value
        if "Id" in rows:
            found[rows["Id"]] = rows
    return found


def held(root: str = "/") -> Held:
    """Of this machine. `root`: where its files are looked at when systemd does not say."""
    shown = show([SERVICE, *SOCKETS], ["ActiveState", "Listen", "LoadState"])
    if shown is not None:
        return by_systemd(shown)
    booted = os.path.isdir(os.path.join(root, "run/systemd/system"))
    return by_files(root) if booted else Held()


def by_systemd(shown: Shown) -> Held:
    """Pure."""
    sockets = [(name, shown[name]) for name in SOCKETS if name in shown]
    listening = [rows for _, rows in sockets if rows.get("ActiveState") == "active"]
    stopped = [n for n, rows in sockets if rows.get("ActiveState") != "active" and rows.get("LoadState") == "loaded"]
    streams = [line for rows in listening for line in rows.get("Listen", "").splitlines()]
    runs = shown.get(SERVICE, {}).get("ActiveState") in RUNS
    return Held(_addresses(line.partition(" (")[0] for line in streams), runs, tuple(stopped))


def by_files(root: str) -> Held:
    """What the units say counts as listened at: rather not asked than started."""
    found: list[str] = []
    for place in PLACES:
        for name in SOCKETS:
            at = os.path.join(glob.escape(root), place, name)
            for path in [*glob.glob(at), *glob.glob(f"{at}.d/*.conf")]:
                found += re.findall(r"^\s*ListenStream\s*=\s*(\S+)", _text(path), re.MULTILINE)
    groups = (os.path.join(root, at, "system.slice", SERVICE, "cgroup.procs") for at in _GROUPS)
    return Held(_addresses(found), any(_text(path).strip() for path in groups))


def _addresses(listened: Iterable[str]) -> frozenset[str]:
    """`/run/x.sock` as it is; `5555`, `0.0.0.0:5555`, `[::]:5555` by the port."""
    return frozenset(one if one.startswith("/") else f":{one.rpartition(':')[2]}" for one in listened if one)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
