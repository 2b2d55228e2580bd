"""How many bytes of replies may lie here for peers that do not read. Pure.

libzmq bounds messages (256 a connection) and not bytes, and a reply may have 1 MiB. So what is given to it is added
up for each connection; beyond CONNECTION, or IDENTITY for all connections of one caller, it is asked whether the
kernel's buffer has room. As long as libzmq holds something back it has none: then nothing more is sent, a stream is
`lagged`, a reply can be asked for again. If it has, what was given more than PASSED_S ago has been passed on (libzmq's
thread needs a moment for the rest).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CONNECTION: Final = 2 << 20
"""Two of the largest replies; with PASSED_S it bounds a reader to 2 GB a second."""
IDENTITY: Final = 8 << 20
PASSED_S: Final = 0.001
_REMEMBERED: Final = 1024
"""Connections; the longest unused is forgotten first."""


class Box:
    """`given` in all, of which `gone` was passed on. `before` was given more than PASSED_S ago, `marked` at `since`."""

    __slots__ = ("before", "fd", "given", "gone", "identity", "marked", "since")

    def __init__(self, identity: str, fd: int) -> None:
        self.identity, self.fd = identity, fd
        self.given = self.gone = self.before = self.marked = 0
        self.since = 0.0

    @property
    def bytes(self) -> int:
        return self.given - self.gone

    def mark(self, now: float) -> None:
        if now >= self.since + PASSED_S:
            self.before, self.marked, self.since = self.marked, self.given, now


class Outbox:
    """`keeps_up` asks the kernel about a descriptor."""

    def __init__(self, keeps_up: Callable[[int], bool]) -> None:
        self._keeps_up = keeps_up
        self._boxes: dict[bytes, Box] = {}
        self._of: dict[str, int] = {}

    def heard(self, connection: bytes, identity: str, fd: int | None) -> None:
        """A message came over it. Without a descriptor nothing is counted."""
        box = self._boxes.pop(connection, None)
        if box is None:
            if fd is None:
                return
            box = Box(identity, fd)
        self._boxes[connection] = box
        if len(self._boxes) > _REMEMBERED:
            self.forget(next(iter(self._boxes)))

    def takes(self, connection: bytes, size: int, now: float) -> bool:
        """Whether so much may be sent; it counts as sent then."""
        box = self._boxes.get(connection)
        if box is None:
            return True
        box.mark(now)
        if self._beyond(box, size):
            for one in self._boxes.values():
                if one.identity == box.identity and one.bytes:
                    self._look(one, now)
            if self._beyond(box, size):
                return False
        box.given += size
        self._of[box.identity] = self._of.get(box.identity, 0) + size
        return True

    def forget(self, connection: bytes) -> None:
        """It is gone."""
        box = self._boxes.pop(connection, None)
        if box is not None:
            self._less(box, box.bytes)

    def clear(self) -> None:
        self._boxes.clear()
        self._of.clear()

    def _beyond(self, box: Box, size: int) -> bool:
        """Where nothing lies one reply may always be sent, however large."""
        return box.bytes > 0 and (box.bytes + size > CONNECTION or self._of.get(box.identity, 0) + size > IDENTITY)

    def _look(self, box: Box, now: float) -> None:
        box.mark(now)
        if self._keeps_up(box.fd):
            passed = max(box.before, box.gone)
            self._less(box, passed - box.gone)
            box.gone = passed

    def _less(self, box: Box, size: int) -> None:
        left = self._of.get(box.identity, 0) - size
        if left > 0:
            self._of[box.identity] = left
        else:
            self._of.pop(box.identity, None)
