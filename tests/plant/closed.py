"""An hour on a board in a second: policy, ladder and pacing in a loop with the plant, and what to compare them with.

* `stock`: full effort, the firmware throttles, in either of its readings (`board`).
* `clairvoyant`: knows the board and the air. Full effort until the chip first comes to 80 °C, then at each moment the
  setting with the most tokens among all clocks, threads and pauses whose resting temperature is at most 80 °C.
* `watched`: ours. A reload takes LOAD_S without tokens; the smaller profile writes no faster here, so that stepping
  down cannot look like speed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, product

from edged.config_watchdog import Watchdog
from edged.level import Level
from edged.watchdog.ladder import Ladder
from edged.watchdog.policy import Policy
from edged.watchdog.readings import Readings
from plant.board import Board, Heat, sampled

HOUR_S = 3600
FIRST_S = 600
"""The first overshoot is allowed for so long."""

LOAD_S = 8

Air = Callable[[float], float]


def warming(seconds: float) -> float:
    """25 → 45 °C over an hour."""
    return 25 + 20 * min(1.0, seconds / HOUR_S)


@dataclass
class Run:
    """`first_c`, `later_c`: the chip's highest temperature within FIRST_S and after it."""

    tokens: float = 0.0
    first_c: float = 0.0
    later_c: float = 0.0
    above_s: int = 0  # seconds above 80 °C
    reloads: int = 0
    levels: list[tuple[int, Level]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    trace: list[tuple[float, float, float]] = field(default_factory=list)  # chip °C, effort, tokens/s

    @property
    def gap(self) -> float:
        """The longest pause between tokens over the median one (of tokens, not of seconds); a reload is one, too."""
        working = sorted((rate for rate in self.rates if rate > 0), reverse=True)
        still = max(
            (len(list(run)) for none, run in itertools.groupby(self.rates, lambda r: r <= 0) if none), default=0
        )
        half, told = sum(working) / 2, 0.0
        for rate in working:
            told += rate
            if told >= half:
                return rate * max(1 / working[-1], still)
        return 1.0

    def second(self, at: int, heat: Heat, rate: float) -> None:
        self.tokens += rate
        self.rates.append(rate)
        self.above_s += heat.chip_c > 80
        if at < FIRST_S:
            self.first_c = max(self.first_c, heat.chip_c)
        else:
            self.later_c = max(self.later_c, heat.chip_c)


def stock(board: Board, air: Air = warming, seconds: int = HOUR_S, *, holding: bool = False) -> Run:
    heat, run = Heat(board, air(0), holding=holding), Run()
    heat.busy = True
    for at in range(seconds):
        heat.step(1.0, air(at))
        run.second(at, heat, heat.rate)
    return run


def clairvoyant(board: Board, air: Air = warming, seconds: int = HOUR_S) -> Run:
    heat, run = Heat(board, air(0)), Run()
    heat.busy = True
    best: dict[int, tuple[int, int, float]] = {}
    sprinting = True
    for at in range(seconds):
        sprinting = sprinting and heat.chip_c < 79.5
        if not sprinting:
            degree = round(air(at))
            setting = best.get(degree) or best.setdefault(degree, _best(board, degree))
            heat.cap_mhz, heat.threads, heat.duty = setting
        heat.firmware_mhz = board.clocks[-1]  # it keeps below by itself
        run.second(at, heat, heat.rate)
        heat.step(1.0, air(at))
    return run


def _best(board: Board, air_c: float) -> tuple[int, int, float]:
    duties = [1 - 0.05 * n for n in range(15)]
    settings = sorted(
        product(board.clocks, range(1, board.threads + 1), duties), key=lambda s: board.rate(*s), reverse=True
    )
    return next((s for s in settings if board.steady(*s, air_c) <= 80), settings[-1])


def watched(
    board: Board,
    rules: Watchdog,
    air: Air = warming,
    seconds: int = HOUR_S,
    *,
    clocks: bool = True,
    profiles: int = 2,
    seed: int = 0,
    trace: bool = False,
) -> Run:
    """`clocks`: the service may set them."""
    heat, run = Heat(board, air(0), seed), Run()
    policy, ladder = Policy(rules), Ladder(rules, profiles)
    ladder.threads(board.threads)
    ladder.frequencies([mhz * 1000 for mhz in board.clocks] if clocks else [])
    heat.busy = True
    profile, loaded, loading = 0, True, 0
    level = Level.NORMAL
    for at in range(seconds):
        heat.step(1.0, air(at))
        rate = heat.rate
        run.second(at, heat, rate)
        bits = heat.throttled_bits
        readings = Readings(
            temperature_c=heat.shown_c, throttled=bool(bits & 4), soft_limit=bool(bits & 8), capped=bool(bits & 2)
        )
        verdict = policy.observe(readings, float(at))
        if verdict.level is not level:
            level = verdict.level
            run.levels.append((at, level))
        course = ladder.course(verdict, readings, float(at))
        if (course.profile, course.loaded) != (profile, loaded):
            run.reloads += 1
            profile, loaded, loading = course.profile, course.loaded, LOAD_S
            ladder.changed(profile, float(at))
        loading = max(0, loading - 1)
        heat.busy = loaded and not loading
        heat.threads = min(board.threads, course.pace.threads or board.threads)
        heat.duty = course.pace.duty
        heat.cap_mhz = None if course.frequency_khz is None else course.frequency_khz // 1000
        if trace:
            run.trace.append((heat.chip_c, ladder.effort, rate))
    return run


def kind(board: Board) -> str:
    """ "mild": the firmware alone keeps it below 85 °C; "hard": some setting does below 80; "hopeless": none."""
    hottest = warming(HOUR_S)
    if board.steady(board.clocks[0], 1, 0.3, hottest) > 79:
        return "hopeless"
    return "mild" if board.steady(board.clocks[0], board.threads, 1.0, hottest) < 85 else "hard"


def of_kind(group: str | None, count: int, seed: int) -> list[Board]:
    """The first `count` boards of a group in the order in which they are drawn; None: of any."""
    boards = (sampled(number, seed) for number in range(100_000))
    return list(islice((board for board in boards if group is None or kind(board) == group), count))
