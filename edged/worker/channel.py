"""The worker's end of the link: non-blocking both ways, one owner.

What the daemon has not read yet is kept here, up to BACKLOG; beyond that the worker waits until the daemon reads
(it cannot run ahead of what is listened to), and the daemon's death ends the wait.
"""

from __future__ import annotations

import select
import socket

from edged import link
from edged.messages import Down, Up

BACKLOG = 1 << 20
"""Bytes: some ten thousand step outputs."""

_READ = 1 << 16


class LinkClosed(Exception):  # noqa: N818 - the usual end, not an error
    """The daemon's end is gone, or speaks another language."""


class Channel:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._reader = link.DownReader()
        self._out = bytearray()

    def send(self, *messages: Up) -> None:
        """Raises LinkClosed."""
        if not messages:
            return
        self._out += link.encode(*messages)
        self._flush()
        while len(self._out) > BACKLOG:
            self._wait(read=False, also=None, timeout_ms=None)
            self._flush()

    def receive(self) -> list[Down]:
        """What has come. Raises LinkClosed."""
        messages: list[Down] = []
        while True:
            try:
                data = self._sock.recv(_READ)
            except BlockingIOError:
                return messages
            except OSError as error:
                raise LinkClosed(str(error)) from error
            if not data:
                raise LinkClosed("EOF")
            try:
                messages += self._reader.feed(data)
            except link.LinkError as error:
                raise LinkClosed(str(error)) from error
            if len(data) < _READ:
                return messages

    def wait(self, also: int | None, timeout_ms: int | None = None) -> bool:
        """Sleeps until something comes, or so long; sends meanwhile what is left. True: `also` is readable."""
        while True:
            ready = self._wait(read=True, also=also, timeout_ms=timeout_ms)
            if not ready:
                return False
            if self._out and ready.get(self._sock.fileno(), 0) & select.POLLOUT:
                self._flush()
                ready[self._sock.fileno()] &= ~select.POLLOUT
            if any(ready.values()):
                return also is not None and bool(ready.get(also))

    def close(self, timeout_ms: int = 1000) -> None:
        """Sends what is left, for a moment at most."""
        try:
            while self._out and self._wait(read=False, also=None, timeout_ms=timeout_ms):
                self._flush()
        except LinkClosed:
            pass
        self._sock.close()

    def _wait(self, *, read: bool, also: int | None, timeout_ms: int | None) -> dict[int, int]:
        poll = select.poll()
        poll.register(self._sock, (select.POLLIN if read else 0) | (select.POLLOUT if self._out else 0))
        if also is not None:
            poll.register(also, select.POLLIN)
        return dict(poll.poll(timeout_ms))

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._sock.send(self._out)
            except BlockingIOError:
                return
            except OSError as error:
                raise LinkClosed(str(error)) from error
            del self._out[:sent]
