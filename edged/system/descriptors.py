"""File descriptors: how many there are, and how many connections that allows. Pure but for `raise_limit`.

libzmq 4.3.5 ends the process when accept() on a Unix socket finds none left (`edged.system.turnstile` sees to it that
it always finds one). The soft limit is raised to what the hard one allows; where that is still too little, fewer
connections are let in, and `status` says so.
"""

from __future__ import annotations

import resource
from typing import Final

from msgspec import Struct

WANTED: Final = 65_536
LATER: Final = 12
"""What the daemon opens for itself after its sockets, and keeps: journal, transcripts, a worker or two."""
OWN: Final = 48
OWN_NARROW: Final = 12
"""Always free for what it opens for a moment: a worker's start takes 8, the rest is files of /proc."""
OPERATORS: Final = 16
OPERATORS_NARROW: Final = 4
"""For `control`, beyond what the others may take."""
NARROW: Final = 256
"""Below so many descriptors the shares are the narrow ones."""


HANDSHAKES: Final = 32
"""Unfinished ones of one user or address: one takes a millisecond, a crowd that comes back at once half a second."""


class Budget(Struct, frozen=True):
    """`own` and `operators` stay free for the daemon and for `control`; `connections` may be admitted, and as many of
    one peer be in a handshake as `handshakes` says."""

    limit: int
    own: int
    operators: int
    connections: int
    handshakes: int


def budget(limit: int, open_now: int, wanted: int) -> Budget:
    """`open_now`: with the sockets made; `wanted`: limits.connections. A quarter of the rest is for handshakes."""
    narrow = limit < NARROW
    own, operators = (OWN_NARROW, OPERATORS_NARROW) if narrow else (OWN, OPERATORS)
    left = limit - open_now - LATER - own - operators
    connections = max(1, min(wanted, left * 3 // 4))
    return Budget(limit, own, operators, connections, max(2, min(HANDSHAKES, (left - connections) // 2)))


def doubt(budget: Budget, wanted: int) -> str | None:
    """In words, for `status`."""
    if budget.connections >= wanted:
        return None
    return (
        f"only {budget.limit} file descriptors are allowed (LimitNOFILE=): {budget.connections} connections instead of "
        f"limits.connections ({wanted})"
    )


def raise_limit() -> int:
    """RLIMIT_NOFILE, raised to what the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        return highest
    return WANTED if soft == resource.RLIM_INFINITY else soft
