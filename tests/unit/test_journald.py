"""Entries of the journal: fields as its protocol wants them, and no waiting for it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.observe.journald import Journald, entry
from edged.observe.log import Log


def fields(data: bytes) -> dict[str, str]:
    """As journald reads it (systemd.io/JOURNAL_NATIVE_PROTOCOL)."""
    out = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", data[:8])
            value, end, data = data[8 : 8 + size], data[8 + size : 9 + size], data[9 + size :]
            assert end == b"\n"
        out[name.decode()] = value.decode()
    return out


@pytest.fixture
def journal(tmp_path: Path):
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(path)
        yield sock, path


@pytest.fixture
def stderr(monkeypatch):
    """A pipe that counts as the journal's stream."""
    read, write = os.pipe()
    at = os.fstat(write)
    monkeypatch.setenv("JOURNAL_STREAM", f"{at.st_dev}:{at.st_ino}")
    os.set_blocking(read, False)
    yield read, write
    os.close(read)
    os.close(write)


@pytest.fixture
def log(journal, stderr):
    with contextlib.closing(Log("info", stderr[1], journal=journal[1])) as log:
        yield log


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,10}", fullmatch=True), st.text(max_size=50)))
def test_any_value_comes_back_whole(values):
    values = {name: value.encode("utf-8", "backslashreplace").decode() for name, value in values.items()}
    assert fields(entry(values)) == values


def test_an_event_is_an_entry_with_fields(journal, stderr, log):
    about = {"id": "sensor7-42", "identity": "uid:1000", "cause": "SIGABRT", "deaths": 1}
    log.warning("worker_lost", **about, level="hot", why="a\nb")
    assert fields(journal[0].recv(65536)) == {
        "EDGED_EVENT": "worker_lost",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "edged",
        "MESSAGE": 'worker_lost id=sensor7-42 identity=uid:1000 cause=SIGABRT deaths=1 level=hot why="a\\nb"',
        "REQUEST_ID": "sensor7-42",
        "IDENTITY": "uid:1000",
        "CAUSE": "SIGABRT",
        "LEVEL": "hot",
        "EDGED_DEATHS": "1",
        "EDGED_WHY": "a\nb",
    }
    with pytest.raises(BlockingIOError):
        os.read(stderr[0], 1)  # once, not twice


def test_a_field_cannot_take_the_place_of_the_heads(journal, log):
    log.info("event", message="x", priority=0)
    got = fields(journal[0].recv(65536))
    assert (got["MESSAGE"], got["PRIORITY"]) == ("event message=x priority=0", "6")
    assert (got["EDGED_MESSAGE"], got["EDGED_PRIORITY"]) == ("x", "0")


def test_a_journal_that_does_not_read_is_not_waited_for_and_what_was_lost_is_counted(journal, log):
    sock = journal[0]
    begun = time.monotonic()
    for n in range(5000):
        log.info("event", n=n)
    assert time.monotonic() - begun < 20  # 5000 lines; one that waits would never come back
    taken = []
    while True:
        try:
            taken.append(fields(sock.recv(65536)))
        except BlockingIOError:
            break
    assert 0 < len(taken) < 5000
    log.info("after")
    dropped, after = fields(sock.recv(65536)), fields(sock.recv(65536))
    assert (dropped["EDGED_EVENT"], dropped["EDGED_COUNT"]) == ("log_dropped", str(5000 - len(taken)))
    assert after["EDGED_EVENT"] == "after"


def test_a_journal_that_comes_back_at_the_same_path(tmp_path: Path):
    path = str(tmp_path / "journal")
    with contextlib.closing(Journald(path)) as writer:
        assert writer.send(6, "a", "a", {}) is False
        for _ in range(2):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.bind(path)
                assert writer.send(6, "b", "b", {})
                assert fields(sock.recv(65536))["MESSAGE"] == "b"
            assert writer.send(6, "c", "c", {}) is False
            os.unlink(path)
