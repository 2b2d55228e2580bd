"""The main line: one worker is kept up (design 4).

    checking ──ok──► loading ──Ready──► up ──dies──► waiting ──time──► checking
        │ rejected, no room                             │ budget spent
        ├───────────► the next smaller profile ◄────────┤
        └─► given_up ◄───── after the smallest one ─────┘
               └──── the oldest death leaves the window, a rejected file changes, SIGHUP, reload ──► checking the best

* A profile whose file is rejected, whose estimate does not fit into memory, or whose worker says so or is killed for
  it: the next smaller one at once. Files that are known to be bad (`rejects`) are passed over.
* A worker that ends by an illegal instruction before it is ready would do so with every profile: given up at once.
* After the smallest the plan is the best one again, and a try begins with that. A pinned profile is not left.
* `fallback`: the plan that served until the one at hand was wished for. If that does not come up, it returns, and none
  of it counts as a death.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from edged.config import Config
from edged.watchdog import causes, fit
from edged.watchdog.attempt import NEVER
from edged.watchdog.budget import HEALTHY_S, Budget
from edged.watchdog.change import Change
from edged.watchdog.crew import Crew
from edged.watchdog.descent import Descent
from edged.watchdog.happenings import GaveUp, Happening, Kept, Looking, Lost, Replaced, Stepped
from edged.watchdog.plan import Plan
from edged.watchdog.preflight import Checked, Finding, Hashed, Preflight, Rejected, signature
from edged.watchdog.rejects import Rejects

FILE_LOOK_S: Final = 5.0
"""How often a rejected model file is looked at for a change: somebody may be copying it in."""

ROOM_LOOK_S: Final = 30.0
"""How often memory is looked at for a model that did not fit."""


class Step(StrEnum):
    CHECKING = "checking"
    LOADING = "loading"
    UP = "up"
    WAITING = "waiting"
    GIVEN_UP = "given_up"
    UNLOADED = "unloaded"


class Line:
    """`pinned`: an operator chose the profile, deaths lead to no other."""

    def __init__(self, config: Config, module: str, wake: Callable[[], None], live: Callable[[], list[str]]) -> None:
        self.plan = Plan(config)  # what serves, or will
        self.step = Step.WAITING
        self.crew = Crew(module, live, config.runtime_dir)
        self.change: Change | None = None
        self.fallback: Plan | None = None
        self.pinned = False
        self.sha256: str | None = None
        self.last_exit: dict[str, str | float] | None = None
        self.deaths = 0
        self.forget(config)
        self._preflight = Preflight(config.state_dir, wake)
        self._out: list[Happening] = []
        self._next = NEVER
        self._mark: tuple[int, int, int] | None = None  # of the file that was looked at
        self._retry_at = 0.0
        self._asked = 0

    def forget(self, config: Config) -> None:
        """Deaths so far, and bad files."""
        self.budget = Budget(config.watchdog.restart)
        self.descent = Descent(config.watchdog.restart.window_s)
        self.rejects = Rejects(config.watchdog.restart.window_s)

    def begin(self) -> None:
        """Looks at the model file; the worker starts when it is found good."""
        self.step = Step.CHECKING
        self._next = NEVER
        self._mark = signature(self.plan.path)
        self._asked = self._preflight.check(self.plan)

    def _found(self, finding: Finding, now: float) -> None:
        match finding:
            case Checked() if self.step is Step.CHECKING:
                self._fits(finding, now)
            case Hashed(sha256=sha256):
                self.sha256 = sha256
            case Rejected(message=message) if self.step is Step.CHECKING:
                self.rejects.note(self.plan, finding, now)
                if not self._back(message) and not self._step_down(message, now):
                    self._give_up(message, now + self.plan.config.watchdog.restart.window_s, now)

    def _fits(self, checked: Checked, now: float) -> None:
        need, available = self.plan.need(checked.header), checked.available
        if available is None or need <= available:
            self._start(need, now)
            return
        why = fit.too_big(self.plan.profile.name, need, available)
        if not self._back(why) and not self._step_down(why, now):
            self._give_up(why, now + ROOM_LOOK_S, now)

    def _start(self, need: int, now: float) -> None:
        """A process that cannot be made (no memory, no descriptor) counts as a death."""
        self.step = Step.LOADING
        self._next = NEVER
        try:
            self.crew.serving = self.crew.spawn(self.plan, need=need, number=self._asked)
        except OSError as error:
            cause, failure = f"no process: {error.strerror}", f"no worker could be started: {error.strerror}"
            self._out.append(Lost(cause, up=False))
            self._not_up(cause, failure, now, memory=False)

    def _up(self, now: float) -> None:
        """The serving worker is ready."""
        serving = self.crew.serving
        assert serving is not None
        assert serving.ready is not None
        self.step = Step.UP
        self.fallback = None
        self._next = now + HEALTHY_S
        self.crew.affinity.keep_off(pin.core for pin in serving.ready.threads)
        self.descent.up(now)
        self._out.append(serving.ready)
        if self.change is not None:
            self._out.append(Replaced(self.change.wish.reason, self.plan.profile.name, now - self.change.begun))
        self.change = None

    def _not_up(self, cause: str, failure: str | None, now: float, *, memory: bool) -> None:
        """It ended before it was ready. `memory`: for want of it."""
        if self._back(failure or f"the new worker ended ({cause})"):
            return
        if cause == causes.ILLEGAL:
            self.descent.lost()
            self._count_death(cause, now)
            self._give_up(causes.WRONG_BUILD, now + self.plan.config.watchdog.restart.window_s, now)
        else:
            self._died(cause, failure, now, memory=memory)

    def _died(self, cause: str, failure: str | None, now: float, *, memory: bool) -> None:
        self.descent.lost()
        again, at = self._count_death(cause, now)
        why = failure or f"the worker ended {self.budget.recent(now)} times in a row (last: {cause})"
        if (memory or not again) and self._step_down(why if not again else failure or cause, now):
            return
        if again:
            self.step, self._next = Step.WAITING, at
        else:
            self._give_up(why, at, now)

    def _count_death(self, cause: str, now: float) -> tuple[bool, float]:
        self.deaths += 1
        self.last_exit = {"cause": cause, "time": time.time()}
        return self.budget.death(now)

    def _back(self, why: str) -> bool:
        """The plan at hand did not come up: what served before is started again, if there is such a thing."""
        if self.fallback is None:
            return False
        reason = self.change.wish.reason if self.change else "reload"
        wanted, self.plan, self.fallback, self.change = self.plan, self.fallback, None, None
        self._out.append(Kept(reason, wanted.index, self.plan.profile.name, why))
        self.begin()
        return True

    def _step_down(self, why: str, now: float) -> bool:
        smaller = None if self.pinned else self.plan.smaller()
        while smaller is not None and self.rejects.bad(smaller, now):
            smaller = smaller.smaller()
        if smaller is None:
            return False
        self._out.append(Stepped(self.plan.profile.name, smaller.profile.name, why))
        self.descent.down(smaller.index)
        self.plan = smaller
        self.budget = Budget(smaller.config.watchdog.restart)
        self.begin()
        return True

    def _give_up(self, why: str, until: float, now: float) -> None:
        self.step = Step.GIVEN_UP
        if self.plan.index and not self.pinned:
            self.plan = Plan(self.plan.config)
            self.budget = Budget(self.plan.config.watchdog.restart)
        self.descent.give_up()
        self._retry_at = until
        self._wait_for_file(now)
        self._out.append(GaveUp(why, self._next))

    def _wait_for_file(self, now: float) -> None:
        self._next = min(self._retry_at, now + FILE_LOOK_S) if self.rejects else self._retry_at

    def _pass_time(self, now: float) -> None:
        self.descent.look(now)
        if now < self._next:
            return
        self._next = NEVER
        match self.step:
            case Step.UP:
                self.budget.healthy()
            case Step.WAITING:
                self.begin()
            case Step.GIVEN_UP if now >= self._retry_at or self.rejects.changed():
                self.begin()
            case Step.GIVEN_UP:
                self._wait_for_file(now)
                self._out.append(Looking(self._next))

    def next_wake(self) -> float:
        return min(self._next, self.descent.next_look(), self.crew.next_wake())
