"""The whole road with real weights: a conversation over a restart of the daemon, and over the worker's death."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from harness import Client, Daemon, until
from real import needs_model, real

pytestmark = needs_model
FACTS = "Be brief. " + " ".join(f"Shelf {n} holds {n * 3} jars." for n in range(30))


def turn(client: Client, text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    reply = client.call(op="generate", session="s", messages=messages, max_tokens=12, temperature=0, **more)
    assert reply["ok"], reply
    return reply


def begin(client: Client) -> dict[str, Any]:
    messages = [{"role": "system", "content": FACTS}, {"role": "user", "content": "What is on shelf 3?"}]
    return client.call(op="generate", session="s", messages=messages, max_tokens=12, temperature=0)


def read(reply: dict[str, Any]) -> int:
    return reply["usage"]["prompt_tokens"] - reply["usage"]["cached_tokens"]


def restart(box: Daemon) -> None:
    assert box.stop() == 0
    box.start()


def test_a_conversation_goes_on_after_a_restart_and_reads_only_the_new_turn(tmp_path: Path) -> None:
    with real(tmp_path) as box:
        with box.client() as client:
            first, second = begin(client), turn(client, "And on shelf 4?")
            assert read(first) > 150
            assert read(second) < 40
        restart(box)
        with box.client() as client:
            third = turn(client, "And on shelf 5?")
            assert third["usage"]["cached_tokens"] > second["usage"]["prompt_tokens"]
            assert client.call(op="status")["cache"]["restored"] == 1
            turns = client.call(op="session", session="s", action="get")["turns"]
            assert [t["messages"][-1]["content"] for t in turns] == [r["text"] for r in (first, second, third)]
            assert client.call(op="session", session="s", action="delete")["deleted"]
            kv = tmp_path / "state/kv"
            until(lambda: not list(kv.glob("*.kv")), "the snapshots of the deleted session are gone")


def test_a_conversation_outlives_the_worker(tmp_path: Path) -> None:
    with real(tmp_path) as box, box.client() as client:
        begin(client)
        worker = box.worker_pid()
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        until(lambda: box.worker_pid() not in (None, worker), "another worker")
        box.wait_ready()
        assert turn(client, "And on shelf 4?")["usage"]["prompt_tokens"] > 150


def test_warm_and_drain(tmp_path: Path) -> None:
    system = [{"role": "system", "content": FACTS}]
    with real(tmp_path) as box:
        with box.client() as client, box.operator() as operator:
            warmed = client.call(op="warm", messages=system)
            assert warmed["cached_tokens"] == 0 < warmed["tokens"]
            operator.call(op="drain")
            until(lambda: list((tmp_path / "state/kv").glob("*.kv")), "what was warmed is on the disk")
            operator.call(op="resume")
        restart(box)
        with box.client() as client:
            reply = begin(client)
            assert reply["usage"]["cached_tokens"] >= warmed["tokens"] - 4
