"""The thread that looks at the sensors, each `interval_s`. A file that never answers stops it and nothing else.

`take` gives what was seen since; `wake` is called from the thread when there is something. When the thread has not
answered for a while (it hangs in the kernel, and cannot be helped), `overdue` gives readings in which nothing is known.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from edged.watchdog.alarms import bounded
from edged.watchdog.memsensors import MemorySensors
from edged.watchdog.readings import Readings
from edged.watchdog.sensors import Sensors

OVERDUE_INTERVALS: Final = 5
OVERDUE_S: Final = 2.0
"""At least: a busy board may keep a thread waiting for a second."""

KEPT: Final = 64
"""Readings that wait for the loop; the oldest go first."""


class Sampler:
    def __init__(self, root: str, interval_s: float, wake: Callable[[], None], zones: list[str]) -> None:
        self._interval_s = interval_s
        self._wake = wake
        self._sensors = Sensors(root, zones)
        self._memory = MemorySensors(root)
        self._pid: int | None = None
        self._seen: deque[Readings] = deque(maxlen=KEPT)
        self._answered_at = time.monotonic()
        self._told_at = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)
        self._thread.start()

    def take(self) -> list[Readings]:
        """What was seen since the last time, oldest first."""
        out: list[Readings] = []
        while self._seen:
            out.append(self._seen.popleft())
        return out

    def follow(self, pid: int | None) -> None:
        """The worker at hand."""
        self._pid = pid

    def overdue(self, now: float) -> Readings | None:
        """Everything unknown, when the thread hangs; once per interval."""
        silent = now - self._answered_at
        if silent < max(OVERDUE_S, OVERDUE_INTERVALS * self._interval_s) or now < self._told_at + self._interval_s:
            return None
        self._told_at = now
        return Readings(at=now, alarms=["the sensors do not answer: a file of /proc or /sys hangs"])

    def next_wake(self) -> float:
        """When `overdue` is to be asked again (monotonic seconds)."""
        late = self._answered_at + max(OVERDUE_S, OVERDUE_INTERVALS * self._interval_s)
        return max(late, self._told_at + self._interval_s)

    def stop(self) -> None:
        """The thread leaves by itself; one that hangs is left behind and ends with the process."""
        self._stopping.set()
        self._thread.join(0.05)

    # ---- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            readings = self.look()
            self._answered_at = time.monotonic()
            self._seen.append(readings)
            if not self._stopping.is_set():
                self._wake()
            self._stopping.wait(max(0.0, began + self._interval_s - time.monotonic()))

    def look(self) -> Readings:
        """One look at everything."""
        missing: list[str] = []
        alarms: list[str] = []
        fields: dict[str, Any] = {}
        try:
            fields |= self._sensors.read(missing, alarms)
            fields |= self._memory.read(self._pid, missing, alarms)
        except Exception as error:  # noqa: BLE001 - a sensor that we did not foresee must not end the watching
            alarms.append(f"the sensors cannot be read: {type(error).__name__}")
        return Readings(at=time.monotonic(), missing=missing, alarms=bounded(alarms), **fields)
