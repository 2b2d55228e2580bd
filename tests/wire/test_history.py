"""`history` and `sys/service` of a real daemon (protocol 4, 7)."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from harness import Daemon, running, until

CANARY = "canary-7f3a"


def columns(box: Daemon, **fields) -> dict:
    with box.client() as client:
        reply = client.call(op="history", **fields)
    assert reply["ok"], reply
    return reply


def events(box: Daemon) -> list[dict]:
    return columns(box, events=200)["events"]


def test_what_was_done_is_seen_and_nothing_of_whom_or_what(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert {"history", "sys_service"} <= set(client.call(op="ping")["features"])
        prompt = f"n=30 delay=0.05 chunks=2 word={CANARY}"
        assert client.call(op="generate", prompt=prompt, id=CANARY, max_tokens=40)["ok"]
        assert not client.call(op="generate", prompt="refuse=context_overflow")["ok"]
    shown = ("ok", "errors", "available_mb", "worker_mb")  # the sensors are read apart from the rows
    rows = until(
        lambda: (r := columns(daemon, seconds=60)["columns"]) and all(any(r[name]) for name in shown) and r,
        "rows with what was done",
    )
    assert max(filter(None, rows["tokens_per_s"])) > 1
    assert max(filter(None, rows["prefill_per_s"])) > 1
    assert max(filter(None, rows["busy"])) >= 1
    reply = columns(daemon, seconds=60, events=200)
    assert CANARY not in json.dumps(reply)
    assert "uid:" not in json.dumps(reply)
    assert abs(reply["end_time"] - time.time()) < 30
    with daemon.operator() as operator:
        assert operator.call(op="history", seconds=60, events=5)["ok"]
        for wrong in ({"seconds": 0}, {"seconds": 3601}, {"events": 201}, {"events": True}, {"minutes": 1}):
            reply = operator.call(op="history", **wrong)
            assert reply["error"]["code"] == "bad_request", wrong


def test_events_are_numbered_told_live_and_kept(tmp_path: Path) -> None:
    with running(tmp_path / "box", health_interval_s=0.2) as box:
        told_live_and_kept(box)


def told_live_and_kept(daemon: Daemon) -> None:
    with daemon.subscriber("sys/") as live:
        assert live.receive()["type"] == "health"
        with daemon.operator() as operator:
            for op in ("drain", "drain", "resume"):
                operator.call(op=op)
            operator.call(op="config", action="apply")
        heard = []
        while not heard or heard[-1]["event"] != "configuration_applied":
            event = live.receive()
            if event["type"] == "service":
                heard.append(event)
    assert [event["event"] for event in heard] == ["draining", "resumed", "configuration_applied"]
    kept = {event["n"]: event for event in events(daemon)}
    assert [kept[0]["event"], kept[1]["event"]] == ["started", "ready"]
    for event in heard:
        assert event.pop("instance")
        assert abs(kept[event["n"]].pop("time") - event.pop("time")) < 1
        assert kept[event["n"]] == event


def test_a_refused_configuration_is_told_without_what_is_in_it(daemon: Daemon) -> None:
    good = daemon.config.read_text()
    daemon.config.write_text(good + f"\n{CANARY}: 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    found = until(lambda: [e for e in events(daemon) if e.get("event") == "configuration_refused"], "the event")
    assert CANARY not in json.dumps(found)
    daemon.config.write_text(good)


def test_deaths_are_told_and_a_stopped_daemon_leaves_a_gap(daemon: Daemon) -> None:
    os.kill(daemon.worker_pid(), signal.SIGKILL)
    until(lambda: [e for e in events(daemon) if e.get("event") == "lost"], "the death")
    daemon.wait_ready()
    until(lambda: len(columns(daemon, seconds=60)["columns"]["queue"]) > 2, "rows")
    os.kill(daemon.pid, signal.SIGSTOP)
    time.sleep(3.2)
    os.kill(daemon.pid, signal.SIGCONT)
    queue = columns(daemon, seconds=60)["columns"]["queue"]
    assert None in queue
    assert queue[0] is not None


def test_a_new_daemon_has_no_old_rows(tmp_path: Path) -> None:
    with running(tmp_path / "box") as box:
        first = until(lambda: (r := columns(box, seconds=60))["columns"]["queue"] and r, "a row")
        box.stop(signal.SIGKILL)
        box.start()
        second = columns(box, seconds=60)
        assert len(second["columns"]["queue"]) <= second["last"] - first["last"]
        assert second["instance"] != first["instance"]
