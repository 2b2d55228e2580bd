"""What the worker says and suffers, brought to the broker; what the broker has for it, brought to the worker.

The daemon's loop calls; nothing here blocks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from edged import messages as m
from edged.broker.broker import Broker, Output
from edged.broker.instructions import Instruction
from edged.observe import status
from edged.observe.log import Log
from edged.watchdog.supervisor import GaveUp, Happening, Lost, Step, Supervisor

UNREAD_BYTES: Final = 1 << 20
"""Written for the worker and not read by it: beyond this it gets no more prompts (one has up to 256 KiB)."""


class WorkerSide:
    """`do` carries out instructions, `publish` sends a `sys/` event (name, fields)."""

    def __init__(
        self,
        supervisor: Supervisor,
        broker: Broker,
        *,
        do: Callable[[Iterable[Instruction], float], None],
        publish: Callable[[str, dict[str, Any]], None],
        log: Log,
        counters: Counter[str],
    ) -> None:
        self._supervisor = supervisor
        self._broker = broker
        self._do = do
        self._publish = publish
        self._log = log
        self._counters = counters
        self._slots: m.Slots | None = None
        self._cache: m.CacheFacts | None = None
        self._saved = False
        self._started = time.monotonic()

    def read(self, ready: set[Any], now: float) -> None:
        """`ready`: the descriptors and sockets that have something."""
        worker = self._supervisor.worker
        if worker is None:
            return
        if worker.pidfd in ready:
            self._happened(self._supervisor.exited(now), now)
        elif worker.link.fileno() in ready:
            worker.flush()
            self._happened(self._supervisor.readable(now), now)
        self._unclog(now)

    def tick(self, now: float) -> None:
        self._happened(self._supervisor.findings(now), now)
        self._supervisor.tick(now)
        if self._supervisor.step is Step.LOADING:
            self._broker.trying_again()
        self._save_when_drained()

    def _save_when_drained(self) -> None:
        """Once for each drain: the box may be about to be switched off."""
        drained = self._broker.gate.drained and not len(self._broker.lives.table)
        if drained and not self._saved:
            self.tell(m.Save(self._supervisor.config.cache.save_s))
        self._saved = drained

    def tell(self, message: m.Down) -> None:
        worker = self._supervisor.worker
        if worker is not None:
            worker.send(message)
            self._broker.gate.clogged = worker.unread > UNREAD_BYTES

    def _unclog(self, now: float) -> None:
        """While the worker does not read what it was given, it is given no more."""
        worker = self._supervisor.worker
        clogged = worker is not None and worker.unread > UNREAD_BYTES
        if self._broker.gate.clogged and not clogged:
            self._broker.gate.clogged = False
            self._do(self._broker.dispatch(), now)
        else:
            self._broker.gate.clogged = clogged

    def _happened(self, happenings: Iterable[Happening], now: float) -> None:
        for happening in happenings:
            match happening:
                case m.Prompted() | m.Prefilled() | m.Sampled() | m.Done() | m.Refused():
                    self._heard(happening, now)
                case m.Tokenized() | m.Embedded() | m.Warmed():
                    self._heard(happening, now)
                case m.Slots():
                    self._slots = happening
                case m.CacheFacts():
                    self._cache = happening
                case m.Saved(files=files, bytes=size, left=left):
                    self._log.info("saved", files=files, bytes=size, left=left)
                case m.Loading(fraction=fraction):
                    self._broker.gate.loaded = fraction
                case m.Ready():
                    self._ready(happening, now)
                case m.LoadFailed():
                    self._log.error("load_failed", kind=happening.kind, error=happening.message)
                case Lost():
                    self._lost(happening, now)
                case GaveUp():
                    self._gave_up(happening, now)

    def _heard(self, output: Output, now: float) -> None:
        try:
            self._do(self._broker.heard(output, now), now)
        except Exception as error:  # noqa: BLE001 - a bug in one request's books is that request's end, not the loop's
            self._counters["bugs"] += 1
            self._log.error("bug", kind=type(error).__name__, where=place(error), rid=output.rid)
            self._do(self._broker.broken(output.rid, now), now)

    def _ready(self, ready: m.Ready, now: float) -> None:
        self._slots = self._cache = None
        model = status.model_name((self._supervisor.running or self._supervisor.config).model_path)
        cores = ",".join(str(pin.core) for pin in ready.threads)
        self._log.info("model_ready", model=model, load_ms=round(ready.load_ms), cores=cores)
        for warning in ready.warnings:
            self._log.warning("model_warning", text=warning)
        self._do(self._broker.worker_ready(model, ready.sequences, ready.fingerprint, now), now)
        self._model_event("ready", model=model)

    def _lost(self, lost: Lost, now: float) -> None:
        self._slots = self._cache = None
        self._log.error("worker_lost", cause=lost.cause, was_ready=lost.up, deaths=self._supervisor.deaths)
        self._do(self._broker.worker_lost(lost.cause, now), now)
        self._model_event("lost", cause=lost.cause)

    def _gave_up(self, gave_up: GaveUp, now: float) -> None:
        self._log.error("unavailable", why=gave_up.why, retry_in_s=round(gave_up.until - now))
        self._do(self._broker.unavailable(gave_up.why, gave_up.until, now), now)
        self._model_event("unavailable")

    def _model_event(self, event: str, **fields: str) -> None:
        self._publish("model", {"type": "model", "event": event, "time": time.time(), **fields})

    def facts(self, now: float, warnings: list[str]) -> status.Facts:
        """For `status`: what is known beside the broker."""
        supervisor = self._supervisor
        return status.Facts(
            uptime_s=now - self._started,
            loaded=self._broker.gate.loaded,
            sha256=supervisor.sha256,
            ready=supervisor.ready,
            slots=self._slots,
            cache=self._cache,
            starts=supervisor.starts,
            deaths=supervisor.deaths,
            recent_deaths=supervisor.budget.recent(now),
            last_exit=supervisor.last_exit,
            counters=self._counters,
            running=supervisor.running,
            warnings=warnings,
        )


def place(error: BaseException) -> str:
    """File and line where it was raised; never its message, which may hold a peer's text."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
