"""Heat and memory against a running daemon: a fake /proc and /sys, time some fifty times as fast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakeroot import FakeRoot
from harness import Daemon, running, until

QUICK = {"interval_s": 0.02, "hold_s": 0.3, "reload_s": 0.4, "pacing": {"settle_s": 0.5}}
LINES = ("level", "replacing", "worker_left", "model_ready", "replaced", "unloaded", "kept")


@pytest.fixture
def board(tmp_path: Path) -> FakeRoot:
    return FakeRoot(tmp_path / "root")


@pytest.fixture
def box(tmp_path: Path, board: FakeRoot) -> Iterator[Daemon]:
    with running(tmp_path / "box", **settings(board), limits={"drain_s": 0.2}) as daemon:
        yield daemon


def settings(board: FakeRoot, **watchdog: Any) -> dict[str, Any]:
    profiles = [{"name": "big"}, {"name": "small", "context": 512}]
    return {"watchdog": {"root": str(board.path), **QUICK, **watchdog}, "profiles": profiles}


def lines(box: Daemon) -> list[str]:
    """Events of the log that tell of an incident, without the first model."""
    rows = [line.split(" ", 2)[2].split(" ")[0] for line in box.log.read_text().splitlines() if line.count(" ") > 1]
    found = [event for event in rows if event in LINES]
    return found[1:]


def level(box: Daemon, name: str) -> dict[str, Any]:
    return box.wait_status(lambda s: s["watchdog"]["level"] == name, name)


def samples(box: Daemon, count: int = 20) -> None:
    """So many looks at the sensors went by: `since` is told in tenths."""
    end = box.wait_status(lambda s: True, "")["uptime_s"] + count * QUICK["interval_s"]
    box.wait_status(lambda s: s["uptime_s"] >= end, "time")


def test_a_ramp_goes_up_the_ladder_once_and_down_again(box: Daemon, board: FakeRoot) -> None:
    with box.client() as client, box.subscriber("sys/watchdog") as events:
        stream = client.stream(prompt="n=4000 delay=0.01 tag=x", max_tokens=4000)
        next(stream)
        board.heat(72)
        status = level(box, "warm")
        assert (status["state"], status["ready"], status["profile"]) == ("degraded", True, "big")
        assert "warm from 70" in status["watchdog"]["why"]
        assert "below 65" in status["watchdog"]["back"]
        assert status["watchdog"]["readings"]["temperature_c"] == 72.0
        board.heat(80)
        level(box, "hot")
        with box.client() as other:
            error = other.call(op="generate", prompt="n=1")["error"]
        assert (error["code"], error["retryable"]) == ("overheated", True)
        assert error["retry_after_ms"] >= 1000
        small = box.wait_status(lambda s: s["profile"] == "small" and s["slots"]["busy"], "small, and work goes on")
        assert (small["state"], small["ready"]) == ("degraded", False)
        board.heat(50)
        box.wait_status(lambda s: s["profile"] == "big" and s["state"] == "ready", "back")
        client.call(op="cancel", id=until_ticket(stream))
        levels = [events.receive()["level"] for _ in range(4)]
    assert levels == ["warm", "hot", "warm", "normal"]
    incident = ["replacing", "worker_left", "model_ready", "replaced"]
    assert lines(box) == ["level", "level", *incident, "level", "level", *incident]


def until_ticket(stream: Iterator[dict[str, Any]]) -> str:
    return next(stream)["id"]


def test_the_text_goes_on_over_two_reloads(box: Daemon, board: FakeRoot) -> None:
    with box.client() as client:
        stream = client.stream(prompt="n=150 delay=0.02", deadline_ms=60_000)
        next(stream)
        board.heat(80)
        box.wait_status(lambda s: s["profile"] == "small", "small")
        board.heat(40)
        events = list(stream)
    end = events[-1]
    assert end["usage"]["completion_tokens"] == 150
    assert end["text"] == "".join(f"t{n} " for n in range(150))
    assert [e["reason"] for e in events if e["type"] == "restart"][:1] == ["heat"]
    assert [e["seq"] for e in events] == list(range(len(events)))


def test_critical_unloads_and_what_was_accepted_waits(box: Daemon, board: FakeRoot) -> None:
    with box.client() as client:
        stream = client.stream(prompt="n=60 delay=0.02", deadline_ms=60_000)
        next(stream)
        next(event for event in stream if event["type"] == "token")
        board.memory(100)
        status = box.wait_status(lambda s: s["watchdog"]["level"] == "critical" and not s["threads"], "critical")
        until(lambda: box.worker_pid() is None, "no worker")
        assert status["ready"] is False
        with box.client() as other, box.operator() as operator:
            assert other.call(op="generate", prompt="n=1", priority="high")["error"]["code"] == "low_memory"
            assert operator.call(op="reload")["error"]["code"] == "low_memory"
        board.memory(3000)
        *_, end = stream
    assert end["text"] == "".join(f"t{n} " for n in range(60))
    assert "unloaded" in lines(box)
    box.wait_status(lambda s: s["state"] == "ready" and s["profile"] == "big", "back")


@pytest.mark.parametrize("what", ["sticky bits", "under-voltage", "page cache", "absent PSI"])
def test_what_is_no_heat_and_no_want_of_memory(box: Daemon, board: FakeRoot, what: str) -> None:
    pid = box.worker_pid()
    match what:
        case "sticky bits":
            board.throttled(0xF0000)
        case "under-voltage":
            board.throttled(0x50005)
        case "page cache":
            board.memory(3000, free_mb=20)
        case "absent PSI":
            assert "psi" in str(level(box, "normal")["watchdog"]["missing"]).lower()
    samples(box)
    status = box.wait_status(lambda s: True, "")
    assert status["watchdog"]["level"] == "normal"
    assert box.worker_pid() == pid
    assert status["watchdog"]["worker_starts"] == 1
    if what == "under-voltage":
        assert any("check the power supply" in warning for warning in status["warnings"])
        assert status["watchdog"]["readings"]["under_voltage"] is True


def test_a_spike_of_one_sample_is_none(tmp_path: Path, board: FakeRoot) -> None:
    with running(tmp_path / "box", **settings(board, interval_s=0.4)) as box, box.subscriber("sys/watchdog") as events:
        board.heat(90)
        box.wait_status(lambda s: s["watchdog"]["readings"].get("temperature_c") == 90, "the spike")
        board.heat(45)
        box.wait_status(lambda s: s["watchdog"]["readings"]["temperature_c"] == 45, "its end")
        assert box.wait_status(lambda s: True, "")["watchdog"]["level"] == "normal"
        assert events.silent(0.05)


@pytest.mark.parametrize("text", ["", "abc", "-274000", "999999"])
def test_a_sensor_that_talks_nonsense_is_warm_and_an_alarm(box: Daemon, board: FakeRoot, text: str) -> None:
    pid = box.worker_pid()
    level(box, "normal")
    board.nonsense(text)
    status = level(box, "warm")
    assert status["watchdog"]["alarms"]
    assert set(status["watchdog"]["alarms"]) <= set(status["warnings"])
    board.heat(45)
    level(box, "normal")
    assert box.worker_pid() == pid


def test_bits_of_now_are_heat(box: Daemon, board: FakeRoot) -> None:
    board.heat(68)
    board.throttled(0x4)
    assert "throttled" in level(box, "hot")["watchdog"]["why"]
    board.throttled(0x40000)
    board.heat(45)
    level(box, "normal")


def test_memory_that_gets_short_reloads_old_first(box: Daemon, board: FakeRoot) -> None:
    board.memory(300)
    status = box.wait_status(lambda s: s["profile"] == "small" and s["threads"] == [], "small")
    assert status["watchdog"]["memory"] == "hot"
    until(lambda: "replaced" in lines(box), "replaced")
    assert 'order="old first"' in box.log.read_text()
    board.memory(3000)
    box.wait_status(lambda s: s["profile"] == "big" and s["ready"], "back")
