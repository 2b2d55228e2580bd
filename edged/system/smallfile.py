"""Files of /proc and /sys, read up to a bound. They may be absent, talk nonsense or never answer (FIFOs do not)."""

from __future__ import annotations

import os
from typing import Final

LIMIT: Final = 65536
"""Bytes. The longest that is wanted, /proc/meminfo and memory.stat, have some 2 kB."""


def read(path: str, limit: int = LIMIT, errors: str = "replace") -> str:
    """At most `limit` bytes, as text. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        left = limit
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", errors)


def text(path: str) -> str | None:
    """Stripped; None when it cannot be read."""
    try:
        return read(path).strip()
    except OSError:
        return None


def number(path: str) -> int | None:
    """A natural number; None when there is none."""
    found = text(path)
    return int(found) if found and len(found) < 20 and found.isascii() and found.isdigit() else None


def pairs(path: str) -> dict[str, int]:
    """Lines "name number …", as in /proc/meminfo, /proc/PID/status and memory.stat. {} when it cannot be read."""
    rows = (line.split() for line in (text(path) or "").splitlines())
    return {
        row[0]: int(row[1])
        for row in rows
        if len(row) > 1 and len(row[1]) < 20 and row[1].isascii() and row[1].isdigit()
    }
