"""Heat and memory against a running daemon: a fake /proc and /sys, time some fifty times as fast."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakeroot import FakeRoot
from harness import Daemon, running, tiny_gguf, until

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


def hangup(box: Daemon, **watchdog: Any) -> None:
    """SIGHUP with other rules."""
    box.settings["watchdog"] |= watchdog
    box.write_config()
    applied = box.log.read_text().count("configuration_applied")
    box.process.send_signal(signal.SIGHUP)
    until(lambda: box.log.read_text().count("configuration_applied") > applied, "applied")


def asked(box: Daemon, **body: Any) -> dict[str, Any]:
    with box.client() as client:
        return client.call(op="generate", prompt="n=2", **body)


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


# ---- other rules in the middle of it --------------------------------------------------------------------------------


def test_other_rules_while_it_is_hot_lock_no_door(box: Daemon, board: FakeRoot) -> None:
    board.heat(81)
    level(box, "hot")
    hangup(box, heat={"warm_c": 90, "hot_c": 95, "critical_c": 100}, pacing={"target_c": 92, "settle_s": 0.5})
    box.wait_status(lambda s: s["state"] == "ready" and s["ready"], "ready")
    assert asked(box)["text"] == "t0 t1 "


def test_other_rules_while_it_is_warm_let_low_priority_go_on(box: Daemon, board: FakeRoot) -> None:
    board.heat(71)
    level(box, "warm")
    hangup(box, heat={"warm_c": 78})
    assert asked(box, priority="low", deadline_ms=60_000)["text"] == "t0 t1 "


@pytest.mark.parametrize("what", ["rules", "profiles"])
def test_sighup_at_critical_does_not_forget_that_the_board_is_short(tmp_path: Path, board: FakeRoot, what: str) -> None:
    with running(tmp_path / "box", **settings(board, hold_s=30, reload_s=60)) as box:
        board.memory(100)
        box.wait_status(lambda s: s["watchdog"]["level"] == "critical" and not s["threads"], "critical")
        until(lambda: "unloaded" in lines(box), "unloaded")
        if what == "profiles":
            box.settings["profiles"].append({"name": "tiny", "context": 256})
        hangup(box, stall_s=9)
        samples(box)
        status = box.wait_status(lambda s: True, "")
        assert status["watchdog"]["level"] == "critical"
        assert status["watchdog"]["worker_starts"] == 1
        assert status["watchdog"]["profile"]["wanted"] == "small"
        assert status["watchdog"]["unloaded"]["seconds"] is None
        assert asked(box)["error"]["code"] == "low_memory"


# ---- unloaded, and cool again ---------------------------------------------------------------------------------------


def test_unloaded_at_a_normal_level_says_so_and_an_operator_need_not_wait(tmp_path: Path, board: FakeRoot) -> None:
    with running(tmp_path / "box", **settings(board, reload_s=600)) as box, box.operator() as operator:
        board.heat(86)
        level(box, "critical")
        until(lambda: "unloaded" in lines(box), "unloaded")
        error = operator.call(op="reload")["error"]
        assert (error["code"], "86.0 °C" in error["message"]) == ("overheated", True)
        board.heat(45)
        status = level(box, "normal")["watchdog"]
        assert "86.0 °C" in status["unloaded"]["why"]
        assert 500 < status["unloaded"]["seconds"] <= 600
        error = asked(box)["error"]
        assert (error["code"], "unloaded" in error["message"]) == ("overheated", True)
        assert 500_000 < error["retry_after_ms"] <= 600_000
        assert operator.call(op="reload")["profile"] == "small"
        status = box.wait_status(lambda s: s["ready"], "loaded")
        assert (status["profile"], status["watchdog"]["unloaded"]) == ("small", None)
        assert asked(box)["text"] == "t0 t1 "


def test_a_pin_while_unloaded_is_loaded_at_once_when_the_level_allows(tmp_path: Path, board: FakeRoot) -> None:
    with running(tmp_path / "box", **settings(board, reload_s=600)) as box, box.operator() as operator:
        board.memory(100)
        level(box, "critical")
        until(lambda: "unloaded" in lines(box), "unloaded")
        assert operator.call(op="profile", profile="big")["wanted"] == "big"
        samples(box)
        assert box.worker_pid() is None
        board.memory(3000)
        level(box, "normal")
        assert asked(box)["error"]["code"] == "low_memory"
        operator.call(op="profile", profile="small")
        assert box.wait_status(lambda s: s["ready"], "loaded")["profile"] == "small"


# ---- profiles that do not come up -----------------------------------------------------------------------------------


def models(tmp_path: Path, board: FakeRoot, bad: str, **watchdog: Any) -> dict[str, Any]:
    """Three profiles, one of them damaged."""
    paths = {name: tiny_gguf(tmp_path / f"{name}.gguf") for name in ("a", "b", "c")}
    paths[bad].write_bytes(b"GGUFxxxx")
    return settings(board, **watchdog) | {"profiles": [{"name": name, "model": str(paths[name])} for name in paths]}


def test_a_damaged_smaller_profile_is_passed_over_and_tried_ever_more_rarely(tmp_path: Path, board: FakeRoot) -> None:
    with running(tmp_path / "box", **models(tmp_path, board, "b", hold_s=0.1, reload_s=0.1)) as box:
        board.memory(300)
        assert box.wait_status(lambda s: s["profile"] == "c" and s["threads"] == [], "c")["watchdog"]["memory"] == "hot"
        board.memory(3000)
        box.wait_status(lambda s: s["profile"] == "a" and s["ready"], "a again")
        assert lines(box).count("kept") < 8


def test_a_damaged_best_profile_is_tried_ever_more_rarely(tmp_path: Path, board: FakeRoot) -> None:
    keys = models(tmp_path, board, "b", hold_s=0.05, reload_s=0.05)
    with running(tmp_path / "box", **keys) as box, box.operator() as operator:
        tiny_gguf(tmp_path / "b.gguf")
        (tmp_path / "a.gguf").write_bytes(b"GGUFxxxx")
        operator.call(op="reload", profile="b")
        box.wait_status(lambda s: s["profile"] == "b" and s["ready"], "b")
        samples(box, 150)  # 60 waits
        assert 0 < lines(box).count("kept") <= 7


def test_a_pin_on_what_does_not_come_up_is_shown_as_that(tmp_path: Path, board: FakeRoot) -> None:
    with running(tmp_path / "box", **models(tmp_path, board, "b")) as box, box.operator() as operator:
        operator.call(op="profile", profile="b")
        status = box.wait_status(lambda s: s["warnings"], "kept")
        assert (status["profile"], status["watchdog"]["profile"]) == ("a", {"wanted": "a", "pinned": "b"})
        shown = operator.call(op="profile")
        assert (shown["wanted"], shown["pinned"]) == ("a", "b")


@pytest.mark.parametrize("available", [300, 550])
def test_nothing_is_loaded_beside_the_old_one_while_memory_is_short(
    tmp_path: Path, board: FakeRoot, available: int
) -> None:
    keys = settings(board) | {"profiles": [{"name": "only"}]}
    with running(tmp_path / "box", **keys) as box, box.operator() as operator:
        board.memory(available)
        level(box, "hot" if available < 350 else "warm")
        operator.call(op="reload")
        until(lambda: lines(box).count("replaced") == 1, "reloaded")
        box.settings["profiles"] = [{"name": "only", "context": 512}]
        hangup(box)
        until(lambda: lines(box).count("replaced") == 2, "reloaded for SIGHUP")
        board.memory(3000)
        level(box, "normal")
        operator.call(op="reload")
        until(lambda: lines(box).count("replaced") == 3, "reloaded with room")
        orders = [line for line in box.log.read_text().splitlines() if " replacing " in line]
        assert ["old first" in line for line in orders] == [True, True, False]


# ---- alarms ---------------------------------------------------------------------------------------------------------


def test_a_sensor_that_talks_nonsense_does_not_fill_the_log(box: Daemon, board: FakeRoot) -> None:
    for number in range(12):
        board.nonsense(f"{999_000 + number}" if number % 2 else "45000")
        samples(box, 3)
    board.nonsense("999999")
    said = ["thermal zone cpu-thermal: says nonsense (1000 °C)"]
    box.wait_status(lambda s: s["watchdog"]["alarms"] == said, "said")
    assert box.log.read_text().count(" alarm ") == 1
