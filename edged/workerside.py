"""What the worker says and suffers, brought to the broker; what the broker has for it, brought to the worker.

The daemon's loop calls; nothing here blocks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from edged import config
from edged import messages as m
from edged.broker.broker import Broker, Output
from edged.broker.instructions import Instruction
from edged.observe import status
from edged.observe.log import Log
from edged.watchdog.happenings import GaveUp, Happening, Kept, Looking, Lost, Replaced, Replacing, Stepped, Unloaded
from edged.watchdog.line import Step
from edged.watchdog.supervisor import Supervisor
from edged.watchside import WatchSide

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
        self._ends: Counter[str] = Counter()
        self._kept = ""  # why what was wished for does not serve
        self._started = time.monotonic()
        self.watch: WatchSide | None = None  # the other half; the daemon brings them together

    def read(self, ready: set[Any], now: float) -> None:
        """`ready`: the descriptors and sockets that have something."""
        self._supervisor.read(ready, now)
        self._pursue(now)

    def tick(self, now: float) -> None:
        self._supervisor.findings(now)
        self._pursue(now)
        self._supervisor.tick(now, work=self._broker.has_work)
        self._pursue(now)
        self._save_when_drained()

    def _pursue(self, now: float) -> None:
        """What has happened to the worker is told, until nothing more comes of it."""
        while happenings := self._supervisor.take():
            self._happened(happenings, now)
        match self._supervisor.step:
            case Step.LOADING:
                self._broker.trying_again()
            case Step.UP:
                self._broker.gate.smaller = self._supervisor.plan.index > 0
        self._unclog(now)

    def _save_when_drained(self) -> None:
        """Once for each drain: the box may be about to be switched off."""
        drained = self._broker.gate.drained and not len(self._broker.lives.table)
        if drained and not self._saved:
            self.tell(m.Save(self._supervisor.plan.config.cache.save_s))
        self._saved = drained

    def tell(self, message: m.Down) -> None:
        worker = self._supervisor.worker
        if worker is not None:
            worker.send(message)
            self._broker.gate.clogged = self._clogged()

    def _clogged(self) -> bool:
        """A worker that does not read what it was given, or is on its way out, is given no more."""
        worker = self._supervisor.worker
        return worker is not None and (worker.unread > UNREAD_BYTES or self._supervisor.leaving)

    def _unclog(self, now: float) -> None:
        before, self._broker.gate.clogged = self._broker.gate.clogged, self._clogged()
        if before and not self._broker.gate.clogged:
            self._do(self._broker.dispatch(), now)

    def _happened(self, happenings: Iterable[Happening], now: float) -> None:
        for happening in happenings:
            match happening:
                case m.Prompted() | m.Prefilled() | m.Sampled() | m.Done() | m.Refused() | m.Gone():
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
                case m.Beat():
                    pass
                case m.Ready():
                    self._ready(happening, now)
                case m.LoadFailed():
                    self._log.error("load_failed", kind=happening.kind, error=happening.message)
                case Lost():
                    self._lost(happening, now)
                case GaveUp():
                    self._gave_up(happening, now)
                case Looking(until=until):
                    self._broker.gate.until = until
                case Stepped(before=before, after=after, why=why):
                    self._log.warning("smaller_profile", before=before, after=after, why=why)
                case Replacing() | Replaced() | Kept() | Unloaded():
                    self._changed(happening, now)

    def _heard(self, output: Output, now: float) -> None:
        try:
            self._do(self._broker.heard(output, now), now)
        except Exception as error:  # noqa: BLE001 - a bug in one request's books is that request's end, not the loop's
            self._counters["bugs"] += 1
            self._log.error("bug", kind=type(error).__name__, where=place(error), rid=output.rid)
            self._do(self._broker.broken(output.rid, now), now)

    def _ready(self, ready: m.Ready, now: float) -> None:
        self._slots = self._cache = None
        plan = self._supervisor.plan
        model = status.model_name(plan.path)
        cores = ",".join(str(pin.core) for pin in ready.threads)
        facts = {"model": model, "profile": plan.profile.name, "load_ms": round(ready.load_ms), "cores": cores}
        self._log.info("model_ready", **facts)
        for warning in ready.warnings:
            self._log.warning("model_warning", text=warning)
        if self.watch is not None:
            self.watch.worker_ready(ready, now)
        self._do(self._broker.worker_ready(model, ready.sequences, ready.fingerprint, now), now)
        self._model_event("ready", model=model, profile=plan.profile.name)

    def _lost(self, lost: Lost, now: float) -> None:
        self._slots = self._cache = None
        self._ends[lost.cause] += 1
        running = sum(request.shown == "running" for request in self._broker.lives.table)
        if lost.planned:
            self._log.info("worker_left", reason=lost.cause, carried=running)
        else:
            deaths = self._supervisor.deaths
            self._log.error("worker_lost", cause=lost.cause, was_ready=lost.up, carried=running, deaths=deaths)
            self._model_event("lost", cause=lost.cause)
        self._do(self._broker.worker_lost(lost.cause, now), now)

    def _changed(self, happening: Replacing | Replaced | Kept | Unloaded, now: float) -> None:
        match happening:
            case Replacing(reason=reason, after=profile):
                available = None if happening.available is None else happening.available >> 20
                names = {"before": happening.before, "after": profile, "order": happening.order}
                sizes = {"need_mb": happening.need >> 20, "available_mb": available}
                self._log.info("replacing", reason=reason, **names, **sizes)
                self._model_event("reloading", reason=reason, profile=profile)
            case Replaced(reason=reason, profile=profile, seconds=seconds):
                self._kept = ""
                self._log.info("replaced", reason=reason, profile=profile, seconds=round(seconds, 2))
                self._model_event("reloaded", reason=reason, profile=profile)
            case Kept(reason=reason, wanted=wanted, profile=profile, why=why):
                self._kept = f"profile {profile} stays in service, what was wanted ({reason}) did not come up: {why}"
                self._log.error("kept", reason=reason, profile=profile, why=why)
                self._model_event("kept", reason=reason, profile=profile)
                if self.watch is not None:
                    self.watch.kept(wanted, now)
            case Unloaded(reason=reason):
                self._log.warning("unloaded", reason=reason)
                self._broker.unloaded()
                self._model_event("unloaded", reason=reason)

    def healed(self) -> None:
        """An operator's new wish: what became of an earlier one is no matter."""
        self._kept = ""

    def _gave_up(self, gave_up: GaveUp, now: float) -> None:
        self._log.error("unavailable", why=gave_up.why, retry_in_s=round(gave_up.until - now))
        self._do(self._broker.unavailable(gave_up.why, gave_up.until, now), now)
        self._model_event("unavailable")

    def _model_event(self, event: str, **fields: str) -> None:
        self._publish("model", {"type": "model", "event": event, "time": time.time(), **fields})

    @property
    def busy(self) -> int:
        """Slots."""
        return self._slots.busy if self._slots else 0

    def facts(self, now: float, warnings: list[str]) -> status.Facts:
        """For `status`: what is known beside the broker."""
        supervisor = self._supervisor
        doubts = config.doubts(supervisor.wanted.config)
        watch = self.watch.fields(now) if self.watch is not None else {}
        return status.Facts(
            uptime_s=now - self._started,
            loaded=supervisor.loaded,
            sha256=supervisor.sha256,
            ready=supervisor.ready,
            slots=self._slots,
            cache=self._cache,
            starts=supervisor.crew.starts,
            deaths=supervisor.deaths,
            recent_deaths=supervisor.budget.recent(now),
            last_exit=supervisor.last_exit,
            counters=self._counters,
            plan=supervisor.plan,
            warnings=[
                *warnings,
                *doubts,
                *([self._kept] if self._kept else []),
                *supervisor.warnings(now),
            ],
            watch={**watch, "reload": supervisor.under_way(now)},
            ends=self._ends,
        )


def place(error: BaseException) -> str:
    """File and line where it was raised; never its message, which may hold a peer's text."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
