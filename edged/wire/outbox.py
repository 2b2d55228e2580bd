"""How many bytes of replies may lie here for peers that do not read. Pure.

libzmq bounds messages (256 a connection) and not bytes, and a reply may have 1 MiB. So what is given to it is added
up for each connection until the kernel says that the peer keeps up; beyond CONNECTION, or IDENTITY for all
connections of one caller, nothing more is sent: a stream is `lagged`, a reply can be asked for again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CONNECTION: Final = 2 << 20
"""Two of the largest replies."""
IDENTITY: Final = 8 << 20
_REMEMBERED: Final = 1024
"""Connections; the longest unused is forgotten first."""


class Box:
    __slots__ = ("bytes", "fd", "identity")

    def __init__(self, identity: str, fd: int) -> None:
        self.identity, self.fd, self.bytes = identity, fd, 0


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
            self._settle(self._boxes.pop(next(iter(self._boxes))))

    def takes(self, connection: bytes, size: int) -> bool:
        """Whether so much may be sent; it counts as sent then."""
        box = self._boxes.get(connection)
        if box is None:
            return True
        if self._beyond(box, size):
            for one in self._boxes.values():
                if one.identity == box.identity and one.bytes and self._keeps_up(one.fd):
                    self._settle(one)
            if self._beyond(box, size):
                return False
        box.bytes += size
        self._of[box.identity] = self._of.get(box.identity, 0) + size
        return True

    def forget(self, connection: bytes) -> None:
        """It is gone."""
        box = self._boxes.pop(connection, None)
        if box is not None:
            self._settle(box)

    def clear(self) -> None:
        self._boxes.clear()
        self._of.clear()

    def _beyond(self, box: Box, size: int) -> bool:
        """Where nothing lies for this connection, a reply however large is sent as long as the caller has room left:
        another program of the same user that does not read must not keep it from one that does.
        """
        all_of_it = self._of.get(box.identity, 0)
        if not box.bytes:
            return all_of_it >= IDENTITY
        return box.bytes > CONNECTION - size or all_of_it > IDENTITY - size

    def _settle(self, box: Box) -> None:
        left = self._of.get(box.identity, 0) - box.bytes
        if left > 0:
            self._of[box.identity] = left
        else:
            self._of.pop(box.identity, None)
        box.bytes = 0
