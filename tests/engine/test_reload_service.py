"""The real worker replaced under a stream: new first, old first, unloaded between; the text is the undisturbed one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakeroot import FakeRoot
from harness import Daemon
from real import needs_model, real

pytestmark = needs_model
ASK = {
    "messages": [{"role": "user", "content": "Write about the sea."}],
    "max_tokens": 90,
    "seed": 7,
    "temperature": 0.8,
}
QUICK = {"interval_s": 0.02, "hold_s": 0.3, "reload_s": 0.4, "stall_s": 2, "pacing": {"settle_s": 0.5, "knobs": []}}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> FakeRoot:
    return FakeRoot(tmp_path_factory.mktemp("board"))


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, board: FakeRoot) -> Iterator[Daemon]:
    profiles = [{"name": "big", "context": 1024, "sequences": 2}, {"name": "small", "context": 512, "sequences": 1}]
    watchdog = {"root": str(board.path), **QUICK}
    with real(tmp_path_factory.mktemp("box"), profiles=profiles, watchdog=watchdog, cache={"disk": "off"}) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def reference(box: Daemon) -> str:
    with box.client() as client:
        return client.call(op="generate", **ASK)["text"]


def disturbed(box: Daemon, board: FakeRoot, how: str) -> tuple[str, list[str], dict[str, Any]]:
    """Text as it was streamed, reasons of restarts, the end."""
    text, reasons = "", []
    with box.client() as client, box.operator() as operator:
        for event in client.stream(**ASK):
            if event.get("type") == "token":
                text += event["text"]
                if text and how:
                    disturb(box, board, operator, how)
                    how = ""
            elif event.get("type") == "restart":
                reasons.append(event["reason"])
                board.memory(3000)
                board.heat(45)
    return text, reasons, event


def disturb(box: Daemon, board: FakeRoot, operator: Any, how: str) -> None:
    match how:
        case "reload":
            operator.call(op="reload")
        case "heat":
            board.heat(80)
        case "memory":
            board.memory(300)
        case "critical":
            board.memory(100)
        case "stopped":
            os.kill(box.worker_pid() or 0, signal.SIGSTOP)


@pytest.mark.parametrize("how", ["reload", "heat", "memory", "critical", "stopped"])
def test_the_text_is_the_undisturbed_one(box: Daemon, board: FakeRoot, reference: str, how: str) -> None:
    box.wait_status(lambda s: s["state"] == "ready" and s["profile"] == "big", "rest")
    text, reasons, end = disturbed(box, board, how)
    assert text == end["text"] == reference
    assert reasons[:1] == [{"critical": "memory", "stopped": "stalled"}.get(how, how)]
    assert Path(f"/proc/{box.pid}").exists()
