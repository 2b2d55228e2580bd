"""No sensor fills the log: an alarm is known by what it is about, not by what was found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edged.watchdog.alarms import AGAIN_S, MOST, Alarms, bounded, kind


def test_once_while_it_stands_and_whatever_it_finds() -> None:
    alarms = Alarms()
    told = [alarms.fresh([f"thermal zone cpu: says nonsense ({n} °C)"], float(n)) for n in range(5000)]
    assert [texts for texts in told if texts] == [["thermal zone cpu: says nonsense (0 °C)"]]


def test_one_that_comes_and_goes_is_told_every_ten_minutes() -> None:
    alarms = Alarms()
    told = [n for n in range(3600) if alarms.fresh(["a: vanished"] * (n % 2), float(n))]
    assert told == [1, 601, 1201, 1801, 2401, 3001]


def test_another_kind_or_another_zone_is_another_alarm() -> None:
    alarms = Alarms()
    assert alarms.fresh(["a: vanished", "b: vanished"], 0.0) == ["a: vanished", "b: vanished"]
    assert alarms.fresh(["a: says nothing", "b: vanished"], 1.0) == ["a: says nothing"]


def test_what_comes_back_soon_and_stays_is_told_later() -> None:
    alarms = Alarms()
    assert alarms.fresh(["a"], 0.0)
    assert not alarms.fresh([], 1.0)
    assert [n for n in range(2, 2000) if alarms.fresh(["a"], float(n))] == [600]


def test_for_status() -> None:
    assert bounded(["a"] * MOST) == ["a"] * MOST
    assert bounded(["a"] * 100) == [*["a"] * MOST, f"more alarms ({100 - MOST})"]
    assert kind("no parenthesis") == "no parenthesis"


@given(st.lists(st.lists(st.integers(0, 40).map(str)), max_size=60), st.floats(0.5, 100))
def test_whatever_comes_the_log_is_bounded(looks: list[list[str]], step: float) -> None:
    alarms, told = Alarms(), []
    for number, look in enumerate(looks):
        told += [(number * step, text) for text in alarms.fresh(look, number * step)]
    for at, text in told:
        window = [other for when, other in told if at <= when < at + AGAIN_S - 1e-6]  # sums of floats
        assert len(window) <= MOST
        assert window.count(text) == 1
