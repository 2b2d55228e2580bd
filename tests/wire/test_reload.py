"""Replacing the worker while requests go on: SIGHUP, `reload`, `profile`, `config`, hangs (faults 2, 4, 8, 27)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, running, tiny_gguf, until

WHOLE = "".join(f"t{n} " for n in range(60))
PROMPT = {"prompt": "n=60 delay=0.02", "deadline_ms": 60_000}
TWO = [{"name": "big"}, {"name": "small", "context": 512}]


def begun(client: Any, **body: Any) -> Any:
    """A stream that has a token."""
    stream = client.stream(**{**PROMPT, **body})
    events = [next(stream)]
    while events[-1].get("type") != "token":
        events.append(next(stream))
    return stream


def restarts(events: list[dict[str, Any]]) -> list[str]:
    return [event["reason"] for event in events if event["type"] == "restart"]


def hangup(box: Daemon, **keys: Any) -> None:
    box.settings.update(keys)
    box.write_config()
    applied = box.log.read_text().count("configuration_applied")
    box.process.send_signal(signal.SIGHUP)
    until(lambda: box.log.read_text().count("configuration_applied") > applied, "applied")


# ---- SIGHUP ---------------------------------------------------------------------------------------------------------


def test_another_context_in_mid_stream(tmp_path: Path) -> None:
    with running(tmp_path) as box, box.client() as client:
        stream = begun(client)
        before = box.worker_pid()
        hangup(box, profiles=[{"name": "default", "context": 512}])
        *events, end = stream
        assert (end["text"], restarts(events)) == (WHOLE, ["reload"])
        assert box.wait_status(lambda s: s["ready"], "ready")["model"]["context"] == 512
        assert box.worker_pid() != before
        assert box.wait_status(lambda s: True, "")["watchdog"]["worker_deaths"] == 0


def test_another_model_ends_what_has_text_and_starts_the_rest_afresh(tmp_path: Path) -> None:
    with running(tmp_path / "box") as box, box.client() as client:
        stream = begun(client, prompt="n=4000 delay=0.02", max_tokens=4000)
        other = tiny_gguf(tmp_path / "other.gguf")
        other.write_bytes(other.read_bytes() + b"\0" * 64)
        hangup(box, model={"path": str(other)})
        *_, end = stream
        assert end["finish_reason"] == "length"
        assert client.call(op="generate", prompt="n=2")["model"] == "other"


@pytest.mark.parametrize("fault", ["truncated", "zero bytes", "not GGUF", "nothing", "a directory"])
def test_a_bad_model_leaves_the_old_one_and_the_old_configuration_heals(tmp_path: Path, fault: str) -> None:
    bad = tmp_path / "bad.gguf"
    match fault:
        case "truncated":
            tiny_gguf(bad).write_bytes(bad.read_bytes()[:-8])
        case "zero bytes":
            bad.touch()
        case "not GGUF":
            bad.write_bytes(b"PK\x03\x04" + b"x" * 5000)
        case "nothing":
            bad.symlink_to(tmp_path / "nowhere")
        case _:
            bad.mkdir()
    with running(tmp_path / "box") as box, box.client() as client:
        good, pid = box.settings["model"], box.worker_pid()
        stream = begun(client)
        hangup(box, model={"path": str(bad)})
        status = box.wait_status(lambda s: any("did not come up" in w for w in s["warnings"]), "the warning")
        assert (status["state"], status["ready"]) == ("ready", True)
        assert "kept" in box.log.read_text()
        *events, end = stream
        assert (end["text"], restarts(events)) == (WHOLE, [])
        hangup(box, model=good)
        assert not box.wait_status(lambda s: True, "")["warnings"]
        assert box.worker_pid() == pid


def test_a_wrong_sha256_is_found_before_anything_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path) as box:
        pid = box.worker_pid()
        hangup(box, model={**box.settings["model"], "sha256": "0" * 64})
        box.wait_status(lambda s: any("sha256" in w for w in s["warnings"]), "the warning")
        assert box.worker_pid() == pid


def test_a_profile_that_moves_in_the_list_goes_on(tmp_path: Path) -> None:
    rules = {"hold_s": 0.2, "reload_s": 0.2, "interval_s": 0.02}
    with running(tmp_path, profiles=TWO, watchdog={**rules, "reload_s": 3600}) as box, box.operator() as operator:
        operator.call(op="reload", profile="small")
        box.wait_status(lambda s: s["profile"] == "small" and s["watchdog"]["reload"] is None, "small")
        pid = box.worker_pid()
        hangup(box, profiles=[TWO[1], {"name": "other", "context": 256}], watchdog=rules)
        status = box.wait_status(lambda s: s["state"] == "ready" and s["watchdog"]["readings"], "first now")
        hangup(box)
        assert (status["profile"], box.worker_pid()) == ("small", pid)


def test_what_does_not_concern_the_worker_replaces_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as box:
        pid = box.worker_pid()
        hangup(box, limits={"waiters": 3}, log_level="debug")
        hangup(box)
        assert box.worker_pid() == pid
        assert box.wait_status(lambda s: s["limits"]["waiters"] == 3, "the limit")["watchdog"]["worker_starts"] == 1


# ---- operators ------------------------------------------------------------------------------------------------------


def test_reload_in_mid_stream(tmp_path: Path) -> None:
    with running(tmp_path, profiles=TWO) as box, box.client() as client, box.operator() as operator:
        with box.subscriber("sys/model") as events:
            stream = begun(client)
            reply = operator.call(op="reload", id="r")
            assert (reply["state"], reply["profile"], reply["id"]) == ("reloading", "big", "r")
            *told, end = stream
            assert (end["text"], restarts(told)) == (WHOLE, ["reload"])
            happened = [events.receive()["event"] for _ in range(3)]
        assert happened == ["reloading", "ready", "reloaded"]
        assert operator.call(op="reload", profile="small")["profile"] == "small"
        status = box.wait_status(lambda s: s["profile"] == "small" and s["watchdog"]["reload"] is None, "small")
        assert (status["state"], status["model"]["context"]) == ("degraded", 512)
        assert "big, small" in operator.call(op="reload", profile="huge")["error"]["message"]
        assert client.call(op="reload")["error"]["code"] == "forbidden"


def test_reload_ends_unavailable(tmp_path: Path) -> None:
    box = Daemon(tmp_path, model=tmp_path / "later.gguf")
    try:
        box.start(ready=False)
        box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
        tiny_gguf(tmp_path / "later.gguf")
        with box.operator() as operator:
            operator.call(op="reload")
        box.wait_ready()
    finally:
        box.close()


def test_a_profile_is_shown_pinned_and_let_go(tmp_path: Path) -> None:
    rules = {"hold_s": 0.1, "reload_s": 0.1, "interval_s": 0.02}
    with running(tmp_path, profiles=TWO, watchdog=rules) as box, box.operator() as operator:
        shown = operator.call(op="profile")
        assert [(row["name"], row["current"], row["fits"]) for row in shown["profiles"]] == [
            ("big", True, True),
            ("small", False, True),
        ]
        assert (shown["wanted"], shown["pinned"]) == ("big", None)
        assert operator.call(op="profile", profile="small")["pinned"] == "small"
        box.wait_status(lambda s: s["profile"] == "small" and s["watchdog"]["reload"] is None, "small")
        assert "pinned" in operator.call(op="reload", profile="big")["error"]["message"]
        assert operator.call(op="profile")["wanted"] == "small"
        assert operator.call(op="profile", auto=True)["pinned"] is None
        box.wait_status(lambda s: s["profile"] == "big" and s["state"] == "ready", "big again")


def test_the_configuration_is_checked_and_applied(tmp_path: Path) -> None:
    with running(tmp_path) as box, box.operator() as operator:
        box.config.write_text("limits: {queue: many}\n")
        for action in ("check", "apply"):
            error = operator.call(op="config", action=action)["error"]
            assert error["code"] == "bad_request"
            assert "limits.queue" in error["message"]
        box.settings["limits"] = {"waiters": 3}
        box.write_config()
        assert operator.call(op="config", action="check")["applied"] is False
        assert operator.call(op="status")["limits"]["waiters"] == 8
        applied = operator.call(op="config", action="apply")
        assert (applied["applied"], applied["reloading"]) == (True, False)
        assert operator.call(op="status")["limits"]["waiters"] == 3
        box.settings["profiles"] = [{"name": "default", "context": 512}]
        box.write_config()
        assert operator.call(op="config", action="apply")["reloading"] is True
        box.wait_status(lambda s: s["model"].get("context") == 512, "the new context")


# ---- hangs and deaths -----------------------------------------------------------------------------------------------


def test_a_stopped_worker_is_killed_and_the_text_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, watchdog={"stall_s": 0.4}) as box, box.client() as client:
        stream = begun(client)
        os.kill(box.worker_pid(), signal.SIGSTOP)
        *events, end = stream
        assert (end["text"], restarts(events)) == (WHOLE, ["stalled"])
        assert box.wait_status(lambda s: True, "")["watchdog"]["last_exit"]["cause"] == "stalled"


def test_a_long_prefill_trips_nothing(tmp_path: Path) -> None:
    """Fault 30: longer than the bound many times over, with a chunk within it each time."""
    with running(tmp_path, watchdog={"stall_s": 0.5}) as box, box.client() as client:
        reply = client.call(op="generate", prompt="n=2 chunks=15 pdelay=0.1", deadline_ms=60_000)
        assert reply["text"] == "t0 t1 "
        assert box.wait_status(lambda s: True, "")["watchdog"]["worker_deaths"] == 0


def kill_storm(box: Daemon) -> tuple[list[str], dict[str, Any]]:
    """Every worker is killed until there is none: the profiles that were ready, and the last status."""
    seen = []
    while True:
        status = box.wait_status(lambda s: s["ready"] or s["state"] == "unavailable", "ready or not")
        if status["state"] == "unavailable":
            return seen, status
        seen.append(status["profile"])
        victim = box.worker_pid()
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: box.worker_pid() != victim, "its end")


def test_a_kill_storm_leads_down_the_profiles_and_to_unavailable(tmp_path: Path) -> None:
    """Fault 4."""
    rules = {"restart": {"max": 1, "backoff_s": 0.01, "backoff_max_s": 0.02}}
    with running(tmp_path, profiles=TWO, watchdog=rules) as box, box.client() as client:
        tag = client.ask(op="generate", prompt="n=4000 delay=0.01", deadline_ms=60_000, max_tokens=400)
        seen, _ = kill_storm(box)
        assert seen[0] == "big"
        assert seen[-1] == "small"
        got, reply = client.receive()
        assert (got, reply["error"]["code"]) == (tag, "unavailable")
        assert "smaller_profile" in box.log.read_text()


def test_a_bad_smaller_profile_is_passed_over_and_the_best_comes_back(tmp_path: Path) -> None:
    """A kill storm with `b` damaged: a, c, then unavailable; a reload begins with a."""
    rules = {"restart": {"max": 1, "backoff_s": 0.01, "backoff_max_s": 0.02}}
    (tmp_path / "bad.gguf").write_bytes(b"GGUFxxxx")
    profiles = [{"name": "a"}, {"name": "b", "model": str(tmp_path / "bad.gguf")}, {"name": "c", "context": 512}]
    with running(tmp_path, profiles=profiles, watchdog=rules) as box, box.operator() as operator:
        seen, status = kill_storm(box)
        assert list(dict.fromkeys(seen)) == ["a", "c"]
        assert any(warning.startswith("profile b cannot be loaded: ") for warning in status["warnings"])
        assert any("restart.max" in warning for warning in status["warnings"])
        assert operator.call(op="reload")["profile"] == "a"
        assert box.wait_ready()["profile"] == "a"


def test_a_rejected_file_says_when_it_is_looked_at_again(tmp_path: Path) -> None:
    box = Daemon(tmp_path, model=tmp_path / "later.gguf")
    try:
        box.start(ready=False)
        box.wait_status(lambda s: s["state"] == "unavailable", "unavailable")
        with box.client() as client:
            error = client.call(op="generate", prompt="n=1")["error"]
            assert (error["code"], error["retry_after_ms"] <= 5000) == ("unavailable", True)
            tiny_gguf(tmp_path / "later.gguf")
            box.wait_ready()
    finally:
        box.close()


def test_the_warning_of_what_did_not_come_up_names_things_once(tmp_path: Path) -> None:
    profiles = [{"name": "a"}, {"name": "b", "model": str(tmp_path / "nowhere.gguf")}]
    with running(tmp_path, profiles=profiles) as box, box.operator() as operator:
        operator.call(op="profile", profile="b")
        status = box.wait_status(lambda s: any("did not come up" in w for w in s["warnings"]), "the warning")
        told = "profile a stays in service, what was wanted (profile) did not come up: "
        assert [warning.startswith(told) for warning in status["warnings"] if "did not come up" in warning] == [True]
