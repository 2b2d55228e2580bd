"""`Slots`: how busy the worker is, told after every change of who runs and waits, and once a second while it works.

`cells_used` counts decoded tokens; it changes with every step, which is not a change worth a frame by itself.
"""

from __future__ import annotations

import time

from edged.messages import Slots
from edged.worker.scheduler import Scheduler

INTERVAL_S = 1.0


class Meter:
    def __init__(self) -> None:
        self._said: tuple[int, ...] = ()
        self._said_at = 0.0
        self._since = time.monotonic()
        self._busy = 0
        self._active = False
        self._busy_seconds = 0.0
        self._active_seconds = 0.0

    def read(self, scheduler: Scheduler, preparing: int) -> Slots | None:
        """None: nothing new."""
        now = time.monotonic()
        busy, waiting, aside = scheduler.kv.busy, scheduler.waiting + preparing, scheduler.set_aside
        self._busy_seconds += self._busy * (now - self._since)
        self._active_seconds += (now - self._since) if self._active else 0.0
        self._since, self._busy, self._active = now, busy, scheduler.runnable
        state = (busy, waiting, aside, scheduler.set_aside_total)
        if state == self._said and not (self._active and now - self._said_at >= INTERVAL_S):
            return None
        self._said, self._said_at = state, now
        return Slots(
            busy=busy,
            waiting=waiting,
            set_aside=aside,
            cells_used=scheduler.kv.used,
            cells_total=scheduler.kv.total,
            set_aside_total=scheduler.set_aside_total,
            busy_seconds=self._busy_seconds,
            active_seconds=self._active_seconds,
        )
