"""The log: one line an event, nothing that can break a line, nothing that can break the process."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.observe import log as logging
from edged.observe.log import Log, show


@pytest.fixture
def pipe():
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            continue


def drain(fd) -> str:
    out = b""
    try:
        while chunk := os.read(fd, 65536):
            out += chunk
    except BlockingIOError:
        pass
    return out.decode()


def test_a_line(pipe):
    Log("info", pipe[1]).info("worker_ready", pid=4711, load_ms=811.96, model="smollm2", ok=True, cause=None)
    line = drain(pipe[0])
    stamp, _, rest = line.partition(" ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
    assert rest == "info worker_ready pid=4711 load_ms=811.96 model=smollm2 ok=true cause=-\n"


def test_levels(pipe):
    log = Log("warning", pipe[1])
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    log.set_level("debug")
    log.debug("e")
    assert [line.split()[1:] for line in drain(pipe[0]).splitlines()] == [
        ["warning", "c"],
        ["error", "d"],
        ["debug", "e"],
    ]
    with pytest.raises(KeyError):
        log.set_level("loud")
    assert log.level == "debug"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("größe", "größe"),
        ("", '""'),
        ("two words", '"two words"'),
        ('a"b', '"a\\"b"'),
        ("a=b", '"a=b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\nb\r\t", '"a\\nb\\r\\t"'),
        ("\x1b[31m", '"\\x1b[31m"'),
        ("\x9b2J", '"\\x9b2J"'),
        ("a\u2028b", '"a\\u2028b"'),
        ("\ud800", '"\\ud800"'),
        (None, "-"),
        (False, "false"),
        (12, "12"),
        (0.1 + 0.2, "0.3"),
        ([1, 2], '"[1, 2]"'),
        (ValueError("x y"), '"x y"'),
    ],
)
def test_values(value, shown):
    assert show(value) == shown


@given(st.text(st.characters(), max_size=300))
def test_no_value_breaks_a_line(value):
    shown = show(value)
    assert all(c.isprintable() for c in shown)
    assert " " not in shown or (shown[0] == shown[-1] == '"')


def test_a_line_is_bounded_and_stays_one_line(pipe):
    Log("info", pipe[1]).info("event", **{f"k{n}": "€" * 5000 for n in range(5)})
    text = drain(pipe[0])
    assert len(text.encode()) <= 4096
    assert text.endswith("…\n")
    assert text.count("\n") == 1


def test_under_the_journal_priority_stands_for_time_and_level(pipe, monkeypatch):
    at = os.fstat(pipe[1])
    monkeypatch.setenv("JOURNAL_STREAM", f"{at.st_dev}:{at.st_ino}")
    log = Log("debug", pipe[1], journal="/nowhere")
    for level in logging.LEVELS:
        getattr(log, level)("event", n=1)
    assert drain(pipe[0]) == "<7>event n=1\n<6>event n=1\n<4>event n=1\n<3>event n=1\n"


@pytest.mark.parametrize("value", ["1:2", "nonsense", ":", ""])
def test_a_journal_that_is_not_our_stderr_changes_nothing(pipe, monkeypatch, value):
    monkeypatch.setenv("JOURNAL_STREAM", value)
    Log("info", pipe[1]).info("event")
    assert "info event" in drain(pipe[0])


def test_reader_gone(pipe):
    log = Log("info", pipe[1])
    os.close(pipe[0])
    log.info("into_the_void")  # EPIPE: neither raises nor kills


def test_descriptor_closed(pipe):
    log = Log("info", pipe[1])
    os.close(pipe[1])
    log.info("into_the_void")


def test_a_full_blocking_pipe_drops_counts_and_goes_on(pipe):
    read, write = pipe
    assert os.get_blocking(write)  # were it written to when full, this test would hang
    log = Log("info", write)
    for n in range(2000):
        log.info("event", n=n, filler="x" * 100)
    first = drain(read)
    kept = first.count("\n")
    assert first.endswith("\n")
    assert 0 < kept < 2000
    log.info("after")
    lines = drain(read).splitlines()
    assert lines[0].endswith(f"warning log_dropped count={2000 - kept}")
    assert lines[1].endswith("info after")
