"""What wakes the loop from outside its sockets: signals, and other threads with something in a queue."""

from __future__ import annotations

import contextlib
import signal
import socket
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Wakes:
    """From when it is made signals are caught: make it before anything listens, for whoever sees a socket may send one.

    A later one takes the signals over.
    """

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._waker, self._wakes = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for end in (self._waker, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda n, _: self._signals.append(n))

    def fileno(self) -> int:
        """Readable when there is something."""
        return self._wakes.fileno()

    def wake(self) -> None:
        """For other threads."""
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def signals(self) -> list[int]:
        """Those that came since the last call."""
        with contextlib.suppress(BlockingIOError):
            while self._wakes.recv(4096):
                pass
        taken, self._signals[:] = list(self._signals), []
        return taken
