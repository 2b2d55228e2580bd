"""`history` as series, characters, lines and words; events of two sources as one row."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.cli.following import Follower
from edged.cli.happened import COLOURS, happened, local
from edged.cli.past import HEAT, LEVEL, MEMORY, QUEUE, SERIES, WRITTEN, bounds, folded, mean, past, summary
from edged.cli.plots import ASCII, BLOCKS, plot, ramp, sparkline
from edged.cli.sparklines import last_hour
from edged.cli.terminal import cells

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
VALUES = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=80)


def reply(**fields):
    columns = {"level": [0, 1, None], "temperature_c": [50.0, 60.0, None], "queue": [0, 2, 1]}
    return {"interval_s": 10, "last": 99, "end_time": 1e9, "columns": columns, "events": []} | fields


def test_a_reply_of_this_version():
    found = past(reply())
    assert (found.interval_s, found.last, found.length) == (10, 99, 3)
    assert found.of(HEAT) == [50.0, 60.0, None]
    assert found.of(WRITTEN) == []


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["interval_s", "last", "end_time", "columns", "events"]), ANYTHING))
def test_whatever_a_daemon_says_is_drawn_or_left_out(fields):
    found = past(reply(**fields))
    if found is not None:
        for columns in (20, 80):
            for line in last_hour(found, columns, BLOCKS):
                assert cells(line) <= columns
        [happened(event) for event in found.events]


def test_folding_keeps_what_is_worst_and_cells_where_they_are():
    values = [1.0, 5.0, 2.0, None, None, None, 4.0]  # rows 3…9
    assert folded(values, 9, 3, 4, max) == [None, 5.0, None, 4.0]
    assert folded(values, 9, 3, 4, mean) == [None, 8 / 3, None, 4.0]
    assert folded([*values, 9.0, 1.0], 11, 3, 4, max) == [None, 5.0, None, 9.0]  # only the last cell moved
    assert folded([*values, 9.0, 1.0, 7.0], 12, 3, 4, max) == [5.0, None, 9.0, 7.0]


@given(VALUES, st.sampled_from(SERIES))
def test_an_axis_holds_its_values(values, series):
    if series.floor == 0.0:
        values = [None if v is None else abs(v) for v in values]
    low, high = bounds(series, values)
    assert high >= low + series.span * 0.999
    if series is not LEVEL:
        assert all(v is None or low - 1e-6 <= v <= high * (1 + 1e-6) + 1e-6 for v in values)


def test_summaries():
    assert summary(HEAT, [50.0, 61.5, 52.04]) == "52.0 °C (50.0–61.5)"
    assert summary(MEMORY, [900.0, 700.0, 800.0]) == "800 MB (least 700)"
    assert summary(QUEUE, [0.0, 3.0, 1.0]) == "1 (most 3)"
    assert summary(LEVEL, [0.0, 2.0, 0.0]) == "normal (was hot)"
    assert summary(LEVEL, [0.0, 0.0]) == "normal"
    assert summary(HEAT, [50.0, None]) == "? (50.0–50.0)"
    assert summary(HEAT, [None]) == "unknown"


def test_marks_tell_gap_from_zero():
    assert sparkline([0.0, None, 7.0], 0, 7, BLOCKS) == "▁ █"
    assert sparkline([0.0, None, 7.0], 0, 7, ASCII) == "_ #"
    assert plot([0.0, 3.5, 7.0, None], 0, 7, 2, BLOCKS) == [" ▁█ ", "▁██ "]


@given(VALUES, st.integers(1, 6))
def test_a_plot_is_as_wide_and_as_high_as_it_should_be(values, height):
    lines = plot(values, -1e6, 1e6, height, BLOCKS)
    assert [len(line) for line in lines] == [len(values)] * height
    for index, value in enumerate(values):
        column = [line[index] for line in lines]
        assert (value is None) == all(mark == " " for mark in column)
        assert "".join(column).strip() == "".join(column).lstrip()  # nothing floats


@pytest.mark.parametrize(
    ("encoding", "term", "marks"),
    [
        ("utf-8", "xterm-256color", BLOCKS),
        ("utf-8", "linux", ASCII),
        ("utf-8", "vt220", ASCII),
        ("ascii", "xterm", ASCII),
        ("iso8859-1", "xterm", ASCII),
        ("no-such", "xterm", ASCII),
    ],
)
def test_what_a_terminal_can_show(encoding, term, marks):
    assert ramp(encoding, term) == marks


def test_the_last_hour():
    n = 360
    columns = {"temperature_c": [50 + math.sin(i / 30) for i in range(n)], "queue": [0.0] * n, "level": [None] * n}
    found = past(reply(columns=columns, last=1000))
    heat, queue = last_hour(found, 100, BLOCKS)
    assert heat.startswith("last hour heat       ")
    assert queue.startswith("          queue      ▁▁▁")
    assert heat.endswith(")")
    narrow = last_hour(found, 40, BLOCKS)
    assert max(map(len, narrow)) <= 40
    young = last_hour(past(reply()), 100, BLOCKS)
    assert "  ▁" in young[0]  # the hour before it is empty


# ---- events ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "weight", "text"),
    [
        ({"type": "watchdog", "level": "hot", "why": "81.0 °C"}, "error", "level hot: 81.0 °C"),
        ({"type": "watchdog", "level": "normal", "why": ""}, "good", "level normal"),
        ({"type": "model", "event": "lost", "cause": "SIGKILL"}, "error", "the worker died: SIGKILL"),
        ({"type": "model", "event": "reloading", "reason": "heat", "profile": "s"}, "note", None),
        ({"type": "service", "event": "alarm", "text": "a\nb\x1b[2J"}, "warning", "a b[2J"),
        ({"type": "service", "event": "new", "n": 4, "time": 1}, "note", "type service, event new"),
        ({"type": ["?"], "event": {}}, "note", None),
        ({}, "note", ""),
    ],
)
def test_events_in_words(event, weight, text):
    found = happened(event)
    assert found.weight == weight
    assert found.weight in COLOURS
    assert text is None or found.text == text


def test_a_time_that_is_none():
    assert local("x") == local(None) == local(float("inf")) == "?"


def event(n: int, instance: str = "a") -> dict:
    return {"type": "model", "n": n, "instance": instance}


def test_past_and_live_are_one_row():
    follower = Follower()
    assert follower.past({"instance": "a", "events": [event(0), event(1)]}) == [event(0), event(1)]
    assert follower.live(event(2)) == [event(2)]
    assert follower.live({"type": "health"}) == []
    assert follower.live(event(2)) is None  # once more: ask
    assert follower.past({"instance": "a", "events": [event(n) for n in range(3)]}) == []
    assert follower.live(event(5)) is None  # 3 and 4 were missed
    assert follower.past({"instance": "a", "events": [event(n) for n in range(6)]}) == [event(3), event(4), event(5)]


def test_another_daemon_begins_anew():
    follower = Follower()
    follower.past({"instance": "a", "events": [event(0)]})
    assert follower.live(event(1, "b")) is None  # the number would fit
    assert follower.past({"instance": "b", "events": [event(0), event(1)]}) == [event(0, "b"), event(1, "b")]
    assert follower.live(event(2, "b")) == [event(2, "b")]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40))
def test_nothing_is_told_twice_or_lost(steps):
    """Live events may be lost; each is told once, in order, when `history` is asked at the end."""
    follower, count, told = Follower(), 0, []
    follower.past({"instance": "a", "events": []})

    def ask():
        told.extend(follower.past({"instance": "a", "events": [event(n) for n in range(count)]}))

    for arrives, more in steps:
        for _ in range(more):
            count += 1
            if arrives:
                new = follower.live(event(count - 1))
                ask() if new is None else told.extend(new)
    ask()
    assert [e["n"] for e in told] == list(range(count))
