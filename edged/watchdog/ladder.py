"""A level → what is done about it: which profile or none, which pace, what clock. Pure.

* *warm* by heat: pacing towards `pacing.target_c`. *Any heat* is paced; below warm less its hysteresis all is let go.
* *hot* by heat: pacing aims below where hot is left, so that it is left; the next smaller profile when pacing is at its
  end, for as long as it has reach a reload would cost a load of the model and gain nothing. By memory: the next smaller
  profile. Still hot `reload_s` later: the next. With nothing smaller: no reload, only the gate.
* *critical*: unloaded. Loaded again at warm or better, in the next smaller profile than it had.
* *Up again*, one profile at a time: at normal, `hold_s` after the level became so and `reload_s` after the last reload.
  A step up that had to be undone within 10 · reload_s doubles that wait, up to 64 times: a profile that presses the
  board by itself must not come and go all day. One that lasts forgets it. Loading again is a step up too.
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


class Ladder:
    def __init__(self, rules: Watchdog, profiles: int) -> None:
        self._rules = rules
        self._profiles = profiles
        self._pacing = Pacing(rules)
        self._profile = 0
        self._loaded = True
        self._pinned: int | None = None
        self._reloaded_at = float("-inf")
        self._stepped_up_at = float("-inf")
        self._patience = 0
        self._memory = Level.NORMAL
        self._why = ""

    # ---- facts -----------------------------------------------------------------------------------------------

    def threads(self, count: int) -> None:
        """Decode threads of the worker that is ready."""
        self._pacing.threads(count)

    def frequencies(self, steps: list[int]) -> None:
        """Clocks in kHz that may be set; [] (as at the start) for none."""
        self._pacing.frequencies(steps)

    def changed(self, profile: int, now: float) -> None:
        """A reload happened, for whatever reason; `profile` is what is loaded now."""
        self._profile = min(max(0, profile), self._profiles - 1)
        self._reloaded_at = now

    def pinned(self, profile: int | None) -> None:
        """An operator chose one; None: the ladder chooses again, from where it is."""
        self._pinned = None if profile is None else min(max(0, profile), self._profiles - 1)
        if self._pinned is not None:
            self._profile = self._pinned

    @property
    def effort(self) -> float:
        """Part of full power that pacing asks for."""
        return self._pacing.effort

    # ---- the rules -------------------------------------------------------------------------------------------

    def course(self, verdict: Verdict, readings: Readings, now: float) -> Course:
        self._pace(verdict, readings, now)
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
        rested = now - self._reloaded_at >= self._rules.reload_s
        smaller = min(self._profile + 1, self._profiles - 1) if self._pinned is None else self._profile
        if verdict.level is Level.CRITICAL:
            if self._loaded:
                self._note_undone(now)
                self._loaded = False
                self._reload(smaller, now, f"unloaded: {verdict.why}")
        elif not self._loaded:
            patience = self._rules.reload_s * (1 << min(self._patience, LOAD_PATIENCE_MAX))
            if verdict.level <= Level.WARM and now - self._reloaded_at >= patience:
                self._loaded = True
                self._stepped_up_at = now
                self._reload(self._profile, now, "loaded again")
        elif self._pinned is not None:
            self._why = "pinned"
        elif self._too_much(verdict):
            if smaller != self._profile and rested:
                self._note_undone(now)
                self._reload(smaller, now, verdict.why)
        elif verdict.level is Level.NORMAL and self._profile > 0 and self._may_step_up(verdict, now):
            self._stepped_up_at = now
            self._reload(self._profile - 1, now, "back to a better profile")

    def _too_much(self, verdict: Verdict) -> bool:
        return verdict.memory >= Level.HOT or (verdict.heat >= Level.HOT and self._pacing.exhausted)

    def _may_step_up(self, verdict: Verdict, now: float) -> bool:
        if float("-inf") < self._stepped_up_at <= now - UNDONE * self._rules.reload_s:
            self._patience = 0
        wait = max(self._rules.hold_s, self._rules.reload_s) * (1 << self._patience)
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
        self._why = why
