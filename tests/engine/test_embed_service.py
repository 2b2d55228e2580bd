"""`embed` through daemon and worker on real weights, while others stream and things go wrong."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from harness import Daemon, until
from real import cpu_seconds, needs_model, real

pytestmark = needs_model

LONGEST = "word " * 780
"""Sixty-four of them are just below `limits.request_bytes`."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    rules = {"restart": {"max": 100, "backoff_s": 0.01, "backoff_max_s": 0.02}}
    limits = {"deadline_ms": 6000}
    with real(tmp_path_factory.mktemp("embed"), defaults=limits, watchdog=rules) as daemon:
        yield daemon


def test_the_reply(box: Daemon) -> None:
    with box.client() as client:
        reply = client.call(op="embed", input=["hello", "world"], id="e")
        count = client.call(op="tokenize", text="hello")["count"] + client.call(op="tokenize", text="world")["count"]
    assert reply["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert len(reply["embeddings"]) == 2
    for vector in reply["embeddings"]:
        assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-4)
        assert all(round(x, 7) == x for x in vector)


def test_the_largest_request_ends_at_its_deadline_and_the_work_with_it(box: Daemon) -> None:
    with box.client() as client:
        error = client.call(op="embed", input=[LONGEST] * 64)["error"]
        assert (error["code"], error["retryable"]) == ("deadline_exceeded", True)
        assert client.call(op="generate", prompt="One, two,", max_tokens=4)["ok"]
        pid = box.worker_pid()

        def at_rest(last: list[float] = []) -> bool:  # noqa: B006 - the reading before
            last.append(cpu_seconds(pid))
            return len(last) > 9 and last[-1] - last[-9] < 0.02

        until(at_rest, "the worker to rest")


def test_sixteen_clients_embed_while_others_stream(box: Daemon) -> None:
    ends: list[str] = []

    def embed() -> None:
        with box.client() as client:
            for _ in range(2):
                reply = client.call(op="embed", input=["A short text.", "And another one."])
                ends.append("ok" if reply["ok"] else reply["error"]["code"])

    with box.client() as one, box.client() as two:
        texts = [c.stream(prompt="Count: one, two,", max_tokens=40, temperature=0) for c in (one, two)]
        assert all(next(events)["ok"] for events in texts)
        crowd = [threading.Thread(target=embed) for _ in range(16)]
        for thread in crowd:
            thread.start()
        last = [list(events)[-1] for events in texts]
        for thread in crowd:
            thread.join()
    assert [end["usage"]["completion_tokens"] for end in last] == [40, 40], last
    assert set(ends) <= {"ok", "busy"}
    assert "ok" in ends
    assert len(ends) == 32


def test_a_worker_killed_in_mid_embed_is_replaced_and_says_the_same(box: Daemon) -> None:
    with box.client() as client, box.client() as other:
        before = client.call(op="embed", input=["The same text."])["embeddings"]
        tag = other.ask(op="embed", input=[LONGEST] * 8)
        pid = box.worker_pid()
        spent = cpu_seconds(pid)
        until(lambda: cpu_seconds(pid) > spent + 0.2, "the work to begin")
        os.kill(pid, signal.SIGKILL)
        got, reply = other.receive()
        assert got == tag
        assert reply["error"]["code"] == "worker_lost"
        box.wait_ready()
        assert client.call(op="embed", input=["The same text."])["embeddings"] == before


def test_no_text_is_logged(box: Daemon) -> None:
    with box.client() as client:
        client.call(op="embed", input=["xyzzy-secret"])
        client.call(op="embed", input=["xyzzy-secret " * 9000])
    assert "xyzzy" not in box.log.read_text()
