"""What the unit needs before systemd starts anything: directories, files, users. Without one of them the service ends
before its first line, with a status that only systemd.exec(5) explains and a log that has nothing of edged in it.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from msgspec import Struct

from edged.doctor import finding, owners, unitfiles
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.places import absent

TMPFILES: Final = "etc/tmpfiles.d/edged.conf"
SYSUSERS: Final = "etc/sysusers.d/edged.conf"
STARTED: Final = "sudo systemctl reset-failed edged; sudo systemctl start edged"

_PATHS: Final = {
    "LoadCredential": "243/CREDENTIALS",
    "LoadCredentialEncrypted": "243/CREDENTIALS",
    "ReadWritePaths": "226/NAMESPACE",
    "ReadOnlyPaths": "226/NAMESPACE",
    "BindPaths": "226/NAMESPACE",
    "BindReadOnlyPaths": "226/NAMESPACE",
    "EnvironmentFile": "no status: Result=resources",
    "WorkingDirectory": "200/CHDIR",
    "ExecStart": "203/EXEC",
}
"""Setting → how a start without it ends: systemd.exec(5), "Process Exit Codes"."""


class Need(Struct, frozen=True):
    """`what`: a path, or `user edged`. `ends`: the status of a start without it."""

    what: str
    setting: str
    ends: str


def missing(box: Box, lines: list[str]) -> list[Finding]:
    """`lines`: settings of the service, drop-ins included."""
    wanted = [need for need in needed(lines) if absent(box.path(need.what))]
    dynamic = unitfiles.last(lines, "DynamicUser").lower() in ("yes", "true", "1", "on")
    for name, ends, known in (("User", "217/USER", owners.has_user), ("Group", "216/GROUP", owners.has_group)):
        value = unitfiles.last(lines, name)
        if value and not dynamic and not value.isdigit() and not known(box, value):
            wanted.append(Need(f"{name.lower()} {value}", name, ends))
    made = box.text(TMPFILES) or ""
    return [_told(need, made, users=box.exists(SYSUSERS)) for need in wanted]


def needed(lines: list[str]) -> list[Need]:
    """Paths. An empty value takes back what was said before; `-` before a path: it may be missing."""
    found: dict[str, list[str]] = {name: [] for name in _PATHS}
    for line in lines:
        name, _, value = line.partition("=")
        if name in found:
            found[name] = [] if not value else [*found[name], *_paths(name, value)]
    return [Need(path, name, _PATHS[name]) for name, paths in found.items() for path in dict.fromkeys(paths)]


def _paths(name: str, value: str) -> list[str]:
    if name.startswith("LoadCredential"):
        said = [value.partition(":")[2]]
    elif name == "ExecStart":
        said = [re.sub(r"^[@:+!|]*(?=[/-])", "", value.split(maxsplit=1)[0])]
    else:
        said = _words(value)
        said = [one.partition(":")[0] for one in said] if name.startswith("Bind") else said
    return [path for one in said if (path := one.lstrip("+")).startswith("/") and not set(path) & set("%*?$")]


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _told(need: Need, made: str, *, users: bool) -> Finding:
    """`made`: what tmpfiles.d makes of the service's directories."""
    if need.setting in ("User", "Group"):
        how = f"sudo systemd-sysusers /{SYSUSERS}" if users else "install it again (docs/operations.md)"
    elif re.search(rf"^\s*d\S*\s+{re.escape(need.what.rstrip('/'))}/?\s", made, re.MULTILINE):
        how = f"sudo systemd-tmpfiles --create /{TMPFILES}"
    elif need.setting == "ExecStart":
        how = "install it again (docs/operations.md)"
    else:
        how = f"make it, or take it out of {need.setting}= (sudo systemctl edit edged)"
    what = f"there is no {need.what} ({need.setting}=)"
    why = f"the service does not start without it (status {need.ends})"
    return finding.error("unit-settings", what, why, f"{how}; {STARTED}")
