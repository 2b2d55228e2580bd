"""Verbs over real sockets."""

from __future__ import annotations

import json

import zmq
from harness import WAIT_S, Daemon


def test_ping_lists_features_and_endpoints(daemon: Daemon) -> None:
    with daemon.client() as client:
        reply = client.call(op="ping", id="p1")
    assert reply["ok"]
    assert reply["id"] == "p1"
    assert {"stream_pub", "stream_reply", "snapshot"} <= set(reply["features"])
    assert reply["stream"] == [daemon.stream_endpoint]


def test_generate_without_stream_is_the_result(daemon: Daemon) -> None:
    with daemon.client() as client:
        reply = client.call(op="generate", prompt="n=3", id="a", seed=7)
        again = client.call(op="generate", prompt="n=3", id="a", seed=7)
    assert reply["text"] == "t0 t1 t2 "
    assert reply["finish_reason"] == "stop"
    assert reply["usage"] == {"prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 3}
    assert reply["seed"] == 7
    assert set(reply["timing"]) == {"queue_ms", "prefill_ms", "ttft_ms", "total_ms", "tokens_per_second"}
    assert again == reply


def test_plain_req_gets_exactly_one_reply(daemon: Daemon) -> None:
    req = daemon.socket(zmq.REQ)
    for number in range(3):
        req.send_json({"op": "generate", "prompt": "n=1", "id": f"r{number}"})
        assert req.poll(WAIT_S * 1000)
        assert json.loads(req.recv())["id"] == f"r{number}"


def test_a_reply_stream_to_a_req_is_refused(daemon: Daemon) -> None:
    req = daemon.socket(zmq.REQ)
    req.send_json({"op": "generate", "prompt": "n=1", "stream": "reply"})
    assert req.poll(WAIT_S * 1000)
    reply = json.loads(req.recv())
    assert reply["error"]["code"] == "bad_request"
    assert "DEALER" in reply["error"]["message"]


def test_result_waits_and_says_what_there_is(daemon: Daemon) -> None:
    with daemon.client() as client:
        ticket = client.call(op="generate", prompt="n=50 delay=0.02", id="slow", stream=True, detach=True)
        assert ticket["ok"]
        early = client.call(op="result", id="slow", wait_ms=1)
        assert early["state"] in ("queued", "running")
        assert isinstance(early["seq"], int)
        final = client.call(op="result", id="slow", wait_ms=60_000)
    assert final["usage"]["completion_tokens"] == 50
    assert final["text"].startswith(early["text"])


def test_cancel_is_idempotent_and_keeps_the_text(daemon: Daemon) -> None:
    with daemon.client() as client:
        events = client.stream(prompt="n=100000 delay=0.005", id="c", max_tokens=4000)
        assert next(events)["topic"].startswith("tok/")
        while next(events)["type"] != "token":
            pass
        with daemon.client() as other:
            assert other.call(op="cancel", id="c")["state"] == "cancelled"
            assert other.call(op="cancel", id="c")["state"] == "cancelled"
        *tokens, end = list(events)
        assert end["finish_reason"] == "cancelled"
        assert end["text"] == "t0 " + "".join(e["text"] for e in tokens)
        assert client.call(op="cancel", id="nobody")["error"]["code"] == "not_found"
        assert client.call(op="generate", prompt="n=1", id="d")["ok"]
        assert client.call(op="cancel", id="d")["state"] == "finished"


def test_tokenize(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert client.call(op="tokenize", text="four")["count"] == 4
        assert client.call(op="tokenize", messages=[{"role": "user", "content": "x" * 200}])["fits"] is False


def test_refusals_of_the_worker_reach_the_caller(daemon: Daemon) -> None:
    with daemon.client() as client:
        reply = client.call(op="generate", prompt="refuse=context_overflow")
        assert reply["error"]["code"] == "context_overflow"
        *_, end = client.stream(prompt="refuse=context_overflow")
        assert end["error"]["code"] == "context_overflow"


def test_queue_full_is_busy_at_once_and_says_when(daemon: Daemon) -> None:
    daemon.settings["limits"] = {"queue": 3, "queue_per_identity": 3, "drain_s": 0.2}
    daemon.write_config()
    daemon.process.send_signal(1)
    with daemon.client() as client:
        daemon.wait_status(lambda s: s["limits"]["queue"] == 3, "the new limits")
        for _ in range(9):
            assert client.call(op="generate", prompt="n=4000 delay=0.05", stream=True)["ok"]
        error = client.call(op="generate", prompt="n=1")["error"]
    assert error["code"] == "busy"
    assert error["retryable"]
    assert error["retry_after_ms"] > 0


def test_deadline_in_the_queue_is_an_error_and_the_worker_never_sees_it(daemon: Daemon) -> None:
    with daemon.client() as client:
        for _ in range(6):
            client.call(op="generate", prompt="n=4000 delay=0.02", stream=True, detach=True)
        reply = client.call(op="generate", prompt="n=1", deadline_ms=50)
        assert reply["error"]["code"] == "deadline_exceeded"
        status = client.call(op="status")
    assert status["slots"]["busy"] == 4


def test_deadline_with_text_is_a_result(daemon: Daemon) -> None:
    with daemon.client() as client:
        reply = client.call(op="generate", prompt="n=4000 delay=0.01", max_tokens=4000, deadline_ms=300)
    assert reply["finish_reason"] == "deadline"
    assert reply["text"]


def test_a_worker_that_says_nothing_is_overruled_by_the_deadline(daemon: Daemon) -> None:
    with daemon.client() as client:
        reply = client.call(op="generate", prompt="stall=1", deadline_ms=100)
    assert reply["error"]["code"] == "deadline_exceeded"


def test_operators_see_requests_and_cancel_anybodys(daemon: Daemon) -> None:
    with daemon.client() as client, daemon.operator() as operator:
        events = client.stream(prompt="n=4000 delay=0.01", id="mine")
        next(events)
        assert client.call(op="requests")["error"]["code"] == "forbidden"
        (row,) = operator.call(op="requests")["requests"]
        assert row["id"] == "mine"
        assert operator.call(op="cancel", id="mine", identity=row["identity"])["state"] == "cancelled"
        assert operator.call(op="loglevel", level="debug")["level"] == "debug"
        assert operator.call(op="fly")["error"]["code"] == "unknown_op"
        assert operator.call(op="drain")["state"] == "draining"
        assert client.call(op="generate", prompt="n=1")["error"]["code"] == "unavailable"
        assert operator.call(op="resume")["state"] == "ready"
        assert client.call(op="generate", prompt="n=1")["ok"]


def test_the_id_of_a_ticket_repeats_the_body_that_had_none(daemon: Daemon) -> None:
    body = {"op": "generate", "prompt": "n=30 delay=0.01", "stream": True}
    with daemon.client() as client:
        first = client.call(**body)
        again = client.call(**body, id=first["id"])
    assert again["topic"] == first["topic"]
