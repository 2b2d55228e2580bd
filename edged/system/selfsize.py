"""What this process takes, by a file of /proc that is kept open: 20 µs a look, also when no descriptor is free."""

from __future__ import annotations

import os
import re
from typing import Final

_WANTED: Final = re.compile(rb"^(?:RssAnon|VmSwap):\s+(\d+) kB", re.MULTILINE)


class SelfSize:
    """RssAnon + VmSwap in bytes: what the kernel cannot drop, also where it was swapped out as fast as it came."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> int:
        """0: not to be had."""
        try:
            return sum(int(kb) for kb in _WANTED.findall(os.pread(self._fd, 8192, 0))) * 1024
        except OSError:
            return 0

    def close(self) -> None:
        os.close(self._fd)
