"""The main line (`line`), and replacements on purpose beside it: *changes*. No part of a change counts as a death.

    look at the file ─► new first: a second worker loads ─Ready─► the old one leaves ─► the new one serves
                   └──► old first: the old one leaves ─► the new one loads ─Ready─► serves   (no room for both)

* What does not come up (a bad file, no room, death or standstill while loading): the old one stays, or returns.
* The old one dies meanwhile: the new one takes its place, whatever it is at.
* What the watchdog wants leads around files that are known to be bad: further the same way, else nothing changes.
* A second wish takes the first one's place until the old worker was told to leave; later it waits for the change's end.
* To leave: the worker brings its checkpoints up to date, is read to its end, and is killed when that takes too long.
* Unloaded: as old first, without a new one until `load`.

The daemon's loop calls; nothing in here blocks. What there is to tell is fetched with `take`, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from edged.config import Config
from edged.messages import LoadFailed, Loading, Ready, Up
from edged.system.gguf import Header
from edged.watchdog import causes, fit
from edged.watchdog.attempt import NEVER, Attempt
from edged.watchdog.change import Change, Wish
from edged.watchdog.fit import Order
from edged.watchdog.happenings import Happening, Kept, Lost, Replacing, Unloaded
from edged.watchdog.line import Line, Step
from edged.watchdog.plan import Plan
from edged.watchdog.preflight import Checked, Finding, Hashed, Rejected, signature
from edged.watchdog.process import WorkerProcess

SAVE_S: Final = 1.0
"""For snapshots of a worker that is replaced: answers stand still meanwhile."""


class Supervisor(Line):
    """`live` names the checkpoints that are wanted."""

    def __init__(
        self, config: Config, module: str, wake: Callable[[], None], live: Callable[[], list[str]] = list
    ) -> None:
        super().__init__(config, module, wake, live)
        self._queued: Wish | None = None  # it waits for the end of a change
        self._unloading: str | None = None
        self.memory_short = False  # by the watchdog's level: no two workers at a time
        self.headers: dict[str, Header] = {}  # of the model files of this configuration, as far as they were read

    # ---- what is there ---------------------------------------------------------------------------------------

    @property
    def worker(self) -> WorkerProcess | None:
        """The one that requests go to."""
        return self.crew.serving.process if self.crew.serving else None

    @property
    def ready(self) -> Ready | None:
        return self.crew.serving.ready if self.crew.serving else None

    @property
    def wanted(self) -> Plan:
        """What will serve when everything under way is done."""
        wish = self._queued or (self.change.wish if self.change else None)
        return wish.plan if wish else self.plan

    @property
    def leaving(self) -> bool:
        """The serving worker takes nothing more."""
        return self.crew.serving is not None and self.crew.serving.leaving

    @property
    def loaded(self) -> float | None:
        """Fraction of the file that the worker to be has read."""
        serving = self.crew.serving
        return serving.loaded if serving and not serving.ready else None

    def under_way(self, now: float) -> dict[str, str | float | None] | None:
        """A change, for `status`."""
        if self.change is None and self._unloading is None:
            return None
        change, beside = self.change, self.crew.beside or self.crew.serving
        at = "waiting for the old worker" if self.leaving else "loading" if change and change.header else "checking"
        return {
            "reason": self._unloading or (change.wish.reason if change else None),
            "profile": change.wish.plan.profile.name if change else None,
            "at": at,
            "loaded": beside.loaded if beside is not None and beside.ready is None else None,
            "seconds": round(now - change.begun, 1) if change else None,
        }

    def processes(self) -> list[WorkerProcess]:
        return [one.process for one in self.crew.everyone()]

    def need_of(self, plan: Plan) -> int | None:
        """Bytes of memory, estimated, where the file's header was read."""
        header = self.headers.get(plan.path)
        return None if header is None else plan.need(header)

    def warnings(self, now: float) -> list[str]:
        """Profiles that cannot be loaded, for `status`."""
        config = self.wanted.config
        plans = [Plan(config, index) for index in range(len(config.profiles))]
        bad = [plan for plan in plans if self.rejects.bad(plan, now)]
        return [f"profile {plan.profile.name} cannot be loaded: {self.rejects.message(plan)}" for plan in bad]

    def take(self) -> list[Happening]:
        """What has happened since the last call."""
        out, self._out = self._out, []
        return out

    # ---- wishes ----------------------------------------------------------------------------------------------

    def reconfigure(self, plan: Plan, now: float) -> bool:
        """SIGHUP: deaths are forgotten; a worker that would not be what it is now is replaced. True: it is."""
        self.forget(plan.config)
        file_same = signature(plan.path) == self._mark
        if self.step is Step.UP and not self.leaving and file_same and not plan.differs(self.plan):
            self._drop_change()
            self.plan = plan
            return False
        settled = self.step in (Step.LOADING, Step.UP, Step.UNLOADED)
        if settled and file_same and not plan.differs(self.wanted):
            self._adopt(plan)
        else:
            self.replace(Wish(plan, "reload"), now)
        return self.step is not Step.UNLOADED

    def _adopt(self, plan: Plan) -> None:
        """What is under way is what is wished for, but for what does not concern the worker."""
        if self._queued is not None:
            self._queued = replace(self._queued, plan=plan)
            return
        if self.change is not None:
            self.change.wish = replace(self.change.wish, plan=plan)
        if self.step is not Step.UP or self.change is None:
            self.plan = plan

    def replace(self, wish: Wish, now: float) -> None:
        """Has a worker of this plan serve, even if the one that serves is one."""
        around = wish if wish.asked else self._around(wish, now)
        if around is None or (around is not wish and around.plan == self.wanted):
            return
        wish = around
        if self.step is Step.UNLOADED or self._unloading:
            self.plan = wish.plan
        elif self.step is not Step.UP:
            self._restart(wish, now)
        elif self.leaving:
            self._queued = wish
        else:
            self._drop_change()
            self.change = Change(wish, now, self._preflight.check(wish.plan))

    def _around(self, wish: Wish, now: float) -> Wish | None:
        """The wish, or the next one in its direction whose file is not known to be bad; nothing else when pinned."""
        config, index = wish.plan.config, wish.plan.index
        if index == self.plan.index:
            return wish
        if self.pinned:
            return None if self.rejects.bad(wish.plan, now) else wish
        up = index < self.plan.index
        for at in range(index, -1, -1) if up else range(index, len(config.profiles)):
            plan = Plan(config, at)
            if not self.rejects.bad(plan, now):
                if up:
                    self.descent.floor = min(self.descent.floor, at)
                return wish if at == index else replace(wish, plan=plan)
        return None

    def _restart(self, wish: Wish, now: float) -> None:
        """Nothing serves: what is under way is dropped."""
        begun = self.step is not Step.GIVEN_UP and wish.reason == "reload"
        if self.fallback is None and begun and self.plan.differs(wish.plan):
            self.fallback = self.plan
        self.crew.drop_serving()
        self._queued = None
        self.plan = wish.plan
        self.change = Change(wish, now, 0) if self.fallback else None
        self.begin()

    def unload(self, reason: str, now: float) -> None:
        """No worker until `load`; the next one goes on with what runs."""
        if self._unloading:
            return
        self._drop_change()
        self._queued = self.fallback = None
        if self.step is Step.UP:
            self._unloading = reason
            self._leave(now)
        else:
            self.crew.drop_serving()
            self._unloaded(reason)

    def _unloaded(self, reason: str) -> None:
        self.step, self._next, self._unloading = Step.UNLOADED, NEVER, None
        self._out.append(Unloaded(reason))

    def load(self, plan: Plan) -> None:
        """The end of `unload`."""
        self.plan = plan
        if self.step is Step.UNLOADED:
            self.begin()

    # ---- a change --------------------------------------------------------------------------------------------

    def findings(self, now: float) -> None:
        """What the preflight thread found."""
        for finding in self._preflight.findings():
            if isinstance(finding, Checked):
                self.headers[finding.path] = finding.header
                self.rejects.good(finding.path)
            if self.change is not None and finding.number == self.change.number:
                self._found_new(self.change, finding, now)
            elif finding.number == self._asked:
                self._found(finding, now)

    def _found_new(self, change: Change, finding: Finding, now: float) -> None:
        match finding:
            case Checked(header=header, available=available) if change.header is None:
                change.header, change.need = header, change.wish.plan.need(header)
                self._choose_order(change, available, now)
            case Hashed(sha256=sha256):
                change.sha256 = sha256
            case Rejected(message=message):
                self.rejects.note(change.wish.plan, finding, now)
                around = None if change.wish.asked else self._around(change.wish, now)
                if around is None:
                    self._keep(message, now)
                else:
                    self.replace(around, now)

    def _choose_order(self, change: Change, available: int | None, now: float) -> None:
        serving, wish = self.crew.serving, change.wish
        assert serving is not None
        order = fit.order(change.need, available, serving.need, old_first=wish.old_first or self.memory_short)
        name = wish.plan.profile.name
        if order is Order.NEITHER and available is not None:
            self._keep(fit.too_big(name, change.need, available + serving.need), now)
            return
        if order is Order.NEW_FIRST:
            try:
                self.crew.beside = self.crew.spawn(wish.plan, need=change.need, number=change.number)
            except OSError:
                order = Order.OLD_FIRST
        self._out.append(Replacing(wish.reason, self.plan.profile.name, name, order, change.need, available))
        if order is not Order.NEW_FIRST:
            self._leave(now)

    def _leave(self, now: float) -> None:
        serving = self.crew.serving
        if serving is not None and not serving.leaving:
            serving.leave(min(SAVE_S, self.plan.config.cache.save_s), now)

    def _take_over(self, now: float) -> bool:
        """The serving worker is gone and a change was under way: what it is at becomes the main line."""
        change = self.change
        if change is None:
            return False
        self.fallback, self.plan = self.plan, change.wish.plan
        self._asked, self.sha256, change.number = change.number, change.sha256, 0
        self._mark = signature(self.plan.path)
        serving = self.crew.promote()
        if serving is not None and serving.ready is not None:
            self._serve(now)
        elif serving is not None:
            self.step, self._next = Step.LOADING, NEVER
        elif change.header is not None:
            self._start(change.need, now)
        else:
            self.step, self._next = Step.CHECKING, NEVER
        return True

    def _serve(self, now: float) -> None:
        self._up(now)
        self._next_wish(now)

    def _keep(self, why: str, now: float) -> None:
        """The change is over before the old worker was told to leave."""
        assert self.change is not None
        wish = self.change.wish
        self._out.append(Kept(wish.reason, wish.plan.index, self.plan.profile.name, why))
        self.change = None
        self._next_wish(now)

    def _next_wish(self, now: float) -> None:
        wish, self._queued = self._queued, None
        if wish is not None:
            self.replace(wish, now)

    def _drop_change(self) -> None:
        self.crew.drop_beside()
        self.change = None

    # ---- the workers at hand ---------------------------------------------------------------------------------

    def read(self, ready: set[Any], now: float) -> None:
        """`ready`: the descriptors that have something."""
        for attempt in self.crew.everyone():
            if attempt.process.pidfd in ready:
                self._ended(attempt, now)
            elif attempt.process.link.fileno() in ready:
                attempt.process.flush()
                self._said(attempt, attempt.read(now), now)

    def _said(self, attempt: Attempt, messages: list[Up], now: float) -> None:
        if attempt is self.crew.serving:
            for message in messages:
                if isinstance(message, Ready):
                    self._serve(now)
                elif not isinstance(message, Loading) or self.step is Step.LOADING:
                    self._out.append(message)
        elif attempt is self.crew.beside:
            self._out += [m for m in messages if isinstance(m, LoadFailed)]
            if attempt.ready is not None:
                self._leave(now)

    def _ended(self, attempt: Attempt, now: float) -> None:
        if self.crew.buried(attempt):
            return
        messages, cause = attempt.ended()
        self._said(attempt, messages, now)
        if attempt is self.crew.beside:
            self._lost_beside(attempt, cause, now)
            return
        self.crew.serving = None
        if attempt.leaving:
            self._left(now)
            return
        up = attempt.ready is not None
        memory = cause == causes.OOM or (attempt.failed is not None and attempt.failed.kind == "memory")
        self._out.append(Lost(cause, up))
        if not up:
            self._not_up(cause, attempt.failure, now, memory=memory)
        elif self.change is not None:
            self._count_death(cause, now)
            self._take_over(now)
        else:
            self._died(cause, attempt.failure, now, memory=memory)

    def _left(self, now: float) -> None:
        """The serving worker ended as it was told."""
        reason = self._unloading or (self.change.wish.reason if self.change else "reload")
        self._out.append(Lost(reason, up=True, planned=True))
        self.descent.lost()
        if self._unloading:
            self._unloaded(reason)
        elif not self._take_over(now):
            self.begin()

    def _lost_beside(self, attempt: Attempt, cause: str, now: float) -> None:
        """The new worker ended before it served."""
        self.crew.beside = None
        if self.change is not None:
            self._keep(attempt.failure or f"the new worker ended ({cause})", now)

    # ---- time ------------------------------------------------------------------------------------------------

    def tick(self, now: float, *, work: bool) -> None:
        """`work`: the serving worker owes something."""
        self.crew.tick(now, work=work)
        self._pass_time(now)

    def stop(self) -> None:
        """Blocks until nothing is left of the workers."""
        self.crew.stop(self.plan.config.cache.save_s if self.step is Step.UP else 0.0)
