"""A board that gets warm: what its cores burn, where the heat goes, and how fast a model writes on it.

Heat: the chip (a few seconds) on a sink or bare board (minutes) in the air; two thermal resistances and capacities.
Still air takes the more the hotter the sink: its resistance is `sink_r` at 30 °C above the air and goes with ΔT^−¼
(natural convection). It is this that lets a bare Pi 5 idle at 50 °C and stay below 89 under load.

    P = uncore + leakage(T)·V/Vmax + Σ busy cores  c · GHz · V² · activity · duty
    leakage(T) = leak_w · e^((T − 60)/leak_k)

Speed: a token takes `1 − memory` parts of computing, which falls with clock and threads, and `memory` parts of reading
weights, which `saturate` threads do as fast as any number, and a slower clock hardly slower (its square root).

Firmware: "between 80 and 85 °C the cores are progressively throttled back" (raspberrypi/documentation,
frequency-management.adoc), which may be read in two ways, and both are here. *Proportional*: the limit of the clock
falls from 80 °C to the lowest clock at 85; a busy board rests at 82 to 85 (as the Pi 500 below). *Holding*: a step
down each second above 80, up below 79; it rests at 80. Fan: steps at 50/60/67.5/75 °C, 5 °C hysteresis.

Where figures are from
* Pi 5, volts at each clock: measured, geerlingguy/sbc-reviews issue 21 (comment of 2023-11-13): 0.915 V at 2400 MHz,
  0.820 at 1500, and no clock below 1500 whatever cpufreq says.
* Pi 5 bare, in a room: idle about 50 °C and 80 °C "within a few minutes" of four busy cores (pidiylab.com's and
  beamostore.com's cooling guides); average 81, peak 89 °C in Phoronix' benchmarks, 56 and 72 with the active cooler.
* Pi 5 with the active cooler, four busy cores for long: 61 °C (nschloe/stressberry issue 139); in a passive aluminium
  case 63 °C after more than half an hour (issue 138).
* Pi 500 with a language model: 80 to 85 °C, clock between 2.2 and 2.4 GHz (geerlingguy/sbc-reviews issue 60): the
  firmware's throttling read as proportional.
* Pi 4, volts: assumed, a straight line from 0.76 V at 600 MHz to 0.91 at 1800.
* How fast the chip follows: a Pi 3 rose by 9 °C in the first second of load, 14 in three, 22 in nine (MichaIng/DietPi
  issue 356, 2016-05-27), hence `chip_s` of a few seconds and 2…4 °C/W.

`FITTED` and `FITTED_FAN` are the Pi 5 of the second and third line; `sampled` draws others around them and a Pi 4.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

THROTTLE_C, HARD_C = 80.0, 85.0
FAN_STEPS_C = (50.0, 60.0, 67.5, 75.0)
FAN_HYSTERESIS_C = 5.0
STILL_C = 30.0

PI5_VOLTS = {2400: 0.915, 2300: 0.905, 2200: 0.895, 2100: 0.885, 2000: 0.875, 1900: 0.860, 1800: 0.850, 1700: 0.840}
PI5_VOLTS |= {1600: 0.830, 1500: 0.820}
PI4_VOLTS = {mhz: 0.76 + 0.15 * (mhz - 600) / 1200 for mhz in range(1800, 500, -100)}


@dataclass(frozen=True)
class Board:
    name: str
    volts: dict[int, float]  # MHz → V
    core_w: float = 0.57  # per GHz·V² of one core
    activity: float = 1.0
    uncore_w: float = 1.3
    leak_w: float = 0.6
    leak_k: float = 40.0
    chip_r: float = 2.2  # °C/W, chip to sink
    chip_s: float = 4.0
    sink_r: float = 14.0  # °C/W, sink to air, without a fan
    sink_c: float = 50.0  # J/°C
    fan: tuple[float, ...] = ()  # parts of sink_r at each step
    sensor_s: float = 1.0
    sensor_step: float = 1.0
    threads: int = 4
    tokens_per_s: float = 8.0  # at full clock with all threads
    memory: float = 0.5
    saturate: float = 2.5

    @property
    def clocks(self) -> list[int]:
        return sorted(self.volts)

    def rate(self, mhz: int, threads: int, duty: float) -> float:
        """Tokens per second."""
        clock = mhz / self.clocks[-1]
        full = 1 - self.memory + self.memory / min(1.0, self.threads / self.saturate)
        computing = (1 - self.memory) * self.threads / threads / clock
        reading = self.memory / min(1.0, threads / self.saturate) / math.sqrt(clock)
        return self.tokens_per_s * duty * full / (computing + reading)

    def watts(self, mhz: int, threads: int, duty: float, chip_c: float) -> float:
        volts = self.volts[mhz]
        leakage = self.leak_w * math.exp((min(chip_c, 150.0) - 60) / self.leak_k) * volts / self.volts[self.clocks[-1]]
        return self.uncore_w + leakage + threads * duty * self.activity * self.core_w * mhz / 1000 * volts * volts

    def steady(self, mhz: int, threads: int, duty: float, air_c: float) -> float:
        """The temperature it comes to with the fan, if any, at its highest step; above 150: it never settles."""
        chip = air_c
        for _ in range(60):
            watts = self.watts(mhz, threads, duty, chip)
            after = air_c + self.rise(watts, len(self.fan)) + self.chip_r * watts
            if after > 150 or abs(after - chip) < 0.01:
                return after
            chip = after
        return chip

    def rise(self, watts: float, fan: int) -> float:
        """Of the sink over the air, at rest."""
        if fan:
            return self.sink_r * self.fan[fan - 1] * watts
        return float((self.sink_r * STILL_C**0.25 * watts) ** 0.8)  # ΔT = r·(30/ΔT)^¼·W

    def flow(self, rise: float, fan: int) -> float:
        """Watts that go into the air."""
        if fan:
            return rise / (self.sink_r * self.fan[fan - 1])
        return rise / self.sink_r * (max(rise, 1.0) / STILL_C) ** 0.25


FITTED = Board("Pi 5 bare (fitted)", PI5_VOLTS)
FITTED_FAN = replace(
    FITTED, name="Pi 5 active cooler (fitted)", sink_r=9.0, sink_c=70.0, fan=(0.65, 0.5, 0.42, 0.36), chip_r=1.6
)


def sampled(number: int, seed: int) -> Board:
    """Repeatable: the same number and seed give the same board."""
    draw = random.Random(f"{seed}/{number}")
    pi5 = number % 2 == 0
    cooling = ("bare", "passive", "case", "fan in a closed case")[number // 2 % 4]
    base = FITTED if pi5 else replace(FITTED, volts=PI4_VOLTS, core_w=0.85, uncore_w=1.1, tokens_per_s=3.0)
    around = draw.uniform
    resistance = {"bare": (11, 15), "passive": (7, 11), "case": (12, 17), "fan in a closed case": (11, 15)}[cooling]
    return replace(
        base,
        name=f"{'Pi 5' if pi5 else 'Pi 4'} {cooling}",
        core_w=base.core_w * around(0.85, 1.15),
        activity=around(0.7, 1.0),
        uncore_w=base.uncore_w * around(0.8, 1.2),
        leak_w=around(0.3, 0.9),
        leak_k=around(35, 50),
        chip_r=around(1.5, 3.5),
        chip_s=around(2.0, 8.0),
        sink_r=around(*resistance),
        sink_c=around(30, 120),
        fan=tuple(part * around(0.95, 1.05) for part in (0.85, 0.75, 0.68, 0.6)) if "fan" in cooling else (),
        sensor_s=around(0.5, 3.0),
        sensor_step=draw.choice((0.5, 1.0)),
        threads=draw.choice((3, 4)),
        tokens_per_s=base.tokens_per_s * around(0.5, 2.0),
        memory=around(0.3, 0.75),
        saturate=around(1.5, 3.0),
    )


class Heat:
    """A board in time. `cap_mhz`, `threads`, `duty` are what the daemon sets; the firmware adds its own."""

    def __init__(self, board: Board, air_c: float, seed: int = 0, *, holding: bool = False) -> None:
        self.board = board
        self.holding = holding
        self.cap_mhz: int | None = None
        self.threads = board.threads
        self.duty = 1.0
        self.busy = False
        self.firmware_mhz = board.clocks[-1]
        self._fan = 0
        self._draw = random.Random(seed)
        idle = board.watts(board.clocks[0], board.threads, 0.0, air_c + 20)
        self.sink_c = air_c + board.rise(idle, 0)
        self.chip_c = self.sink_c + board.chip_r * idle
        self._lagged = self.chip_c
        self.shown_c = self.chip_c
        self._parts_s = 0.0
        self._memo: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def mhz(self) -> int:
        """The clock in force while busy: the highest that daemon and firmware allow."""
        clocks = self.board.clocks
        most = min(self.firmware_mhz, clocks[-1] if self.cap_mhz is None else self.cap_mhz)
        return max((clock for clock in clocks if clock <= most), default=clocks[0])

    @property
    def rate(self) -> float:
        return self.board.rate(self.mhz, self.threads, self.duty) if self.busy else 0.0

    @property
    def throttled_bits(self) -> int:
        """As get_throttled: capped and soft limit from 80 °C, throttled from 85."""
        return (0b1010 if self.firmware_mhz < self.board.clocks[-1] else 0) | (0b0100 if self.chip_c >= HARD_C else 0)

    def step(self, seconds: float, air_c: float) -> None:
        """At most about a second: the sink is taken as constant meanwhile."""
        board = self.board
        if seconds != self._parts_s:
            self._parts_s = seconds
            self._memo = (
                1 - math.exp(-seconds / board.chip_s),
                1 - math.exp(-seconds / board.sensor_s),
                seconds / board.sink_c,
            )
        chip, sensor, sink = self._memo
        clock = self.mhz if self.busy else board.clocks[0]
        watts = board.watts(clock, self.threads, self.duty if self.busy else 0.0, self.chip_c)
        self.sink_c += sink * (watts - board.flow(self.sink_c - air_c, self._fan))
        self.chip_c += chip * (self.sink_c + board.chip_r * watts - self.chip_c)
        self._lagged += sensor * (self.chip_c - self._lagged)
        noisy = self._lagged + self._draw.gauss(0.0, 0.15)
        self.shown_c = math.floor(noisy / board.sensor_step) * board.sensor_step
        self._firmware()
        self._spin()

    def _firmware(self) -> None:
        low, high = self.board.clocks[0], self.board.clocks[-1]
        if self.holding:
            step = -100 if self.chip_c > THROTTLE_C else 100 if self.chip_c < THROTTLE_C - 1 else 0
            self.firmware_mhz = min(high, max(low, self.firmware_mhz + step))
            return
        part = min(1.0, max(0.0, (self.chip_c - THROTTLE_C) / (HARD_C - THROTTLE_C)))
        self.firmware_mhz = int(high - part * (high - low))

    def _spin(self) -> None:
        if not self.board.fan:
            return
        while self._fan < len(FAN_STEPS_C) and self.chip_c >= FAN_STEPS_C[self._fan]:
            self._fan += 1
        while self._fan and self.chip_c < FAN_STEPS_C[self._fan - 1] - FAN_HYSTERESIS_C:
            self._fan -= 1
