"""Is the worker well, or being dealt with? That is what `WATCHDOG=1` says of it. Pure: the clock is an argument.

A worker may load, hang, die, be replaced, be unloaded, or not be had at all: each of these has a rule in the supervisor
with a time to act at, and while the rules act the daemon is well. systemd is to step in when they do not:

* a time to act at lies OVERDUE_S back and nothing was done (a bug in the rules);
* a worker was killed and is not gone after KILLED_S (it sits in the kernel, waiting for a card that hangs: a fresh
  daemon starts another beside it, and the journal brings the requests).

KILLED_S: giving back some GB that were swapped out takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OVERDUE_S: Final = 10.0
KILLED_S: Final = 20.0


class Care:
    """Looked at by the loop, at the end of a turn that was whole."""

    def __init__(self) -> None:
        self._killed: dict[int, float] = {}  # generation → since when

    def look(self, now: float, *, due: float, killed: Iterable[int]) -> str:
        """Why it is not dealt with, or "". `due`: the supervisor's next time to act; `killed`: generations that were
        killed and are still there."""
        self._killed = {one: self._killed.get(one, now) for one in killed}
        if any(now - since > KILLED_S for since in self._killed.values()):
            return f"a worker was killed {KILLED_S:.0f} s ago and is not gone"
        if now - due > OVERDUE_S:
            return f"what was due {OVERDUE_S:.0f} s ago for the worker was not done"
        return ""
