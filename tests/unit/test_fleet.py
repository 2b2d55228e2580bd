"""`edgectl fleet`: what boxes say becomes rows, whatever they say."""

from __future__ import annotations

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.cli.fleet import run
from edged.cli.fleet.answers import Row, found, missing, reason, row
from edged.cli.fleet.show import as_object, lines, well
from edged.cli.terminal import cells

SSH = (
    "Failed to connect to the host via ssh: Warning: Permanently added '10.0.0.7' to the list of known hosts.\r\n"
    "ssh: connect to host 10.0.0.7 port 22: No route to host"
)


def look(**status):
    return {
        "time": 1.0,
        "status": {
            "version": "0.9.1",
            "state": "ready",
            "ready": True,
            "uptime_s": 3700.0,
            "model": {"name": "smollm2-135m-instruct"},
            "queue": {"length": 2},
            "watchdog": {"level": "normal", "readings": {"temperature_c": 51.2, "available_mb": 3012.0}, "alarms": []},
            "warnings": [],
            **status,
        },
        "history": {
            "interval_s": 1.0,
            "last": 100,
            "end_time": 5.0,
            "columns": {"tokens_per_s": [99.0] * 60 + [None] * 30 + [4.0, 6.0] * 15},
            "events": [
                {"type": "service", "event": "alarm", "text": "the SD card is full", "time": 1764547200.0},
                {"type": "service", "event": "resumed", "time": 1764547201.0},
            ],
        },
    }


def said(stdout, how="ok", rc=0, **texts):
    return {"host": "pi-01", "how": how, "rc": rc, "stdout": stdout, "stderr": "", "msg": "", **texts}


def test_a_box_that_is_well():
    got = row(said("Welcome!\n" + json.dumps(look()) + "\nbye\n"))
    assert got == Row(
        name="pi-01",
        state="ready",
        ready=True,
        version="0.9.1",
        model="smollm2-135m-instruct",
        level="normal",
        temperature_c=51.2,
        available_mb=3012.0,
        tokens_per_s=5.0,
        queue=2,
        uptime_s=3700.0,
        last_alarm="the SD card is full",
        last_alarm_time=1764547200.0,
    )


def test_an_alarm_that_stands_is_told():
    watchdog = {"level": "hot", "why": "81 °C", "alarms": ["a sensor talks nonsense"]}
    got = row(said(json.dumps(look(ready=False, state="degraded", watchdog=watchdog))))
    assert (got.last_alarm, got.why, got.ready) == ("a sensor talks nonsense", "a sensor talks nonsense", False)
    got = row(said(json.dumps(look(ready=False, state="degraded", watchdog={"level": "hot", "why": "81 °C"}))))
    assert got.why == "81 °C"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SSH, "No route to host"),
        ("Failed to connect to the host via ssh: root@10.0.0.7: Permission denied (publickey).", None),
        ("Failed to connect to the host via ssh: ssh: connect to host 127.0.0.2 port 22: Connection refused", None),
        ("edgectl: nothing answers at ipc:///x", "nothing answers at ipc:///x"),
        ("", ""),
        ("\x1b[2J\x1b[H" + "x" * 9000, None),
    ],
)
def test_reasons_are_a_few_words(text, words):
    got = reason(text)
    assert len(got) <= 160
    assert got.isprintable()
    assert words is None or got == words


def test_unreachable_missing_and_not_installed():
    assert row(said("", "unreachable", None, msg=SSH)) == Row(name="pi-01", state="unreachable", why="No route to host")
    assert row(said("", "failed", 127, stderr="sh: 1: no")).why == "edged is not installed there"
    assert row(said("", "failed", 3, stderr="edgectl: nothing answers\n")).why == "nothing answers"
    assert row(said("")).why == "it said nothing"
    assert missing("pi-02", 30.0).why == "nothing came within 30 s"


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["version", "state", "ready", "uptime_s", "model", "queue", "watchdog", "warnings"]


@given(st.dictionaries(st.sampled_from(KEYS), anything), anything, anything)
def test_whatever_a_box_says_is_a_row_that_harms_no_terminal(status, history, watchdog):
    stdout = json.dumps({"status": {"watchdog": watchdog, **status}, "history": history})
    got = row(said(stdout))
    drawn = lines([got, missing("pi-02", None)], 80)
    assert all(text.isprintable() for text in drawn)
    assert all(cells(text) < 400 for text in drawn)
    json.dumps(as_object([got], time.time()))


@given(st.text(), st.text(), st.text(), st.sampled_from(["ok", "failed", "unreachable", "x"]), anything)
def test_noise_is_a_row_too(stdout, stderr, msg, how, rc):
    got = row(said(stdout, how, rc, stderr=stderr, msg=msg))
    assert not got.ready
    assert all(text.isprintable() for text in lines([got], None))


def test_deep_and_broken_json_is_no_answer():
    assert found("[" * 100_000) is None
    assert found('{"a":' * 100_000) is None
    assert found('{"status": 1}') is None
    assert found('{"status": {}}\n{"other": 1}\n{') == {"status": {}}


def test_the_table_fits_a_narrow_terminal():
    rows = [row(said(json.dumps(look()))), missing("a-host-with-a-long-name.example.org", 30.0)]
    for width in (60, 80, 120, None):
        title, *drawn = lines(rows, width)
        assert width is None or all(cells(text) <= width for text in (title, *drawn[:2]))
        assert "box" in title
        assert "state" in title
    text = "\n".join(lines(rows, None))
    assert "the SD card is full" in text
    assert text.endswith("1 of 2 boxes ready")
    assert not well(rows)
    assert well(rows[:1])
    assert not well([])


def objects(*chunks):
    read, write = os.pipe()
    for chunk in chunks:
        os.write(write, chunk)
    os.close(write)
    try:
        return list(run.objects(read, time.monotonic() + 5))
    finally:
        os.close(read)


def test_lines_from_the_pipe():
    assert objects(b'{"a": 1}\n{"b"', b": 2}\nnoise\n[1]\n" + b'{"half') == [{"a": 1}, {"b": 2}]
    read, write = os.pipe()
    begun = time.monotonic()
    assert list(run.objects(read, begun + 0.2)) == []
    assert 0.2 <= time.monotonic() - begun < 2
    os.close(read)
    os.close(write)


def test_a_line_without_end_is_not_kept(monkeypatch):
    monkeypatch.setattr(run, "LINE_MAX", 1000)
    assert objects(b"x" * 5000, b'\n{"a": 1}\n') == [{"a": 1}]


def test_without_ansible_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(run.shutil, "which", lambda _: None)
    monkeypatch.setattr(run.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(run.NoAnsible, match=r"pip install 'edged\[fleet\]'"):
        run.program()
    (tmp_path / "ansible").write_text("#!/bin/sh\n")
    (tmp_path / "ansible").chmod(0o755)
    assert run.program() == str(tmp_path / "ansible")
