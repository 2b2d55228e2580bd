"""The picture of `edgectl top`: any size, anything a daemon may say, every key."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from edged.cli.past import SERIES, past
from edged.cli.plots import BLOCKS
from edged.cli.top.box import Box, Look, Rows
from edged.cli.top.keys import Ui, Wish, pressed, settle
from edged.cli.top.shares import PLOTS, share
from edged.cli.top.view import Size, picture

NOW = 1_790_000_000.0


def history(last: int, rows: int = 100, interval: int = 1, end: float = NOW):
    columns = {series.column: [float(i % 5) for i in range(rows)] for series in SERIES}
    events = [{"type": "model", "event": "lost", "cause": f"SIG{n}", "time": NOW - n, "n": n} for n in range(8)]
    return past({"interval_s": interval, "last": last, "end_time": end, "columns": columns, "events": events})


def request(n: int) -> dict:
    return {
        "id": f"sensor-{n}",
        "identity": "uid:1000",
        "state": "running" if n < 3 else "queued",
        "priority": "normal",
        "age_ms": 1000 * n,
        "deadline_in_ms": 5000,
        "prompt_tokens": 100,
        "prompt_read": 40,
        "completion_tokens": 7 * n,
        "max_tokens": 50,
    }


def look(n: int = 5, **fields) -> Look:
    status = {"state": "ready", "ready": True, "version": "1", "model": {"name": "m"}, "warnings": ["w" * 200, "v"]}
    requests = [request(i) for i in range(n)]
    return Look(**{"at": NOW, "status": status, "past": history(1000), "requests": requests} | fields)


def seen(*looks: Look) -> Box:
    box = Box()
    for one in looks or (look(),):
        box.take(one)
    return box


def shown(box: Box, ui: Ui | None = None, columns: int = 80, rows: int = 24) -> list[str]:
    console = Console(width=columns, height=rows, file=io.StringIO(), color_system=None)
    options = console.options.update(width=columns, no_wrap=True, overflow="crop")
    lines = []
    for part in picture(box, ui or Ui(), Size(columns, rows), BLOCKS, NOW):
        lines += ["".join(s.text for s in line) for line in console.render_lines(part, options, pad=False)]
    return lines


@settings(max_examples=30)
@given(st.integers(1, 200), st.integers(1, 70), st.integers(0, 30), st.booleans(), st.booleans())
def test_every_size_is_filled_and_not_exceeded(columns, rows, requests, hidden, away):
    box = seen(look(requests, **({"requests": None, "hidden": "not for you"} if hidden else {})))
    if away:
        box.take(Look(at=NOW + 9, why="nobody listens"))
    for ui in (Ui(), Ui(chosen=max(0, requests - 1)), Ui(hour=True, paused=True)):
        lines = shown(box, ui, columns, rows)
        assert len(lines) == max(rows, 2)
        assert max(map(len, lines)) <= columns
    assert len(shown(box, Ui(help=True), columns, rows)) <= rows


@given(st.integers(0, 80), st.integers(0, 200), st.integers(0, 50), st.sets(st.sampled_from(PLOTS)))
def test_rows_are_given_out_once(rows, requests, events, there):
    shares = share(rows, [series for series in PLOTS if series in there], requests, events)
    assert sum(shares.plots.values()) + shares.axis + shares.requests + shares.events <= rows
    assert shares.requests != 1
    assert shares.events != 1


def test_what_stands_there():
    text = "\n".join(shown(seen()))
    for words in ("ready, edged 1", "REQUESTS  3 running, 2 waiting", "[=-------] 7/50", "reading 40/100", "waiting"):
        assert words in text
    assert "the worker died: SIG7" in text
    assert "5 min ago" in text


def test_the_chosen_request_is_on_the_screen():
    box = seen(look(30))
    lines = shown(box, Ui(chosen=29))
    assert any("sensor-29" in line for line in lines)
    assert not any("sensor-0 " in line for line in lines)


def test_a_daemon_that_went_away():
    box = seen(look(), Look(at=NOW + 1, why="nobody listens at x"), Look(at=NOW + 20, why="nobody listens at x"))
    text = "\n".join(shown(box))
    assert "not reachable since" in text
    assert "nobody listens at x" in text
    assert "sensor-1" not in text
    assert box.fine.last == 1020  # time goes on, without rows
    assert box.fine.of(SERIES[0])[-20:] == [None] * 20
    box.take(look(past=history(1023, rows=2, end=NOW + 23), at=NOW + 23))
    assert box.away_since is None
    assert box.fine.of(SERIES[0])[-22:] == [None] * 20 + [0.0, 1.0]
    assert box.fine.of(SERIES[0])[-30] is not None  # what was before stands


@pytest.mark.parametrize("seconds", [1, 20, 400])
def test_how_a_daemon_stands_that_went_away_is_not_known(seconds):
    """What was known of it is history: in the plots, and nowhere as what is now."""
    well = {"watchdog": {"level": "normal", "heat": "normal", "memory": "normal", "readings": {}}}
    there = look(status=(look().status or {}) | well)
    assert any(line.startswith("level normal") for line in shown(seen(there)))
    gone = [Look(at=NOW + second, why="nobody listens at x") for second in range(1, seconds + 1)]
    lines = shown(seen(there, *gone), columns=100)
    assert "level ?" in lines
    assert not any(line.startswith("level normal") or "w" * 20 in line for line in lines)
    (plot,) = [line for line in lines if line.startswith("level ") and line != "level ?"] or ["unknown"]
    assert "? (was" in plot or "unknown" in plot


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_the_help_is_whole(columns):
    lines = shown(seen(), Ui(help=True), columns, 60)
    assert max(map(len, lines)) <= columns
    said = " ".join(" ".join(lines).split())
    for end in ("the box asleep).", "tokens of prompts read.", "and back", "asks first"):
        assert end in said


def test_before_the_first_look():
    assert shown(Box())[0] == "looking …"


def test_rows_are_joined_by_number():
    rows = Rows(1, 300)
    rows.take(history(1000, rows=3))
    rows.take(history(1002, rows=2))
    assert rows.of(SERIES[0])[-5:] == [0.0, 1.0, 2.0, 0.0, 1.0]
    assert len(rows.of(SERIES[0])) == 300
    rows.take(history(5, rows=3))  # booted anew
    assert rows.of(SERIES[0])[-4:] == [None, 0.0, 1.0, 2.0]


def test_only_what_is_missing_is_asked_for():
    box = seen()
    assert Box().missing_s(NOW, hour=False) == 300
    assert box.missing_s(NOW + 1, hour=False) == 3
    assert box.missing_s(NOW + 1000, hour=False) == 300
    assert box.missing_s(NOW - 50, hour=False) == 300  # the clock was set
    assert box.missing_s(NOW, hour=True) == 3600
    box.take(look(past=history(100, interval=10)))
    assert box.missing_s(NOW + 5, hour=True) == 301


# ---- keys ------------------------------------------------------------------------------------------------------

REQUESTS = [request(n) for n in range(4)]


def test_quit_pause_help_hour():
    ui = Ui()
    assert pressed(ui, "p", []) == [Wish.NOTHING]
    assert ui.paused
    assert pressed(ui, "h", []) == [Wish.LOOK]
    assert (ui.hour, ui.paused) == (True, False)
    pressed(ui, "?", [])
    assert ui.help
    pressed(ui, "x", [])
    assert not ui.help
    assert pressed(ui, "q", []) == [Wish.QUIT]
    assert pressed(Ui(help=True), "q", []) == [Wish.QUIT]


@pytest.mark.parametrize("keys", ["jj", "\x1b[B\x1b[B", "\x1bOBj", "jjjk"])
def test_choosing(keys):
    ui = Ui()
    pressed(ui, keys, REQUESTS)
    assert (ui.chosen, ui.name) == (2, ("uid:1000", "sensor-2"))
    pressed(ui, "k" * 9, REQUESTS)
    assert ui.chosen == 0


def test_the_chosen_one_stays_chosen_when_others_go():
    ui = Ui()
    pressed(ui, "jj", REQUESTS)
    settle(ui, REQUESTS[1:])
    assert ui.chosen == 1
    settle(ui, [])
    assert (ui.chosen, ui.name) == (0, None)


def test_a_cancel_is_asked_about_and_is_of_the_one_that_was_shown():
    ui = Ui()
    assert pressed(ui, "c", []) == [Wish.NOTHING]
    assert ui.asked is None
    pressed(ui, "jc", REQUESTS)
    assert "cancel sensor-1 of uid:1000? y/n" in shown(seen(), ui)[-1]
    settle(ui, REQUESTS[2:])
    assert pressed(ui, "y", REQUESTS[2:]) == [Wish.CANCEL]
    assert ui.asked["id"] == "sensor-1"
    pressed(ui, "q", REQUESTS)  # anything else is a no, this too
    assert ui.asked is None


@given(st.text(max_size=30))
def test_any_keys(keys):
    ui = Ui()
    pressed(ui, keys, REQUESTS)
    assert 0 <= ui.chosen < len(REQUESTS)
