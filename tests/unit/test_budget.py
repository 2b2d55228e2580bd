"""How often a worker may die, and how long the next one waits (design 4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.config import Restart
from edged.watchdog.budget import HEALTHY_S, Budget

RULES = Restart()


def waits(budget: Budget, *times: float) -> list[float | None]:
    """For each death: how long until the next start; None: no more starts."""
    out = []
    for now in times:
        again, at = budget.death(now)
        out.append(at - now if again else None)
    return out


def test_the_first_starts_at_once_the_next_back_off() -> None:
    assert waits(Budget(RULES), 0, 10, 20) == [0, 1, 2]


def test_the_back_off_is_bounded() -> None:
    budget = Budget(Restart(max=100, backoff_s=0.5, backoff_max_s=5))
    assert waits(budget, *range(12)) == [0, 1, 2, 4] + [5] * 8


def test_the_budget_is_for_restarts_in_a_window() -> None:
    budget = Budget(RULES)
    assert waits(budget, 0, 1, 2, 3) == [0, 1, 2, None]


def test_it_lasts_until_the_oldest_death_leaves_the_window() -> None:
    budget = Budget(RULES)
    waits(budget, 100, 101, 102)
    assert budget.death(110) == (False, 400)


def test_after_that_there_is_one_more() -> None:
    budget = Budget(RULES)
    waits(budget, 100, 101, 102, 110)
    assert budget.recent(400) == 3
    assert budget.death(405)[0] is True


def test_deaths_that_left_the_window_are_not_counted() -> None:
    """`n` counts the deaths inside the window."""
    budget = Budget(RULES)
    assert waits(budget, 0, 200, 350) == [0, 1, 1]


def test_health_sets_the_back_off_to_zero() -> None:
    budget = Budget(RULES)
    waits(budget, 0, 1)
    budget.healthy()
    assert waits(budget, 100) == [0]


def test_health_does_not_refill_the_budget() -> None:
    budget = Budget(RULES)
    for now in (0, 70, 140):
        assert waits(budget, now) == [0]
        budget.healthy()
    assert waits(budget, 210) == [None]


def test_health_is_60_s() -> None:
    assert HEALTHY_S == 60


def test_no_restarts_at_all() -> None:
    assert Budget(Restart(max=0)).death(5) == (False, 305)


def test_recent_counts_the_window() -> None:
    budget = Budget(RULES)
    waits(budget, 0, 100)
    assert [budget.recent(now) for now in (100, 299, 300, 400)] == [2, 2, 1, 0]


rules = st.builds(
    Restart,
    max=st.integers(0, 12),
    window_s=st.integers(1, 60),
    backoff_s=st.integers(0, 8),
    backoff_max_s=st.integers(0, 20),
)
lives = st.lists(st.tuples(st.integers(0, 20), st.sampled_from([True, False, False])), max_size=40)


@given(rules, lives)
def test_the_words_of_the_design(restart: Restart, run: list[tuple[int, bool]]) -> None:
    budget, now = Budget(restart), 0.0
    deaths: list[float] = []
    since_health: list[float] = []
    for lived, healthy in run:
        now += lived
        if healthy:
            budget.healthy()
            since_health.clear()
        inside = [t for t in deaths if t + restart.window_s > now]
        n = len([t for t in since_health if t + restart.window_s > now])
        again, at = budget.death(now)
        deaths.append(now)
        since_health.append(now)
        inside.append(now)
        assert budget.recent(now) == len(inside)
        assert again == (len(inside) <= restart.max)
        if not again:
            assert at == inside[0] + restart.window_s
        elif n == 0:
            assert at == now
        else:
            assert at == now + min(restart.backoff_max_s, restart.backoff_s * 2**n)
        now = max(now, at)


@pytest.mark.parametrize("deaths", [10_000])
def test_any_number_of_deaths_is_counted(deaths: int) -> None:
    budget = Budget(Restart(max=1 << 30, window_s=10))
    for n in range(deaths):
        assert budget.death(n)[1] <= n + 5
    assert len(budget._deaths) <= 11
