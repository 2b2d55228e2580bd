"""Makes a failing input small: pieces are left out while the failure stays of the same kind."""

from __future__ import annotations

import time

from .target import FailureError, Target, attempt, measured


def fails(target: Target, data: bytes, kind: str) -> bool:
    try:
        (measured if kind == "too much memory" else attempt)(target, data)
    except FailureError as failure:
        return failure.kind == kind
    return False


def shrink(target: Target, data: bytes, kind: str, seconds: float = 20.0) -> bytes:
    """`data` itself when it does not fail again."""
    end = time.monotonic() + seconds
    if not fails(target, data, kind):
        return data
    size = max(1, len(data) // 2)
    while size and time.monotonic() < end:
        at, smaller = 0, False
        while at < len(data) and time.monotonic() < end:
            shorter = data[:at] + data[at + size :]
            if fails(target, shorter, kind):
                data, smaller = shorter, True
            else:
                at += size
        if not smaller or size > len(data):
            size = min(size, len(data)) // 2
    return _plain(target, data, kind, end)


def _plain(target: Target, data: bytes, kind: str, end: float) -> bytes:
    """Bytes that do not matter become `0`."""
    for at in range(len(data)):
        if time.monotonic() > end:
            break
        plainer = data[:at] + b"0" + data[at + 1 :]
        if data[at : at + 1] != b"0" and fails(target, plainer, kind):
            data = plainer
    return data
