"""The whole service on real weights: daemon, worker, sockets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from crowd import Crowd, balance
from harness import Daemon, until
from real import needs_model, real

pytestmark = needs_model

LONG = "The river flows past the old mill and the children wave. " * 90
"""About 1,000 tokens."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with real(tmp_path_factory.mktemp("real")) as daemon:
        yield daemon


def test_a_crowd_is_served_whole(box: Daemon) -> None:
    crowd = Crowd(box, clients=12, seconds=4, max_tokens=24).run()
    assert crowd.faults == []
    assert set(crowd.outcomes) <= {"stop", "length", "busy"}
    assert crowd.outcomes["stop"] + crowd.outcomes["length"] >= 12  # each of them asked at least once
    assert balance(box.wait_status(lambda s: not s["queue"]["accepted"], "rest")) == 0


def test_status_answers_while_a_long_prompt_is_read(box: Daemon) -> None:
    with box.client() as client, box.client() as other:
        events = client.stream(prompt=LONG, max_tokens=1)
        next(events)
        assert next(events)["type"] == "prefill"
        status = other.call(op="status")
        assert status["slots"]["busy"] == 1
        *progress, end = events
        kinds = [event["type"] for event in progress]
        assert end["usage"]["prompt_tokens"] > 900
        assert end["timing"]["prefill_ms"] > end["timing"]["queue_ms"]
    assert set(kinds) <= {"prefill", "token"}


def test_threads_are_shown_with_the_cores_they_are_pinned_to(box: Daemon) -> None:
    with box.client() as client:
        threads = client.call(op="status")["threads"]
    assert threads
    for thread in threads:
        if thread["cores"] != [thread["core"]]:
            continue
        allowed = Path(f"/proc/{box.worker_pid()}/task/{thread['tid']}/status").read_text()
        assert f"Cpus_allowed_list:\t{thread['core']}\n" in allowed


def test_the_same_seed_gives_the_same_text_and_another_another(box: Daemon) -> None:
    body = {"op": "generate", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 1.0}
    with box.client() as client:
        first, again = (client.call(**body, seed=11, id=f"s{n}")["text"] for n in range(2))
        others = {client.call(**body, seed=n)["text"] for n in range(3)}
    assert first == again
    assert len(others) == 3


def test_a_temperature_next_to_nothing_is_greedy(box: Daemon) -> None:
    body = {"op": "generate", "prompt": "The sea is", "max_tokens": 12, "seed": 1}
    with box.client() as client:
        texts = {client.call(**body, temperature=t)["text"] for t in (0, 1e-45, 1e-38, 1e-30, 1e-7)}
    assert len(texts) == 1


def test_a_prompt_one_token_too_long_is_told_with_both_numbers(box: Daemon) -> None:
    with box.client() as client:
        size = client.call(op="tokenize", text=" word" * 100)["count"]
        per_word = size / 100
        words = int(4096 / per_word) + 2
        count = client.call(op="tokenize", text=" word" * words)["count"]
        assert count > 4095
        error = client.call(op="generate", prompt=" word" * words)["error"]
        assert error["code"] == "context_overflow"
        assert str(count) in error["message"]
        assert "4096" in error["message"]


def test_a_killed_worker_is_replaced_and_answers_the_same(tmp_path: Path) -> None:
    rules = {"restart": {"max": 100, "backoff_s": 0.01, "backoff_max_s": 0.02}}
    body = {"op": "generate", "prompt": "The capital of France", "max_tokens": 16, "temperature": 0}
    with real(tmp_path, watchdog=rules) as box, box.client() as client:
        before = client.call(**body)["text"]
        for name in ("KILL", "SEGV"):
            events = client.stream(prompt="Count: one, two, three,", max_tokens=90, temperature=0)
            while next(events).get("type") != "token":
                pass
            victim = box.worker_pid()
            os.kill(victim, getattr(signal, f"SIG{name}"))
            end = list(events)[-1]
            assert end["finish_reason"] in ("stop", "length")
            assert end["restarts"] == 1
            until(lambda victim=victim: box.worker_pid() not in (None, victim), "another worker")
            status = box.wait_status(lambda s: s["ready"], "ready")
            assert status["watchdog"]["last_exit"]["cause"] == f"SIG{name}"
        assert client.call(**body)["text"] == before


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores")
def test_the_daemon_keeps_off_the_compute_cores_and_the_next_worker_gets_them_all(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    rules = {"restart": {"max": 100, "backoff_s": 0.01}}
    with real(tmp_path, watchdog=rules, cpu={"reserve_cores": 1}) as box, box.client() as client:
        for _ in range(2):
            status = box.wait_status(lambda s: s["ready"], "ready")
            compute = {thread["core"] for thread in status["threads"]}
            assert compute
            assert compute < allowed
            for tid in os.listdir(f"/proc/{box.pid}/task"):
                assert os.sched_getaffinity(int(tid)) == allowed - compute
            victim = box.worker_pid()
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: box.worker_pid() not in (None, victim), "another worker")
        assert box.wait_ready()
        assert client.call(op="status")["watchdog"]["worker_deaths"] == 2
