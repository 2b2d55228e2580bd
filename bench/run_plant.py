"""What pacing reaches on modelled boards (tests/plant): an hour at full load, the air warming from 25 to 45 °C.

Boards are drawn at random around a Pi 5 and a Pi 4 (SEED) and put in three groups: on *mild* ones the firmware's own
throttling keeps the chip below 85 °C; on *hard* ones it does not, but some setting of clock, threads and pauses rests
at 80 °C or less; the rest are *hopeless* (idle, or nearly, they pass 80 °C in such air) and only counted.

Per set of knobs, over the boards of a group: tokens against the clairvoyant schedule (knows board and air, never
rests above 80 °C, has all knobs), against the firmware in both readings, and what the clairvoyant itself reaches of
those: no schedule that keeps to 80 °C writes more. Least and mean of each. Then the chip's highest temperature within
ten minutes and later, the most reloads, boards that came to hot, and the longest gap between tokens over the median
one: median and most of the boards, and how many keep it within 3.

EDGED_SEEDS ("11,12,101"), EDGED_HOT_C and EDGED_TARGET_C choose other boards and thresholds than the defaults.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from plant.closed import Run, clairvoyant, kind, of_kind, stock, watched

from edged.config_watchdog import Heat, Knob, Pacing, Watchdog

SEEDS = [int(seed) for seed in os.environ.get("EDGED_SEEDS", "11").split(",")]
HOT_C = float(os.environ.get("EDGED_HOT_C", str(Heat().hot_c)))
TARGET_C = float(os.environ.get("EDGED_TARGET_C", str(Pacing().target_c)))
BOARDS = 24
KNOBS: dict[str, tuple[list[Knob], bool]] = {
    "clock, threads, pauses": (["frequency", "threads", "duty"], True),
    "clock, pauses": (["frequency", "duty"], True),
    "threads, pauses": (["threads", "duty"], False),
    "pauses": (["duty"], False),
    "clock": (["frequency"], True),
    "none": ([], False),
}


def main() -> None:
    for seed in SEEDS:
        run(seed)


def run(seed: int) -> None:
    drawn = [kind(board) for board in of_kind(None, 200, seed)]
    shares = ", ".join(f"{name} {drawn.count(name)}" for name in ("mild", "hard", "hopeless"))
    print(f"seed {seed}, hot at {HOT_C:g}, aim {TARGET_C:g}; of 200 boards: {shares}; {BOARDS} of each group are run")
    for group in ("mild", "hard", "hopeless"):
        boards = of_kind(group, BOARDS, seed)
        best = [clairvoyant(board) for board in boards]
        proportional = [stock(board) for board in boards]
        holding = [stock(board, holding=True) for board in boards]
        reached = f"{peak(proportional):.1f} °C (proportional), {peak(holding):.1f} (holding)"
        print(f"\n{group}: firmware alone reaches {reached}")
        print(f"  clairvoyant of firmware: {ratio(best, proportional)} proportional, {ratio(best, holding)} holding")
        print(f"  {'knobs':24}{'of clairvoyant':>16}{'of proportional':>17}{'of holding':>14}", end="")
        print(f"{'first/later °C':>16}{'reloads':>9}{'hot':>5}{'gap':>12}{'≤ 3':>5}")
        for name, (knobs, clocks) in KNOBS.items():
            rules = Watchdog(heat=Heat(hot_c=HOT_C), pacing=Pacing(knobs=knobs, target_c=TARGET_C))
            line(name, [watched(board, rules, clocks=clocks) for board in boards], best, proportional, holding)


def line(name: str, runs: list[Run], best: list[Run], proportional: list[Run], holding: list[Run]) -> None:
    first, later = max(run.first_c for run in runs), max(run.later_c for run in runs)
    hot = sum(any(level >= 2 for _, level in run.levels) for run in runs)
    gaps = sorted(run.gap for run in runs)
    print(
        f"  {name:24}{ratio(runs, best):>16}{ratio(runs, proportional):>17}{ratio(runs, holding):>14}"
        f"{first:9.1f}/{later:.1f}{max(run.reloads for run in runs):9}{hot:5}"
        f"{f'{statistics.median(gaps):.1f}/{gaps[-1]:.1f}':>12}{sum(gap <= 3 for gap in gaps):5}"
    )


def ratio(runs: Iterable[Run], others: Iterable[Run]) -> str:
    """Least and mean."""
    values = [run.tokens / other.tokens for run, other in zip(runs, others, strict=True)]
    return f"{min(values):.2f}/{statistics.mean(values):.2f}"


def peak(runs: Iterable[Run]) -> float:
    return max(max(run.first_c, run.later_c) for run in runs)


if __name__ == "__main__":
    main()
