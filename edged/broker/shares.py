"""How many subscriptions a connection, and all together, may hold. Pure.

libzmq keeps every subscription of a manual XPUB, approved or refused, until its connection goes. So each is counted,
by its length: a topic of ours has 37 bytes, and one of up to UNIT bytes counts one. Duplicates count again, since who
cancelled what is not always told; a connection that goes gives back what its cancels name.
"""

from __future__ import annotations

from typing import Final

UNIT: Final = 64
PER_CONNECTION: Final = 4096
"""A display that subscribes to one stream after the other and never cancels: hours of use, a megabyte."""
IN_ALL: Final = 32_768
"""Some 8 MB in libzmq (100,000 were measured at 173 MB before memory was given back, x86-64)."""
_REMEMBERED: Final = 4096
"""Connections whose counts are known; beyond it the longest known is forgotten."""


class Shares:
    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self.total = 0

    def taken(self, connection: str | None, topic: bytes) -> bool:
        """Counts a subscription; False: that was one too many."""
        cost = 1 + len(topic) // UNIT
        key = connection or ""
        self._of[key] = self._of.get(key, 0) + cost
        self.total += cost
        if len(self._of) > _REMEMBERED:
            del self._of[next(iter(self._of))]
        return self._of.get(key, cost) <= PER_CONNECTION and self.total <= IN_ALL

    def given_back(self, connection: str | None, topic: bytes) -> None:
        cost = 1 + len(topic) // UNIT
        self.total = max(0, self.total - cost)
        if connection in self._of:
            self._of[connection] = max(0, self._of[connection] - cost)

    def clear(self) -> None:
        self._of.clear()
        self.total = 0
