"""An hour at full load on 24 boards of each group (bench/run_plant.py), the air warming from 25 to 45 °C."""

from __future__ import annotations

import statistics

import pytest
from plant.closed import clairvoyant, of_kind, stock, watched

from edged.config_watchdog import Pacing, Watchdog

BOARDS = 24


@pytest.fixture(params=[11, 12])
def seed(request):
    return request.param


def test_where_the_firmware_alone_would_do(seed):
    """Never above 80 °C (the first ten minutes included), never hot, no reload; of the tokens of the clairvoyant
    schedule 0.90 on every board, of what the firmware writes at 80 °C 0.95 on average."""
    boards = of_kind("mild", BOARDS, seed)
    runs = [watched(board, Watchdog()) for board in boards]
    best = [clairvoyant(board).tokens for board in boards]
    firmware = [stock(board, holding=True).tokens for board in boards]
    assert max(max(run.first_c, run.later_c) for run in runs) <= 80
    assert max(level for run in runs for _, level in run.levels) == 1
    assert sum(run.reloads for run in runs) == 0
    assert min(run.tokens / most for run, most in zip(runs, best, strict=True)) >= 0.90
    assert statistics.mean(run.tokens / held for run, held in zip(runs, firmware, strict=True)) >= 0.95
    assert max(run.gap for run in runs) <= 3


def test_where_it_would_not(seed):
    """Never above 80 °C, at most one reload."""
    runs = [watched(board, Watchdog()) for board in of_kind("hard", BOARDS, seed)]
    assert max(max(run.first_c, run.later_c) for run in runs) <= 80
    assert max(run.reloads for run in runs) <= 1


def test_without_the_clock_it_is_safe_and_dearer(seed):
    """Threads and pauses alone: at most one reload, never far above 80 °C; they cost a fifth of the tokens."""
    rules = Watchdog(pacing=Pacing(knobs=["threads", "duty"]))
    boards = of_kind("mild", BOARDS, seed)
    runs = [watched(board, rules, clocks=False) for board in boards]
    assert max(max(run.first_c, run.later_c) for run in runs) <= 82
    assert max(run.reloads for run in runs) <= 1
