"""How much memory may still be taken. The root of /proc and /sys is a parameter.

MemAvailable, not MemFree: page cache that can be given back counts as available. A control group's limit (v2) counts
if it is tighter: limit − current + its own page cache.
"""

from __future__ import annotations

import os


def available_bytes(root: str = "/") -> int | None:
    """None when the kernel does not say."""
    meminfo = _pairs(os.path.join(root, "proc/meminfo"))
    rooms = [meminfo["MemAvailable:"] * 1024] if "MemAvailable:" in meminfo else []
    group = _group(root)
    while group is not None:
        level = os.path.join(root, "sys/fs/cgroup", group)
        limit, current = _number(os.path.join(level, "memory.max")), _number(os.path.join(level, "memory.current"))
        if limit is not None and current is not None:
            stat = _pairs(os.path.join(level, "memory.stat"))
            rooms.append(limit - current + stat.get("inactive_file", 0) + stat.get("active_file", 0))
        group = os.path.dirname(group) if group else None
    return max(0, min(rooms)) if rooms else None


def total_bytes(root: str = "/") -> int | None:
    """What there is at most: the board's memory, or a tighter limit of the control group. None: unknown."""
    meminfo = _pairs(os.path.join(root, "proc/meminfo"))
    totals = [meminfo["MemTotal:"] * 1024] if "MemTotal:" in meminfo else []
    group = _group(root)
    while group is not None:
        limit = _number(os.path.join(root, "sys/fs/cgroup", group, "memory.max"))
        if limit is not None:
            totals.append(limit)
        group = os.path.dirname(group) if group else None
    return min(totals) if totals else None


def _group(root: str) -> str | None:
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        if line.startswith("0::"):
            return line[3:].strip("/").replace("..", "")
    return None


def _pairs(path: str) -> dict[str, int]:
    """Lines "name number …" of /proc/meminfo and memory.stat."""
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _number(path: str) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
