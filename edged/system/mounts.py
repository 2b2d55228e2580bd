"""What a path lies on, by the text of /proc/self/mountinfo. Pure.

A line is `id parent major:minor root mount-point options [optional…] - type source super-options`; of equally long
mount points the last line counts, it lies over the others. Blanks in names are octal.
"""

from __future__ import annotations

import re

from msgspec import Struct


class Mount(Struct, frozen=True):
    """`options`: of the mount and of the file system."""

    point: str
    system: str
    source: str
    number: str
    options: frozenset[str]


def mount_of(mountinfo: str, path: str) -> Mount | None:
    """`path`: absolute, without links. None: unknown."""
    best = None
    for line in mountinfo.splitlines():
        found = _parse(line)
        if found is not None and _below(path, found.point) and (best is None or len(found.point) >= len(best.point)):
            best = found
    return best


def _parse(line: str) -> Mount | None:
    mount, separator, system = line.partition(" - ")
    fields, rest = mount.split(" "), system.split(" ")
    if not separator or len(fields) < 6:
        return None
    options = {*fields[5].split(","), *(rest[2].split(",") if len(rest) > 2 else ())}
    source = _plain(rest[1]) if len(rest) > 1 else ""
    return Mount(_plain(fields[4]), rest[0], source, fields[2], frozenset(options))


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)


def _below(path: str, point: str) -> bool:
    return point in ("/", path) or path.startswith(point + "/")
