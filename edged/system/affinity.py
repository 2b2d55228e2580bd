"""Keeps the daemon's threads off the cores that compute, where one can be spared (design 3).

The worker inherits the affinity of the thread that starts it, so it is started with the whole set. Failing to move is
harmless: the kernel goes on placing the threads as it likes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator


class Affinity:
    """`allowed` is what this process was given at its start."""

    def __init__(self) -> None:
        self.allowed = os.sched_getaffinity(0)
        self._own = self.allowed

    def keep_off(self, cores: Iterable[int]) -> None:
        """Moves every thread of this process to the other cores; when there are none, to all."""
        self._own = self.allowed - set(cores) or self.allowed
        for tid in os.listdir("/proc/self/task"):
            _set(int(tid), self._own)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """For starting a process: the calling thread has the whole set meanwhile."""
        _set(0, self.allowed)
        try:
            yield
        finally:
            _set(0, self._own)


def _set(tid: int, cores: set[int]) -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(tid, cores)
