"""Who else may put something of his own in the place of ours: whoever may write a file or a directory on its way, or
owns one of them.

Ours are root, the service's user, who asks, and who owns `/` (in a user namespace root may look like nobody). In a
sticky directory nobody replaces what is another's, but anybody adds to it. A group counts when it has members beside
those.
"""

from __future__ import annotations

import os
import stat

from msgspec import Struct

from edged.doctor import finding, owners
from edged.doctor.box import Box
from edged.doctor.finding import Finding


class Open(Struct, frozen=True):
    """`who` may change `path`, in words; `do` mends it. `all`: everybody may."""

    path: str
    who: str
    do: str
    all: bool


def ours(box: Box) -> frozenset[int]:
    found = {0, os.geteuid()}
    service = owners.user(box) if box.installed else None
    found |= {service.uid} if service is not None else set()
    sudo = os.environ.get("SUDO_UID", "")
    found |= {int(sudo)} if sudo.isdigit() else set()
    control = box.endpoint("control", box.config.control_endpoint).removeprefix("ipc://")
    for path in ("/", *([] if box.installed else [control])):
        try:
            found.add(os.stat(box.path(path)).st_uid)
        except OSError:
            continue
    return frozenset(found)


def on_the_way(box: Box, path: str, known: frozenset[int], *, adding: bool = False) -> list[Open]:
    """The file and the directories above it, the highest first. What is not there or may not be seen is passed over.
    `adding`: also to add something at `path` does harm.
    """
    parts = path.strip("/").split("/")
    every = ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
    return [found for one in every if (found := look(box, one, known, adding=adding and one == every[-1]))]


def look(box: Box, path: str, known: frozenset[int], *, adding: bool = False) -> Open | None:
    try:
        status = os.stat(box.path(path))
    except OSError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    sticky = stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX and not adding
    if status.st_uid not in known:
        return Open(path, f"belongs to user {status.st_uid}", f"sudo chown root: {path}", all=False)
    if mode & stat.S_IWOTH and not sticky:
        return Open(path, f"is {mode:04o}: everybody may write it", f"sudo chmod go-w {path}", all=True)
    others = owners.others(box, status.st_gid, known) if mode & stat.S_IWGRP and not sticky else []
    if others:
        group = owners.group_name(box, status.st_gid)
        who = f"is {mode:04o}: {', '.join(others)} of group {group} may write it"
        return Open(path, who, f"sudo chmod g-w {path}", all=False)
    return None


def told(check: str, found: dict[str, tuple[Open, str]]) -> list[Finding]:
    """`found`: by path, with why it matters."""
    out = []
    for one, why in found.values():
        out.append(finding.error(check, f"{one.path} {one.who}", why, one.do))
    return out
