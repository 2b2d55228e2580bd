"""How hard to work so that the board stays at `target_c`. Pure.

*Effort* is the part of full power that is asked for, 0…1. A PI controller moves it, in its velocity form, so that it
does not wind up at the ends: a change of temperature moves it at once, a lasting distance from the target in the course
of `settle_s`. The temperature is smoothed first, since sensors lag and step by a degree. Below warm less its
hysteresis: full effort. Without a temperature: BLIND.

*Knobs* turn effort into what is done, in the order configured, each to its end before the next: the clock (power goes
with f·V², taken as f²), threads (power goes with their number), pauses between tokens. All have steps; the board
averages over them, and a step is changed only when the effort is a quarter of it beyond (no chattering).

The numbers were found on the plant of tests/plant (bench/run_plant.py shows what they reach): more gain makes the clock
swing and costs tokens, less lets a quickly warming board reach hot.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from edged.config_watchdog import Watchdog
from edged.messages import Pace

GAIN: Final = 0.16
"""Effort per °C, as part of the effort at hand. A Pi 5 without a cooler is some 50 °C warmer at full effort than idle:
0.02 per °C at rest."""

FLAT: Final = 0.1
"""Effort below which the gain falls no further."""

BLIND: Final = 0.5
"""Without a temperature: half the power keeps a board that idles below 50 °C below 80 in a room."""

SMOOTH: Final = 1 / 15
"""Time constant of the smoothing, in parts of settle_s: 4 s of 60."""

UP: Final = 0.5
DOWN: Final = 3.0
EARLY: Final = 0.6
"""Effort per settle_s at most: up, down, and down while still below the target. A chip jumps by 10 °C when work begins,
which says little of where it will come to rest."""

DUTY_STEP: Final = 0.05


class Rung(Struct, frozen=True):
    """A setting of the knobs and the part of full power that it is taken for."""

    frequency_khz: int | None = None
    threads: int = 0  # all
    duty: float = 1.0
    power: float = 1.0


class Setting(Struct, frozen=True):
    pace: Pace
    frequency_khz: int | None


class Pacing:
    def __init__(self, rules: Watchdog) -> None:
        self._rules = rules
        self._threads = 1
        self._frequencies: list[int] = []
        self._rungs = [Rung()]
        self._rung = 0
        self._smooth: float | None = None
        self._at: float | None = None
        self.effort = 1.0

    def reconfigure(self, rules: Watchdog) -> None:
        """Other rules; effort goes on from where it is."""
        self._rules = rules
        self._rebuild()
        self.effort = max(self.effort, self.least)

    # ---- what there is to turn -------------------------------------------------------------------------------

    def threads(self, count: int) -> None:
        """Decode threads of the worker at hand."""
        self._threads = max(1, count)
        self._rebuild()

    def frequencies(self, steps: list[int]) -> None:
        """Clocks that may be set, in kHz; [] when the service may not."""
        self._frequencies = sorted(steps, reverse=True)
        self._rebuild()

    def _rebuild(self) -> None:
        rungs = [Rung()]
        for knob in self._rules.pacing.knobs:
            last = rungs[-1]
            match knob:
                case "frequency":
                    top = self._frequencies[0] if self._frequencies else 0
                    rungs += [
                        replace(last, frequency_khz=f, power=last.power * (f / top) ** 2) for f in self._frequencies[1:]
                    ]
                case "threads":
                    counts = range(self._threads - 1, 0, -1)
                    rungs += [replace(last, threads=n, power=last.power * n / self._threads) for n in counts]
                case "duty":
                    rungs += [
                        replace(last, duty=d, power=last.power * d) for d in _duties(self._rules.pacing.least_duty)
                    ]
        self._rungs = rungs
        self._rung = min(self._rung, len(rungs) - 1)

    @property
    def least(self) -> float:
        """The effort at which every knob is at its end."""
        return self._rungs[-1].power

    @property
    def exhausted(self) -> bool:
        return self.effort <= self.least

    # ---- the controller --------------------------------------------------------------------------------------

    def step(self, temperature: float | None, target: float, now: float) -> None:
        settle = self._rules.pacing.settle_s
        passed = 0.0 if self._at is None else min(max(0.0, now - self._at), settle)
        self._at = now
        if temperature is None:
            self._smooth = None
            self._move(BLIND - self.effort, passed / settle)
            return
        before = temperature if self._smooth is None else self._smooth
        after = before + (temperature - before) * min(1.0, passed / (settle * SMOOTH))
        self._smooth = after
        if after < self._rules.heat.warm_c - self._rules.heat.hysteresis_c:
            self._move(1.0, passed / settle)
            return
        gain = GAIN * max(self.effort, FLAT)
        by = gain * (before - after) + gain * (target - after) * passed / settle
        self._move(by, passed / settle, EARLY if after < target else DOWN)

    def _move(self, by: float, parts: float, down: float = DOWN) -> None:
        by = min(max(by, -down * parts), UP * parts)
        self.effort = min(1.0, max(self.least, self.effort + by))

    def setting(self) -> Setting:
        """What the effort means now."""
        rungs = self._rungs
        while self._rung < len(rungs) - 1 and self.effort < self._edge(self._rung + 1, 0.25):
            self._rung += 1
        while self._rung > 0 and self.effort > self._edge(self._rung, 0.75):
            self._rung -= 1
        rung = rungs[self._rung]
        return Setting(Pace(duty=rung.duty, threads=rung.threads), rung.frequency_khz)

    def _edge(self, rung: int, part: float) -> float:
        """Effort at a part of the way from a rung up to the one above."""
        low, high = self._rungs[rung].power, self._rungs[rung - 1].power
        return low + (high - low) * part


def _duties(least: float) -> list[float]:
    """1 − DUTY_STEP, … down to `least`."""
    count = int((1 - least) / DUTY_STEP - 1e-9)
    return [round(1 - DUTY_STEP * n, 2) for n in range(1, count + 1)] + ([least] if least < 1 else [])
