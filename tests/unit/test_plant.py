"""The plant is what it says it is; pacing on a few of its boards. All of them: tests/chaos/test_plant_boards.py."""

from __future__ import annotations

import pytest
from plant.board import FITTED, FITTED_FAN, Heat
from plant.closed import clairvoyant, kind, of_kind, stock, watched

from edged.config_watchdog import Watchdog


def heated(board, air_c: float, seconds: int) -> tuple[float, list[float]]:
    """Temperature at rest, then each second at full load."""
    heat = Heat(board, air_c)
    idle = heat.chip_c
    heat.busy = True
    seen = []
    for _ in range(seconds):
        heat.step(1.0, air_c)
        seen.append(heat.chip_c)
    return idle, seen


def test_the_fitted_board_follows_what_was_published():
    idle, seen = heated(FITTED, 22, 3000)
    assert 48 <= idle <= 52
    assert 150 <= next(n for n, value in enumerate(seen) if value >= 80) <= 330
    assert 86 <= seen[-1] <= 90
    idle, seen = heated(FITTED_FAN, 22, 1800)
    assert idle <= 46
    assert 59.5 <= seen[-1] <= 63


def test_a_board_that_rests_is_where_it_is_said_to_rest():
    board = of_kind("mild", 1, 5)[0]
    heat = Heat(board, 25)
    heat.busy, heat.cap_mhz = True, board.clocks[0]
    for _ in range(6000):
        heat.step(1.0, 25)
    assert heat.chip_c == pytest.approx(board.steady(board.clocks[0], board.threads, 1.0, 25), abs=0.7)


def test_speed_rises_with_every_knob_and_so_does_heat():
    for board in of_kind(None, 10, 3):
        low, high = board.clocks[0], board.clocks[-1]
        assert board.rate(high, board.threads, 1.0) == pytest.approx(board.tokens_per_s)
        for better, worse in (
            ((high, 2, 1.0), (low, 2, 1.0)),
            ((high, 2, 1.0), (high, 1, 1.0)),
            ((high, 2, 1.0), (high, 2, 0.5)),
        ):
            assert board.rate(*better) > board.rate(*worse)
            assert board.watts(*better, 60) > board.watts(*worse, 60)


def test_an_hour_in_which_the_air_warms():
    for board in of_kind("mild", 3, 2):
        run, best = watched(board, Watchdog()), clairvoyant(board)
        assert max(run.first_c, run.later_c) <= 80
        assert run.reloads == 0
        assert run.tokens >= 0.9 * best.tokens
        assert max(level for _, level in run.levels) == 1
    board = of_kind("hard", 1, 2)[0]
    run = watched(board, Watchdog())
    assert run.later_c <= 80
    assert run.reloads <= 1
    assert kind(board) == "hard"
    assert max(stock(board).later_c, stock(board, holding=True).later_c) > 85


def test_a_board_that_stays_cool_loses_nothing():
    run = watched(FITTED_FAN, Watchdog(), lambda _: 22.0, 1200)
    assert run.tokens == pytest.approx(1200 * FITTED_FAN.tokens_per_s)
    assert run.gap == 1
