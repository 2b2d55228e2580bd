"""Who is inside, connection by connection, as far as they have said anything; so that one alone can be cut.

libzmq names the descriptor of each frame's connection, and descriptors are used again: its inode, looked at when a
connection is heard first, is not. A frame that lay here while its connection went can thus only fail to name one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

from edged.system.links import Link

REMEMBERED: Final = 1024
"""Connections, before those are forgotten that are gone."""


class Guest(Struct, frozen=True):
    """`key`: its public key, where it has one."""

    identity: str
    key: str | None
    address: str
    place: tuple[int, int]
    """Descriptor and inode."""


class Guests:
    """By `X-Conn`, which no two connections share."""

    def __init__(self) -> None:
        self._of: dict[str, Guest] = {}
        self._most = REMEMBERED

    def __contains__(self, connection: str) -> bool:
        return connection in self._of

    def came(self, connection: str, identity: str, key: str | None, address: str, fd: int | None) -> Guest:
        guest = self._of[connection] = Guest(identity, key, address, _place(fd))
        return guest

    @property
    def crowded(self) -> bool:
        return len(self._of) > self._most

    def clear_up(self, links: Iterable[Link]) -> None:
        """Forgets who is gone."""
        alive = set(self.living(self._of, links))
        self._of = {connection: guest for connection, guest in self._of.items() if connection in alive}
        self._most = max(REMEMBERED, 2 * len(self._of))

    def living(self, connections: Collection[str], links: Iterable[Link]) -> list[str]:
        there = {(link.fd, link.inode) for link in links}
        return [one for one in connections if one in self._of and self._of[one].place in there]

    def these(self, connections: Iterable[str]) -> list[Guest]:
        return [self._of[one] for one in connections if one in self._of]

    def all(self) -> list[Guest]:
        return list(self._of.values())


def _place(fd: int | None) -> tuple[int, int]:
    try:
        return (-1, 0) if fd is None else (fd, os.fstat(fd).st_ino)
    except OSError:  # it is gone already
        return -1, 0
