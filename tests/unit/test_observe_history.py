"""The ring behind the plots: rows lie where their time says, gaps are gaps, sizes are bounded."""

from __future__ import annotations

import json
import sys

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from edged.observe.history import COLUMNS, EVENTS, FINE_S, TEXT_MAX, Events, History, Look, Ring

BOOT = 1000


def told(history: History, seconds: int, at: float) -> dict:
    return history.told(seconds, BOOT + at)


def looked(*looks: tuple[float, Look]) -> History:
    """Looks at seconds since the start; the monotonic clock runs along."""
    history = History()
    for at, look in looks:
        history.look(look, BOOT + at, 50.0 + at)
    return history


def steady(seconds: int, **fields) -> History:
    return looked(*((t, Look(tokens=8 * t, **fields)) for t in range(seconds + 1)))


def test_a_row_a_second_and_the_newest_is_the_one_that_is_over():
    history = steady(5, level=1, temperature_c=61.04, available_mb=900.6, duty=0.5)
    reply = told(history, 60, 5.4)
    assert (reply["interval_s"], reply["last"], reply["end"]) == (1, BOOT + 4, BOOT + 5)
    columns = reply["columns"]
    assert columns["tokens_per_s"] == [8.0] * 5
    assert columns["temperature_c"] == [61.0] * 5
    assert (columns["level"][-1], columns["available_mb"][-1], columns["duty"][-1]) == (1, 901, 0.5)
    assert columns["frequency_mhz"] == [None] * 5
    assert set(columns) == set(COLUMNS)
    assert {len(values) for values in columns.values()} == {5}
    assert told(history, 2, 5.4)["columns"]["tokens_per_s"] == [8.0, 8.0]


def test_more_than_the_fine_ring_holds_comes_by_ten_seconds():
    history = steady(45, temperature_c=50.0, queue=1)
    reply = told(history, FINE_S + 1, 45)
    assert (reply["interval_s"], reply["end"]) == (10, BOOT + 40)
    assert reply["columns"]["tokens_per_s"] == [8.0] * 4
    assert reply["columns"]["queue"] == [1] * 4


def test_ten_seconds_keep_what_was_worst():
    looks = [(float(t), Look(temperature_c=50 + t, available_mb=900 - t, queue=t % 4, ok=t)) for t in range(11)]
    columns = told(looked(*looks), 3600, 10)["columns"]
    assert (columns["temperature_c"], columns["available_mb"]) == ([60.0], [890])
    assert (columns["queue"], columns["ok"]) == ([3], [10])


def test_a_daemon_that_was_stopped_and_a_box_that_slept_leave_gaps():
    history = looked((0, Look()), (1, Look(tokens=8)), (6, Look(tokens=48)))
    columns = told(history, 60, 6)["columns"]
    assert columns["tokens_per_s"] == [8.0, None, None, None, None, 8.0]
    history = History()  # suspended: the boot clock goes on, the monotonic one does not
    for at, now, tokens in ((10, 10, 0), (11, 11, 8), (61, 12, 16)):
        history.look(Look(tokens=tokens), at, now)
    assert history.told(60, 61)["columns"]["tokens_per_s"] == [8.0, *[None] * 49, 8.0]
    assert history.told(60, 121)["columns"]["tokens_per_s"] == [None] * 60  # nothing was seen since


def test_looks_that_come_late_within_their_second_leave_no_gap():
    history = looked(*((t + (t * 37 % 90) / 100, Look(tokens=10 * t)) for t in range(30)))
    assert None not in told(history, 60, 29.9)["columns"]["tokens_per_s"]


def test_the_first_row_is_not_too_low_for_beginning_in_its_middle():
    history = looked((7, Look()), (8, Look(tokens=8)), (9, Look(tokens=16)), (10, Look(tokens=24)))
    assert told(history, 3600, 10)["columns"]["tokens_per_s"] == [8.0]


def test_a_young_daemon_tells_nothing_yet():
    assert told(History(), 60, 0)["columns"]["level"] == []
    assert told(looked((0, Look())), 60, 0.5)["columns"]["level"] == []
    assert told(steady(3), 3600, 3)["columns"]["level"] == []


def test_the_ring_forgets():
    history = steady(FINE_S + 50)
    columns = told(history, FINE_S, FINE_S + 50)["columns"]
    assert len(columns["tokens_per_s"]) == FINE_S
    assert None not in columns["tokens_per_s"]


def test_sizes():
    history = steady(3700, level=3, temperature_c=81.2, available_mb=1234.0, worker_mb=900.0, frequency_mhz=2400.0)
    reply = told(history, 3600, 3700)
    assert len(reply["columns"]["level"]) == 360
    events = Events()
    for n in range(300):
        events.note({"type": "watchdog", "why": "x" * 500, "level": "hot", "time": 1.0}, n)
    newest = events.newest(EVENTS)
    assert (len(newest), newest[0][1]["n"], len(newest[0][1]["why"])) == (200, 100, TEXT_MAX)
    assert len(msgspec.json.encode([reply, newest])) < 100_000
    kept = sum(sys.getsizeof(a) for ring in (history._fine, history._coarse) for a in ring._columns.values())
    assert kept < 50_000


def test_events_are_numbered_and_told_anew_each_time():
    events = Events()
    assert events.note({"type": "model", "event": "ready", "time": 5.0}, 1.0)["n"] == 0
    assert events.note({"type": "model", "event": "lost", "time": 6.0}, 2.0) == {
        "type": "model",
        "event": "lost",
        "time": 6.0,
        "n": 1,
    }
    assert events.newest(0) == []
    assert events.newest(1) == [(2.0, {"type": "model", "event": "lost", "n": 1})]


@given(st.lists(st.tuples(st.floats(0, 400), st.integers(0, 50)), max_size=60), st.integers(1, 3600))
def test_any_steps_of_time(steps, seconds):
    """Whatever the clock does: as many rows in every column, no more than asked for, and all of it JSON."""
    history, at, tokens = History(), 0.0, 0
    for step, more in steps:
        at, tokens = at + step, tokens + more
        history.look(Look(tokens=tokens, temperature_c=50.0), at, at)
        reply = history.told(seconds, at)
        lengths = {len(values) for values in reply["columns"].values()}
        assert len(lengths) == 1
        assert lengths.pop() <= -(-seconds // reply["interval_s"])
        assert reply["end"] <= at + 0.1
        json.dumps(reply, allow_nan=False)


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(-100, 100)), min_size=1, max_size=40))
def test_a_ring_holds_what_a_plain_dictionary_holds(puts):
    ring, plain, second = Ring(1, 20), {}, 0
    for step, value in puts:
        second += step
        ring.put(second, {"temperature_c": value}, 1.0)
        plain[second] = max(value, plain.get(second, value))
    last, columns = ring.rows(second + 1, 20)
    assert last == second
    first = min(plain)
    expected = [plain.get(row) for row in range(max(first, second - 19), second + 1)]
    assert [v is None for v in columns["temperature_c"]] == [v is None for v in expected]
    for found, wanted in zip(columns["temperature_c"], expected, strict=True):
        assert wanted is None or abs(found - wanted) < 0.06
