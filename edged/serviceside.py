"""What systemd is told: ready, alive, reloading, stopping, and how it goes in words (sd_notify(3); ADR 19).

* READY when the sockets answer, in state `loading`: a model on a slow card would run into the start's time limit.
* WATCHDOG from here only, at the end of a turn of the loop that was whole, and only while the worker is well or is
  being dealt with (`edged.watchdog.care`). A loop that hangs does not get here; a turn with a bug in it neither.
* STATUS when state or level change, and every STATUS_S when the figures did; never twice within STATUS_LEAST_S.
* READY that could not be told (PID 1 is busy) is told in the next turn that can.

The daemon's loop calls; nothing here blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from edged.broker.gate import Gate
from edged.config import Config
from edged.observe.log import Log
from edged.observe.sentence import sentence
from edged.system.notify import Notifier
from edged.watchdog.care import Care
from edged.watchdog.supervisor import Supervisor

STATUS_S: Final = 5.0
STATUS_LEAST_S: Final = 1.0
STOP_MARGIN_S: Final = 10.0
"""Beside draining and snapshots: a worker that has to be killed, and the disk's journal."""


class ServiceSide:
    """`told` is the reply to `status`."""

    def __init__(
        self,
        notifier: Notifier,
        supervisor: Supervisor,
        gate: Gate,
        *,
        told: Callable[[float], Mapping[str, Any]],
        log: Log,
    ) -> None:
        self._notifier = notifier
        self._supervisor = supervisor
        self._gate = gate
        self._told = told
        self._log = log
        self._care = Care()
        self._ready = False
        self._ping_at = 0.0
        self._status_at = 0.0
        self._seen: tuple[str, int] | None = None
        self._said = ""
        self._withheld = ""
        self._stopping = False  # what was said then is said last

    def tick(self, now: float) -> None:
        """At the end of each turn."""
        if not self._notifier.on:
            return
        if not self._ready:
            self._ready = self._notifier.tell(READY=1)
        self._ping(now)
        if self._stopping:
            return
        seen = (self._gate.state, int(self._gate.level))
        if seen != self._seen:
            self._status_at = min(self._status_at, now if self._seen is None else now + STATUS_LEAST_S)
            self._seen = seen
        if now >= self._status_at:
            self._status_at = now + STATUS_S
            self._say(sentence(self._told(now)))

    def next_wake(self) -> float:
        if not self._notifier.on:
            return float("inf")
        ping = float("inf") if self._notifier.every_s is None else self._ping_at
        return ping if self._stopping else min(self._status_at, ping)

    def _ping(self, now: float) -> None:
        if self._notifier.every_s is None or now < self._ping_at:
            return
        self._ping_at = now + self._notifier.every_s
        killed = [one.process.generation for one in self._supervisor.crew.everyone() if one.killed]
        why = self._care.look(now, due=self._supervisor.next_wake(), killed=killed)
        if not why:
            self._notifier.tell(WATCHDOG=1)
        elif why != self._withheld:
            self._log.error("watchdog_withheld", why=why)
        self._withheld = why

    def _say(self, text: str) -> None:
        if text != self._said and self._notifier.tell(STATUS=text):
            self._said = text

    # ---- reloading, stopping ---------------------------------------------------------------------------------

    def reloading(self) -> None:
        """Before the configuration is read again; READY follows in the same turn."""
        self._notifier.tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        self._ready = False

    def stopping(self, config: Config, accepted: int) -> None:
        """systemd's time for the stop is made long enough for draining, whatever the unit says."""
        within_s = config.limits.drain_s + config.cache.save_s + STOP_MARGIN_S
        text = f"stopping, {accepted} requests have up to {config.limits.drain_s:g} s to end"
        self._notifier.tell(STOPPING=1, EXTEND_TIMEOUT_USEC=round(within_s * 1e6), STATUS=text)
        self._stopping = True
