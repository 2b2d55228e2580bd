"""Retries, crowds and what they leave behind in memory."""

from __future__ import annotations

import gc
import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
import zmq
from harness import WAIT_S, Daemon, open_to_others, running, until

from wire.conftest import Stranger


def test_a_retry_storm_mismatches_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    """REQ with RELAXED and CORRELATE, timeouts too short on purpose, 500 ids over 10 clients."""
    limits = {"results_kept_bytes": 4 << 20, "queue_per_identity": 128, "drain_s": 0.2}
    mismatched: list[tuple[str, str]] = []
    with running(tmp_path, limits=limits) as box:

        def client(number: int) -> None:
            rng = random.Random(number)
            req = box.context.socket(zmq.REQ)
            req.linger = 0
            req.setsockopt(zmq.REQ_RELAXED, 1)
            req.setsockopt(zmq.REQ_CORRELATE, 1)
            req.connect(box.request_endpoint)
            for one in range(50):
                request_id = f"c{number}-{one}"
                body = {"op": "generate", "id": request_id, "prompt": f"n=3 delay=0.002 word={request_id},"}
                for _ in range(1000):
                    req.send_json(body)
                    if not req.poll(rng.randrange(1, 40)):
                        continue
                    reply = json.loads(req.recv())
                    if reply.get("error", {}).get("retryable"):
                        continue
                    if (reply["id"], reply.get("text")) != (request_id, f"{request_id}," * 3):
                        mismatched.append((request_id, str(reply)))
                    break
                else:
                    mismatched.append((request_id, "never answered"))
            req.close()

        crowd = [threading.Thread(target=client, args=(n,)) for n in range(10)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join(120)
        with box.client() as operator:
            counters = operator.call(op="status")["counters"]
    assert mismatched == []
    assert counters["accepted"] == 500
    assert counters["finished_stop"] + counters.get("finished_length", 0) == 500


def test_ten_thousand_requests_leave_no_memory_behind(tmp_path: Path) -> None:
    """Resident size once results have expired, within 5 % of what it was, and at most 40 MB."""
    keys = {"limits": {"result_ttl_s": 1, "drain_s": 0.2}, "log_level": "error", "health_interval_s": 0.5}
    with running(tmp_path, **keys) as box:
        warm(box, 500)
        before = settled(box)
        assert before <= 40_960
        warm(box, 10_000)
        settled(box)
        until(lambda: box.rss_kb() <= before * 1.05, f"{before} kB again (now {box.rss_kb()})")


def warm(box: Daemon, count: int) -> None:
    """`count` requests, 32 at a time, a third of them streams."""
    with box.client() as client:
        sent = ended = 0
        outcomes: Counter[str] = Counter()
        while ended < count:
            while sent < count and sent - ended < 32:
                more = {"stream": "reply"} if sent % 3 == 0 else {}
                client.ask(op="generate", prompt=f"n=4 word={'y' * 50}", **more)
                sent += 1
            _, reply = client.receive()
            if reply.get("finish_reason"):
                ended += 1
                outcomes[reply["finish_reason"]] += 1
    assert outcomes == {"stop": count}


def settled(box: Daemon) -> int:
    """VmRSS in kB when two readings after an idle while agree."""
    gc.collect()
    with box.client() as client:
        until(lambda: client.call(op="status")["results"]["kept"] == 0, "expiry", WAIT_S)
    readings = [0]

    def steady() -> int:
        readings.append(box.rss_kb())
        return readings[-1] if readings[-1] == readings[-2] else 0

    return int(until(steady, "a steady size"))


def test_two_thousand_at_once_are_answered_or_refused_and_none_is_lost(daemon: Daemon) -> None:
    outcomes: Counter[str] = Counter()
    with daemon.client() as client:
        for _ in range(2000):
            client.ask(op="generate", prompt="n=2")
        for _ in range(2000):
            _, reply = client.receive()
            outcomes[reply.get("finish_reason") or reply["error"]["code"]] += 1
    assert set(outcomes) <= {"stop", "busy"}
    assert sum(outcomes.values()) == 2000


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
def test_a_user_with_one_request_does_not_wait_behind_another_with_fifty(tmp_path: Path) -> None:
    with running(open_to_others(tmp_path) / "box", limits={"drain_s": 0.2}) as box, box.client() as client:
        other = Stranger(box, uid=54321)
        try:
            other.do(call={"op": "ping"})
            for number in range(50):
                client.ask(op="generate", prompt="n=20 delay=0.005", id=f"many{number}")
            box.wait_status(lambda s: s["queue"]["length"] >= 40, "a queue")
            ticket = other.do(stream={"op": "generate", "prompt": "n=1", "stream": "reply"})
        finally:
            other.close()
    assert ticket["position"] <= 1
