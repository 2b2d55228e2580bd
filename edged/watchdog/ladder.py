"""A level → what is done about it: which profile or none, which pace, what clock. Pure.

* *warm* by heat: pacing towards `pacing.target_c`. *Any heat* is paced; below warm less its hysteresis all is let go.
* *hot* by heat: pacing aims below where hot is left, so that it is left. The next smaller profile when pacing is at its
  end, or has not got the board below hot in `hold_s`: a reload costs a load of the model, and where pacing suffices it
  gains nothing. By memory: the next smaller profile at once. Still hot `reload_s` later: the next. With nothing
  smaller: no reload, only the gate.
* *critical*: unloaded. Loaded again at warm or better, in the next smaller profile than it had.
* *Up again*, one profile at a time: at normal, `hold_s` after the level became so and `reload_s` after the last reload.
  A step up that had to be undone within 10 · reload_s doubles that wait, up to 64 times: a profile that presses the
  board by itself must not come and go all day. One that lasts forgets it. Loading again is a step up too.
* *What does not come up* (no such file, no room, refused) is left out, in both directions, for twice the wait of a step
  up, and twice that each time it fails again, up to 64 times: a try may take the worker away. A step down that fails is
  followed by the next smaller one at once. An operator's wish forgives.
* *Pinned* by an operator: that profile whatever the level; critical still unloads.

Reloads come at most once in reload_s; only an unload does not wait. Loading again does.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from edged.config_watchdog import Watchdog
from edged.level import Level
from edged.messages import Pace
from edged.watchdog.pacing import Pacing
from edged.watchdog.policy import Verdict
from edged.watchdog.readings import Readings

UNDONE: Final = 10
"""Times reload_s: a step up that has to be undone within it was a mistake."""

PATIENCE_MAX: Final = 6
"""Doublings of the wait before a step up: an hour with the default."""

LOAD_PATIENCE_MAX: Final = 3
"""The same before loading again after an unload: eight minutes, for meanwhile nothing is served."""

BELOW_C: Final = 1.5
"""So far below where hot is left pacing aims while hot: a degree of the sensor and half a one to spare."""


class Course(Struct, frozen=True, kw_only=True):
    """`profile`: index in `profiles`, 0 the best. `frequency_khz`: a cap, None: none. `shrink`: send `Shrink` now."""

    profile: int = 0
    loaded: bool = True
    pace: Pace = Pace()
    frequency_khz: int | None = None
    shrink: bool = False
    why: str = ""


class Failed(Struct, frozen=True):
    """A profile that did not come up, `times` in a row; it is not wanted until then."""

    times: int
    until: float


class Ladder:
    def __init__(self, rules: Watchdog, profiles: int) -> None:
        self._rules = rules
        self._profiles = profiles
        self._pacing = Pacing(rules)
        self._profile = 0
        self._loaded = True
        self._pinned: int | None = None
        self._failed: dict[int, Failed] = {}  # by index, until it comes up
        self._changing = False
        self._at_once = False  # a step down failed: the next one needs no rest
        self._reloaded_at = float("-inf")
        self._stepped_up_at = float("-inf")
        self._patience = 0
        self._memory = Level.NORMAL
        self._hot_since: float | None = None
        self._why = ""

    # ---- facts -----------------------------------------------------------------------------------------------

    def threads(self, count: int) -> None:
        """Decode threads of the worker that is ready."""
        self._pacing.threads(count)

    def frequencies(self, steps: list[int]) -> None:
        """Clocks in kHz that may be set; [] (as at the start) for none."""
        self._pacing.frequencies(steps)

    def reconfigure(self, rules: Watchdog, profiles: int) -> None:
        """Other rules or profiles: what is known of the board and of the worker stays."""
        self._rules, self._profiles = rules, profiles
        self._profile = min(self._profile, profiles - 1)
        self._pacing.reconfigure(rules)
        self.forgive()

    def forgive(self) -> None:
        """An operator's wish: what failed or was undone so far is no matter."""
        self._failed.clear()
        self._patience, self._at_once = 0, False

    def changed(self, profile: int, now: float) -> None:
        """A reload happened, for whatever reason; `profile` is what is loaded now."""
        self._profile = min(max(0, profile), self._profiles - 1)
        self._reloaded_at = now
        self._failed.pop(self._profile, None)

    def changing(self, *, changing: bool) -> None:
        """A worker is on its way: nothing better is wanted before it is there, however long that takes."""
        self._changing = changing

    def failed(self, wanted: int, profile: int, now: float) -> None:
        """`wanted` did not come up; `profile` serves on, or is started again."""
        if wanted != profile:
            times = min(PATIENCE_MAX, self._failed[wanted].times + 1 if wanted in self._failed else 1)
            self._failed[wanted] = Failed(times, now + self._wait() * (1 << times))
        self._at_once = wanted > profile
        if wanted < profile:
            self._stepped_up_at = float("-inf")
        self._profile = min(max(0, profile), self._profiles - 1)
        self._reloaded_at = now

    def load(self, now: float) -> None:
        """An operator does not wait for what is unloaded."""
        self._loaded = True
        self._stepped_up_at = now
        self._reload(self._profile, now, "loaded again")

    def pinned(self, profile: int | None) -> None:
        """An operator chose one; None: the ladder chooses again, from where it is."""
        self._pinned = None if profile is None else min(max(0, profile), self._profiles - 1)
        if self._pinned is not None:
            self._profile = self._pinned

    @property
    def profile(self) -> int:
        """Wanted now, or as soon as it may be loaded again."""
        return self._profile

    def load_due(self) -> float:
        """When what is unloaded is loaded again, if the level allows it by then (monotonic seconds)."""
        return self._reloaded_at + self._rules.reload_s * (1 << min(self._patience, LOAD_PATIENCE_MAX))

    @property
    def effort(self) -> float:
        """Part of full power that pacing asks for."""
        return self._pacing.effort

    # ---- the rules -------------------------------------------------------------------------------------------

    def course(self, verdict: Verdict, readings: Readings, now: float) -> Course:
        self._pace(verdict, readings, now)
        self._still_hot(verdict, readings, now)
        self._choose(verdict, now)
        shrink = verdict.memory > self._memory
        self._memory = verdict.memory
        setting = self._pacing.setting()
        return Course(
            profile=self._profile,
            loaded=self._loaded,
            pace=setting.pace,
            frequency_khz=setting.frequency_khz,
            shrink=shrink,
            why=self._why,
        )

    def _pace(self, verdict: Verdict, readings: Readings, now: float) -> None:
        heat = self._rules.heat
        target = self._rules.pacing.target_c
        temperature = readings.temperature_c
        if verdict.heat >= Level.HOT:
            target = min(target, heat.hot_c - heat.hysteresis_c - BELOW_C)
            if temperature is not None and (readings.throttled or readings.soft_limit):
                temperature = max(temperature, target + BELOW_C)
        if temperature is None and verdict.heat is Level.NORMAL:
            temperature = (
                heat.warm_c - heat.hysteresis_c - 1
            )  # no sensors, or one look that failed: nothing to pace for
        self._pacing.step(temperature, target, now)

    def _choose(self, verdict: Verdict, now: float) -> None:
        rested = self._at_once or now - self._reloaded_at >= self._rules.reload_s
        smaller = self._next(1, now) if self._pinned is None else self._profile
        if verdict.level is Level.CRITICAL:
            if self._loaded:
                self._note_undone(now)
                self._loaded = False
                self._reload(smaller, now, f"unloaded: {verdict.why}")
        elif not self._loaded:
            if verdict.level <= Level.WARM and now >= self.load_due():
                self.load(now)
        elif self._pinned is not None:
            self._why = "pinned"
        elif self._too_much(verdict, now):
            if smaller != self._profile and rested:
                self._note_undone(now)
                self._reload(smaller, now, verdict.why)
        elif verdict.level is Level.NORMAL and self._may_step_up(verdict, now):
            better = self._next(-1, now)
            if better != self._profile:
                self._stepped_up_at = now
                self._reload(better, now, "back to a better profile")

    def _next(self, step: int, now: float) -> int:
        """The next profile in this direction that is not left out; the present one when there is none."""
        index = self._profile + step
        while index in self._failed and now < self._failed[index].until:
            index += step
        return index if 0 <= index < self._profiles else self._profile

    def _wait(self) -> float:
        """Between two steps up."""
        return max(self._rules.hold_s, self._rules.reload_s)

    def _still_hot(self, verdict: Verdict, readings: Readings, now: float) -> None:
        """Since when every look at the board has found it hot."""
        temperature = readings.temperature_c
        cooler = temperature is not None and temperature < self._rules.heat.hot_c
        if verdict.heat < Level.HOT or (cooler and not (readings.throttled or readings.soft_limit)):
            self._hot_since = None
        elif self._hot_since is None:
            self._hot_since = now

    def _too_much(self, verdict: Verdict, now: float) -> bool:
        if verdict.memory >= Level.HOT:
            return True
        lasts = self._hot_since is not None and now - self._hot_since >= self._rules.hold_s
        return verdict.heat >= Level.HOT and (self._pacing.exhausted or lasts)

    def _may_step_up(self, verdict: Verdict, now: float) -> bool:
        if self._changing:
            return False
        if float("-inf") < self._stepped_up_at <= now - UNDONE * self._rules.reload_s:
            self._patience = 0
        wait = self._wait() * (1 << self._patience)
        return now - verdict.since >= self._rules.hold_s and now - self._reloaded_at >= wait

    def _note_undone(self, now: float) -> None:
        if now - self._stepped_up_at < UNDONE * self._rules.reload_s:
            self._patience = min(PATIENCE_MAX, self._patience + 1)
            self._stepped_up_at = float("-inf")
        elif self._stepped_up_at > float("-inf"):
            self._patience = 0

    def _reload(self, profile: int, now: float, why: str) -> None:
        self._profile = profile
        self._reloaded_at = now
        self._at_once = False
        self._why = why
