"""edgectl with keys, from an empty box to a revoked device; and what it does while a box is restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Daemon, until
from keys import free_port
from terminal import screen

EDGECTL = [sys.executable, "-m", "edged.cli.main"]


def edgectl(*words: str, status: int = 0) -> str:
    done = subprocess.run([*EDGECTL, *words], check=False, capture_output=True, text=True, timeout=60, input="")
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def test_from_an_empty_box_to_a_revoked_device(tmp_path: Path) -> None:
    request = f"tcp://127.0.0.1:{free_port()}"
    box = Daemon(
        tmp_path / "box",
        listen={"request": [f"ipc://{tmp_path}/box/run/request.sock", request]},
        security={"clients_dir": f"{tmp_path}/etc/clients", "server_key": f"{tmp_path}/etc/keys/server.key_secret"},
    )
    here, device = ("--config", str(box.config)), tmp_path / "device"
    there = (
        *("--endpoint", request, "--key", f"{device}/kitchen.key_secret"),
        *("--server-key", f"{device}/server.key"),
    )
    try:
        assert "edgectl keys server" in edgectl(*here, "config", "check", status=78)
        edgectl(*here, "keys", "server")
        edgectl(*here, "config", "check")
        box.start()
        said = json.loads(edgectl(*here, "keys", "client", "kitchen", "--out", str(device), "--reload", "--json"))
        assert said["reloaded"]
        assert edgectl(*there, "ask", "n=3") == "t0 t1 t2 \n"
        assert edgectl(*there, "status", "--json")
        assert "never over TCP" in edgectl(*there, "requests", status=2)
        assert "`server_key` is missing" in edgectl(*there[:4], "ping", status=2)
        assert "in force now" in edgectl(*here, "keys", "revoke", "kitchen", "--reload")
        for words in (("ping",), ("ask", "n=3")):
            assert f"{request} refuses the connection: it does not know this key" in edgectl(*there, *words, status=3)
        (tmp_path / "etc/clients/bad.key").write_text("nonsense\n")
        assert "bad.key:1: " in edgectl(*here, "config", "check", status=78)
        assert "bad.key:1: " in edgectl(*here, "config", "apply", status=1)
    finally:
        box.close()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Daemon]:
    """A box that takes its time to load."""
    box = Daemon(tmp_path / "box", script="load=1", limits={"drain_s": 0.2})
    yield box
    box.close()


def test_ask_waits_for_a_box_that_loads(slow: Daemon) -> None:
    slow.start(ready=False)
    at = ("--endpoint", slow.request_endpoint)
    worker = until(slow.worker_pid, "the worker")
    os.kill(worker, signal.SIGSTOP)
    assert "loading" in edgectl(*at, "ask", "--no-wait", "n=3", status=1)
    refused = slow.wait_status(lambda s: s["counters"].get("refused_loading"), "the refusal")["counters"]
    assert refused["refused_loading"] == 1

    def go_on() -> None:
        slow.wait_status(lambda s: s["counters"]["refused_loading"] > 1, "the next one")
        os.kill(worker, signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    code, shown = screen(*EDGECTL, *at, "ask", "n=3", columns=100)
    thread.join()
    assert code == 0
    assert "loading: the model is loading" in shown
    assert shown.endswith("\r\x1b[Kt0 t1 t2 \n"), "the word on it is gone when the answer comes"


def test_ask_is_served_by_the_next_daemon(slow: Daemon) -> None:
    """A stop in order ends the request; the same call asks the next daemon."""
    slow.start()
    command = [*EDGECTL, "--endpoint", slow.request_endpoint, "ask", "n=60 delay=0.02"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        until(lambda: slow.wait_status(lambda s: s["slots"]["busy"], "the request"), "the request")
        assert slow.stop(signal.SIGTERM) == 0
        slow.start(ready=False)
        text, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert text.endswith("".join(f"t{n} " for n in range(60)) + "\n")
    assert "shutting_down" in errors
    assert "the answer begins anew" in errors
