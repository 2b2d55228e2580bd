"""What this process takes, by files of /proc that are kept open, so that it can be read when no descriptor is free."""

from __future__ import annotations

import os
import re
from typing import Final

_SWAP: Final = re.compile(rb"^VmSwap:\s+(\d+) kB", re.MULTILINE)
SWAP_EVERY: Final = 10
"""Readings. /proc/self/status costs the kernel 60 µs, statm 3; what is swapped out was in memory a moment before."""


class SelfSize:
    """Anonymous memory and swap in bytes: what the kernel cannot drop, also where it was swapped out as it came."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGESIZE")
        self._swap = self._count = 0

    def read(self) -> int:
        """0: not to be had."""
        try:
            _, resident, shared, *_ = os.pread(self._statm, 200, 0).split()
            if self._count % SWAP_EVERY == 0:
                self._swap = sum(int(kb) for kb in _SWAP.findall(os.pread(self._status, 8192, 0))) * 1024
            self._count += 1
        except (OSError, ValueError):
            return 0
        return (int(resident) - int(shared)) * self._page + self._swap

    def close(self) -> None:
        os.close(self._statm)
        os.close(self._status)
