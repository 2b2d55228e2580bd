"""The last hour: one look a second, what `sys/` told, and the answer to `history` (protocol 7).

The daemon's loop calls. Looks come at full seconds since the boot, by the clock that goes on while the box is
suspended; what is told is in Unix time, by the wall clock of the moment: rows from before it was set are right too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from edged import messages as m
from edged.broker.broker import Broker
from edged.observe.history import Events, History, Look
from edged.watchside import WatchSide
from edged.workerside import WorkerSide

MB: Final = 1 << 20


class HistorySide:
    def __init__(self, broker: Broker, worker: WorkerSide, watch: WatchSide) -> None:
        self._broker = broker
        self._worker = worker
        self._watch = watch
        self._history = History()
        self._events = Events()
        self._due = time.monotonic()

    def next_wake(self) -> float:
        return self._due

    def tick(self, now: float) -> None:
        if now >= self._due:
            at = _boot()
            self._history.look(self._look(), at, now)
            self._due = now + 1 - at % 1

    def note(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """An event of `sys/`, as it is to be told."""
        return self._events.note(fields, _boot())

    def told(self, request: m.HistoryRequest, now: float) -> dict[str, Any]:
        self.tick(now)
        at = _boot()
        zero = time.time() - at
        fields = self._history.told(request.seconds, at)
        fields["end_time"] = round(zero + fields.pop("end"), 3)
        events = self._events.newest(request.events)
        return fields | {"events": [event | {"time": round(zero + then, 3)} for then, event in events]}

    def _look(self) -> Look:
        level, readings, duty = self._watch.seen
        counters = self._broker.lives.pace.counters
        return Look(
            level=level,
            temperature_c=readings.temperature_c,
            available_mb=_part(readings.memory_available, MB),
            worker_mb=_part(readings.worker_anon, MB),
            queue=len(self._broker.lives.queue),
            busy=self._worker.busy,
            frequency_mhz=_part(readings.frequency_khz, 1000),
            duty=duty,
            tokens=counters["tokens"],
            prefill=counters["prefill_tokens"],
            ok=_all(counters, "finished_"),
            errors=_all(counters, "failed_"),
            refused=_all(counters, "refused_"),
        )


def _all(counters: Mapping[str, int], kind: str) -> int:
    return sum(count for name, count in counters.items() if name.startswith(kind))


def _part(value: float | None, unit: int) -> float | None:
    return None if value is None else value / unit


def _boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
