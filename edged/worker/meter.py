"""`Slots`: how busy the worker is, told after every change of who runs and waits, and once a second while it works.

`Beat` is for whoever watches that the worker does not hang.

`cells_used` counts decoded tokens; it changes with every step, which is not a change worth a frame by itself.
"""

from __future__ import annotations

import time

from edged.messages import Beat, CacheFacts, Slots
from edged.worker.archive import Archive, Totals
from edged.worker.scheduler import Scheduler

INTERVAL_S = 1.0
BEAT_S = 0.5


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
            cells_used=scheduler.kv.held,
            cells_total=scheduler.kv.total,
            set_aside_total=scheduler.set_aside_total,
            busy_seconds=self._busy_seconds,
            active_seconds=self._active_seconds,
        )


class Pulse:
    """`Beat`: that there is progress, while there is."""

    def __init__(self) -> None:
        self._said = 0
        self._said_at = float("-inf")

    def read(self, tokens: int) -> Beat | None:
        """`tokens` of every kind since the start. None: none are new, or it was told just now."""
        if tokens == self._said:
            return None
        now = time.monotonic()
        if now - self._said_at < BEAT_S:
            return None
        self._said, self._said_at = tokens, now
        return Beat(tokens)


class CacheMeter:
    """`CacheFacts`, after a change, at most once a second while there is work."""

    def __init__(self) -> None:
        self._said: CacheFacts | None = None
        self._said_at = float("-inf")

    def read(self, scheduler: Scheduler, archive: Archive | None) -> CacheFacts | None:
        """None: nothing new, or told less than a second ago (when idle it is told at once)."""
        now = time.monotonic()
        if scheduler.runnable and now - self._said_at < INTERVAL_S:
            return None
        totals = archive.totals if archive is not None else Totals()
        idle = scheduler.kv.idle()
        facts = CacheFacts(
            idle_sequences=len(idle),
            idle_cells=scheduler.kv.occupied - scheduler.kv.held,
            hits=scheduler.hits,
            misses=scheduler.misses,
            reused_tokens=scheduler.reused_tokens,
            evicted=scheduler.residency.evicted,
            ram_files=totals.ram_files,
            ram_bytes=totals.ram_bytes,
            disk_files=totals.disk_files,
            disk_bytes=totals.disk_bytes,
            restored=totals.restored,
            written_bytes=totals.written_bytes,
            set_aside_files=totals.set_aside_files,
        )
        if facts == self._said:
            return None
        self._said, self._said_at = facts, now
        return facts
