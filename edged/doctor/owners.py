"""Who may read and write what: the service's user and groups by the box's own passwd and group files. No files are
opened; what root may do is no test of what the service may.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Collection
from typing import Final

from msgspec import Struct

from edged.doctor.box import Box

USER: Final = "edged"


class User(Struct, frozen=True):
    name: str
    uid: int
    groups: frozenset[int]


def user(box: Box, name: str = USER) -> User | None:
    rows = (line.split(":") for line in (box.text("etc/passwd") or "").splitlines())
    row = next((row for row in rows if row[0] == name and len(row) > 3 and (row[2] + row[3]).isdigit()), None)
    return None if row is None else User(name, int(row[2]), frozenset({int(row[3]), *members(box, name)}))


def has_user(box: Box, name: str) -> bool:
    """By the box's file, or by whatever else this machine asks."""
    return user(box, name) is not None or (box.here and _known(pwd.getpwnam, name))


def has_group(box: Box, name: str) -> bool:
    rows = (line.partition(":")[0] for line in (box.text("etc/group") or "").splitlines())
    return name in rows or (box.here and _known(grp.getgrnam, name))


def _known(look: Callable[[str], object], name: str) -> bool:
    try:
        look(name)
    except KeyError:
        return False
    return True


def members(box: Box, name: str) -> set[int]:
    """The groups that the user was added to."""
    rows = (line.split(":") for line in (box.text("etc/group") or "").splitlines())
    return {int(row[2]) for row in rows if len(row) > 3 and row[2].isdigit() and name in row[3].split(",")}


def others(box: Box, gid: int, known: Collection[int]) -> list[str]:
    """Names of a group's members, by either file, who are none of the known users."""
    rows = [line.split(":") for line in (box.text("etc/passwd") or "").splitlines()]
    users = [(row[0], int(row[2]), row[3]) for row in rows if len(row) > 3 and row[2].isdigit()]
    return [name for name, uid, own in users if uid not in known and (own == str(gid) or gid in members(box, name))]


def group_name(box: Box, gid: int) -> str:
    rows = (line.split(":") for line in (box.text("etc/group") or "").splitlines())
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(gid)), str(gid))


def may(who: User, status: os.stat_result, wanted: int) -> bool:
    """`wanted`: of 4 (read), 2 (write), 1 (pass)."""
    if who.uid == 0:
        return True
    mode = status.st_mode
    if status.st_uid == who.uid:
        return bool(mode >> 6 & wanted == wanted)
    return bool(mode >> (3 if status.st_gid in who.groups else 0) & wanted == wanted)


def barred(box: Box, path: str) -> str:
    """Why the service cannot read a file, in words; "" when it can, or nothing is known."""
    service = user(box) if box.installed else None
    if service is None:
        return ""
    at = ""
    for part in path.strip("/").split("/"):
        at += f"/{part}"
        try:
            status = os.stat(box.path(at))
        except OSError:
            return ""
        wanted = 1 if stat.S_ISDIR(status.st_mode) else 4
        if not may(service, status, wanted):
            what = "pass" if wanted == 1 else "read"
            return f"user {service.name} may not {what} {at}"
    return ""
