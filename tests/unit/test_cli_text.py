"""What edgectl makes of numbers, tables and replies: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.cli import reach
from edged.cli.conversation import Conversation
from edged.cli.glance import drawn, glance
from edged.cli.output import printable
from edged.cli.profile import listed
from edged.cli.requests import columns
from edged.cli.table import Column, table
from edged.cli.terminal import cells, cut, wrapped
from edged.cli.words import duration

ROW = {
    "id": "sensor7-000042",
    "identity": "uid:1000",
    "state": "running",
    "priority": "normal",
    "stream": "reply",
    "age_ms": 12_300,
    "deadline_in_ms": 107_700,
    "prompt_tokens": 31,
    "completion_tokens": 17,
    "max_tokens": 256,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
NAMES = (
    "state",
    "version",
    "uptime_s",
    "model",
    "cache",
    "sessions",
    "profile",
    "queue",
    "slots",
    "speed",
    "threads",
    "watchdog",
    "warnings",
)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0.0 s"), (4.21, "4.2 s"), (59, "59 s"), (184.9, "3 min 4 s"), (3725, "1 h 2 min"), (183_600, "2 d 3 h"),
    ],
)  # fmt: skip
def test_duration(seconds, said):
    assert duration(seconds) == said


@given(st.text(), st.integers(12, 100))
def test_wrapped_keeps_every_character_and_the_width(text, width):
    found = wrapped(text, width)
    assert all(cells(line) <= width for line in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


@given(st.text(), st.integers(2, 40))
def test_cut_keeps_the_width(text, width):
    assert cells(cut(text, width)) <= width
    assert cut(text, 1000) == text


def test_wide_characters_count_twice():
    assert cells("a時") == 3
    assert wrapped("時" * 8, 13) == ["時" * 6, "時" * 2]


def test_a_table_leaves_out_what_matters_least():
    whole, pipe = table(columns([ROW]), 200), table(columns([ROW]), None)
    assert whole == pipe
    assert whole[0].split() == "ID IDENTITY STATE TOKENS AGE ENDS IN PRIORITY PROMPT STREAM".split()  # noqa: SIM905
    at_80 = table(columns([ROW]), 80)
    assert at_80[1].split() == "sensor7-000042 uid:1000 running 17/256 12 s 1 min 47 s normal 31".split()  # noqa: SIM905
    assert table(columns([ROW]), 40)[0].split() == ["ID", "STATE", "TOKENS", "AGE"]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_a_table_fits(width):
    rows = [{**ROW, "id": "i" * 64, "identity": "tcp:10.0.0.1\x1b[2J"}, {"id": "x"}]
    lines = table(columns(rows), width)
    assert len(lines) == 3
    assert all(cells(line) <= width for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_title_may_be_the_widest():
    assert table([Column("TITLE", ("a", "b"), right=True)], None) == ["TITLE", "    a", "    b"]


@given(st.dictionaries(st.sampled_from(NAMES), JSON), st.none() | st.integers(1, 200))
def test_a_reply_of_any_shape_is_shown_without_controls(status, width):
    for line in drawn(glance(status, 0.0), width):
        assert printable(line) == line
        assert "\n" not in line
        assert width is None or cells(line) <= max(width, 22)


FACTS = ("hits", "misses", "reused_tokens", "idle_sequences", "ram_files", "ram_bytes", "count", "bytes", "failures")


@given(st.dictionaries(st.sampled_from(FACTS), JSON))
def test_cache_and_sessions_of_any_shape(facts):
    for line in drawn(glance({"cache": facts, "sessions": facts}, 0.0), None):
        assert printable(line) == line


def test_where_control_is():
    assert reach.control_beside("ipc:///run/edged/request.sock") == "ipc:///run/edged/control.sock"
    assert reach.control_beside("ipc:///run/edged/control.sock") == "ipc:///run/edged/control.sock"
    assert reach.control_beside("tcp://10.0.0.1:5555") is None


def test_a_conversation():
    talk = Conversation("Be brief.")
    talk.keep("q1", "a1")
    talk.keep("q2", "a2")
    assert [m["content"] for m in talk.asking("q3")] == ["Be brief.", "q1", "a1", "q2", "a2", "q3"]
    talk.forget_oldest()
    assert [m["role"] for m in talk.messages] == ["system", "user", "assistant"]
    assert talk.as_text() == "system:\nBe brief.\n\nuser:\nq2\n\nassistant:\na2\n\n"
    talk.reset()
    assert (len(talk), len(talk.messages)) == (0, 1)


HOT = {
    "level": "hot",
    "since": 12.04,
    "why": "81.0 °C for 3 samples (hot from 79)",
    "back": "below 74 °C for 30 s",
    "readings": {"temperature_c": 81.0, "available_mb": 1200, "total_mb": 3800, "frequency_khz": 1_500_000},
    "pace": {"duty": 0.5, "threads": 3, "frequency_khz": None},
    "reload": {"reason": "heat", "profile": "small", "at": "loading", "loaded": 0.4, "seconds": 1.0},
    "profile": {"wanted": "small", "pinned": None},
}


def test_an_incident_at_a_glance():
    rows = dict(glance({"state": "degraded", "ready": False, "profile": "big", "watchdog": HOT}, 0.0))
    said = "hot for 12 s: 81.0 °C for 3 samples (hot from 79); ends below 74 °C for 30 s"
    assert rows["level"] == said
    assert rows["board"] == "81.0 °C, 1200 of 3800 MB available, 1.5 GHz, working 50% of the time, 3 threads"
    assert rows["reload"] == "heat, to profile small, loading 40%"
    assert rows["profile"] == "big"
    assert rows["unloaded"] == ""


def test_a_pin_and_an_unload_at_a_glance():
    pinned = {**HOT, "profile": {"wanted": "a", "pinned": "b"}, "unloaded": {"why": "too hot", "seconds": 40.0}}
    rows = dict(glance({"profile": "a", "watchdog": pinned}, 0.0))
    assert rows["profile"] == "a (b is pinned)"
    assert rows["unloaded"] == "too hot; loaded again in about 40 s"
    rows = dict(glance({"profile": "b", "watchdog": {**pinned, "unloaded": {"why": "x", "seconds": None}}}, 0.0))
    assert rows["profile"] == "b (pinned)"
    assert rows["unloaded"] == "x; loaded again when the level is warm or better"


@given(
    st.dictionaries(
        st.sampled_from(sorted(HOT)),
        JSON | st.dictionaries(st.sampled_from(sorted({**HOT["readings"], **HOT["pace"], **HOT["reload"]})), JSON),
    )
)
def test_a_watchdog_of_any_shape_is_shown(watchdog):
    for columns_ in (None, 40):
        assert drawn(glance({"watchdog": watchdog}, 0.0), columns_) is not None


def test_profiles_as_a_table():
    sizes = {"context": 512, "sequences": 1}
    rows = [
        {
            "name": "big",
            "context": 4096,
            "sequences": 4,
            "file": "b.gguf",
            "current": True,
            "need_mb": 900,
            "fits": True,
        },
        {"name": "small", **sizes, "file": "s.gguf", "current": False, "need_mb": 9000, "fits": False},
        {"name": "other", **sizes, "file": "o.gguf", "current": False, "need_mb": None, "fits": None},
    ]
    reply = {"profiles": rows, "wanted": "small", "pinned": "small", "available_mb": 1000}
    found = listed(reply, None)
    assert found[0].split() == ["PROFILE", "CONTEXT", "SEQUENCES", "MEMORY", "FILE"]
    assert found[1].split() == ["big", "current", "4096", "4", "900", "MB", "b.gguf"]
    assert "wanted, pinned" in found[2]
    assert "does not fit" in found[2]
    assert "?" in found[3]
    assert found[4].startswith("1000 MB available")


@given(st.dictionaries(st.sampled_from(["profiles", "wanted", "pinned", "available_mb"]), JSON))
def test_profiles_of_any_shape_are_shown(reply):
    assert listed(reply, 40)
