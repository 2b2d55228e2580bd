"""How much memory there is, and how much may still be taken. The root of /proc and /sys is a parameter.

MemAvailable, not MemFree: page cache that can be given back counts as available. A control group's limit (v1 or v2)
counts where it is tighter, less what the group holds without its own page cache. Reads may hang: not for a loop.
"""

from __future__ import annotations

import os
from typing import Final

from edged.system import smallfile

NO_LIMIT: Final = 1 << 60
"""Bytes: above it a v1 group's limit means none (the kernel says 2⁶³ less a page)."""

V2: Final = ("memory.current", "memory.max", "")
V1: Final = ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_")


def available_bytes(root: str = "/") -> int | None:
    """None when the kernel does not say."""
    meminfo = smallfile.pairs(os.path.join(root, "proc/meminfo"))
    rooms = [meminfo["MemAvailable:"] * 1024] if "MemAvailable:" in meminfo else []
    rooms += [most - current for current, most in groups(root) if most is not None]
    return max(0, min(rooms)) if rooms else None


def total_bytes(root: str = "/") -> int | None:
    """What there is at most: the board's memory, or a tighter limit of the control group. None: unknown."""
    meminfo = smallfile.pairs(os.path.join(root, "proc/meminfo"))
    totals = [meminfo["MemTotal:"] * 1024] if "MemTotal:" in meminfo else []
    totals += [most for _, most in groups(root) if most is not None]
    return min(totals) if totals else None


def groups(root: str) -> list[tuple[int, int | None]]:
    """(bytes held without page cache, limit) of our control group and of each above it, from the inmost outward."""
    controllers = (smallfile.text(os.path.join(root, "sys/fs/cgroup/cgroup.controllers")) or "").split()
    for line in (smallfile.text(os.path.join(root, "proc/self/cgroup")) or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if not names and "memory" in controllers:
            return _up(os.path.join(root, "sys/fs/cgroup"), group, V2)
        if "memory" in names.split(","):
            return _up(os.path.join(root, "sys/fs/cgroup/memory"), group, V1)
    return []


def _up(mount: str, group: str, names: tuple[str, str, str]) -> list[tuple[int, int | None]]:
    """Every level from the group up to the mount; a namespace may hide the upper ones."""
    parts = [part for part in group.split("/") if part and part != ".."]
    out: list[tuple[int, int | None]] = []
    for depth in range(len(parts), -1, -1):
        level = os.path.join(mount, *parts[:depth])
        current = smallfile.number(os.path.join(level, names[0]))
        if current is None:
            continue
        stat = smallfile.pairs(os.path.join(level, "memory.stat"))
        cache = sum(stat.get(f"{names[2]}{kind}_file", 0) for kind in ("active", "inactive"))
        most = smallfile.number(os.path.join(level, names[1]))
        out.append((max(0, current - cache), most if most is not None and most < NO_LIMIT else None))
    return out
