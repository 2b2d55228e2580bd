"""What `WATCHDOG=1` says of the worker."""

from __future__ import annotations

from edged.watchdog.care import KILLED_S, OVERDUE_S, Care

INF = float("inf")


def test_whatever_has_a_time_to_act_is_dealt_with():
    care = Care()
    for due in (INF, 101.0, 100.0, 100.0 - OVERDUE_S):
        assert care.look(100.0, due=due, killed=[]) == ""


def test_a_time_that_passes_without_an_act_is_not():
    assert "was not done" in Care().look(100.0, due=100.0 - OVERDUE_S - 0.1, killed=[])


def test_a_killed_worker_has_its_time_to_go():
    care = Care()
    assert care.look(100.0, due=INF, killed=[1]) == ""
    assert care.look(100.0 + KILLED_S, due=INF, killed=[1]) == ""
    assert "is not gone" in care.look(100.1 + KILLED_S, due=INF, killed=[1, 2])
    assert care.look(101.0 + KILLED_S, due=INF, killed=[2]) == ""  # the first is gone at last
    assert "is not gone" in care.look(100.2 + 2 * KILLED_S, due=INF, killed=[2])


def test_one_worker_after_the_other_killed_is_well():
    care = Care()
    for n in range(50):
        assert care.look(100.0 + n, due=INF, killed=[n]) == ""
