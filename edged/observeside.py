"""What people and machines see of the service: `status`, `sys/` events, and the books checked when it is idle.

The daemon's loop calls.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from edged.broker.broker import Broker
from edged.config import Config
from edged.guardside import GuardSide
from edged.journalside import JournalSide
from edged.metricsside import MetricsSide
from edged.observe import status
from edged.observe.log import Log
from edged.observe.metrics import Snapshot, buckets
from edged.operatorside import OperatorSide
from edged.system.trim import Trimmer
from edged.transcriptside import TranscriptSide
from edged.wire.endpoints import Endpoints
from edged.workerside import WorkerSide

TRIMS: Final = 4


class ObserveSide:
    """`publish` sends a `sys/` event (name, fields), `wake` has the loop turn."""

    def __init__(
        self,
        config: Config,
        broker: Broker,
        endpoints: Endpoints,
        *,
        worker: WorkerSide,
        transcripts: TranscriptSide,
        journal: JournalSide,
        guard: GuardSide,
        operators: OperatorSide,
        publish: Callable[[str, dict[str, Any]], None],
        wake: Callable[[], None],
        log: Log,
        counters: Counter[str],
    ) -> None:
        self._config = config
        self._broker = broker
        self._endpoints = endpoints
        self._worker = worker
        self._transcripts = transcripts
        self._journal = journal
        self._guard = guard
        self._operators = operators
        self._publish = publish
        self._counters = counters
        self._next_health = time.monotonic()
        self._trimmer = Trimmer()
        self._trim_mark, self._trims_due = (0, 0), 0
        self._metrics = MetricsSide(config, snapshot=self._snapshot, wake=wake, log=log)

    def reconfigure(self, config: Config) -> None:
        self._config = config
        self._next_health = time.monotonic()
        self._metrics.reconfigure(config.metrics)

    def stop(self) -> None:
        self._metrics.stop()

    def next_wake(self) -> float:
        return self._next_health

    def tick(self, now: float) -> None:
        self._metrics.tick(now)
        if now >= self._next_health:
            self._next_health = now + self._config.health_interval_s
            self._publish("health", status.health_fields(self._broker.lives, self._facts(now), time.time()))
            self._rest()

    def told(self, now: float) -> dict[str, Any]:
        """The reply to `status`."""
        return status.status_fields(self._broker.lives, self._config, self._facts(now))

    def _snapshot(self, now: float) -> Snapshot:
        pace = self._broker.lives.pace
        return Snapshot(self.told(now), buckets(pace.first_token), buckets(pace.interval))

    def _facts(self, now: float) -> status.Facts:
        warnings = [*self._endpoints.warnings, *self._transcripts.warnings(), *self._journal.warnings()]
        warnings += [*self._metrics.warnings(), *self._guard.warnings(), *self._operators.warnings()]
        facts = self._worker.facts(now, warnings)
        return msgspec.structs.replace(
            facts,
            counters={**facts.counters, **self._endpoints.door.counters},
            sessions=self._transcripts.fields(),
            journal=self._journal.fields(),
            connections=self._endpoints.door.counts(now),
            memory=self._guard.fields(),
        )

    def _rest(self) -> None:
        """Nothing accepted, nothing kept, but there was: memory goes back to the kernel, the books are checked.

        Some times over, since libzmq frees what it held a little later; idle or not after a flood of subscriptions, or
        when a large journal was begun afresh.
        """
        lives, counters = self._broker.lives, self._broker.lives.pace.counters
        served = self._trim_mark[0]
        if not len(lives.table) and not len(lives.results):
            served = counters["accepted"] + counters["recovered"]
        large = self._counters["tainted"] + self._journal.large
        if (served, large) != self._trim_mark:
            self._trim_mark, self._trims_due = (served, large), TRIMS
        if self._trims_due:
            self._trims_due -= 1
            self._trimmer.trim()
            lives.check()
