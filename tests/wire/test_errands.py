"""`embed` and `warm` over real sockets, with a worker that obeys its texts."""

from __future__ import annotations

import signal
import time

import zmq
from harness import WAIT_S, Daemon

LONGEST = "x" * 3900
"""Sixty-four of them are just below `limits.request_bytes`."""


def test_embed(daemon: Daemon) -> None:
    with daemon.client() as client:
        reply = client.call(op="embed", input=["one two", "three"], id="e")
    assert (reply["ok"], reply["id"]) == (True, "e")
    assert reply["embeddings"] == [[0.5] * 4] * 2
    assert reply["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert reply["model"]


def test_warm(daemon: Daemon) -> None:
    with daemon.client() as client:
        reply = client.call(op="warm", messages=[{"role": "system", "content": "one two three"}])
    assert (reply["tokens"], reply["cached_tokens"]) == (3, 1)


def test_ping_names_both(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert {"embed", "warm"} <= set(client.call(op="ping")["features"])


def test_refusals_of_the_worker_reach_the_caller(daemon: Daemon) -> None:
    with daemon.client() as client:
        for code in ("context_overflow", "too_large", "low_memory"):
            assert client.call(op="embed", input=[f"refuse={code}"])["error"]["code"] == code


def test_a_deadline_ends_what_the_worker_forgets(daemon: Daemon) -> None:
    daemon.settings["defaults"] = {"deadline_ms": 200}
    daemon.write_config()
    daemon.process.send_signal(signal.SIGHUP)
    with daemon.client() as client:
        daemon.wait_status(lambda s: "configuration_applied" in daemon.log.read_text(), "the new deadline")
        error = client.call(op="embed", input=["stall=1"])["error"]
        assert error["code"] == "deadline_exceeded"
        assert "0.2 s" in error["message"]
        error = client.call(op="warm", messages=[{"role": "user", "content": "stall=1"}])["error"]
        assert error["code"] == "deadline_exceeded"
        assert client.call(op="embed", input=["one"])["ok"]


def test_the_largest_requests_and_no_more_than_a_share(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert len(client.call(op="embed", input=[LONGEST] * 64)["embeddings"]) == 64
        tags = {client.ask(op="embed", input=["stall=1"]) for _ in range(4)}
        assert client.call(op="embed", input=["one"])["error"]["code"] == "busy"
        assert client.call(op="tokenize", text="x")["ok"]
    assert len(tags) == 4


def test_vectors_over_the_bound_are_told(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert client.call(op="embed", input=["dim=10000"] * 60)["error"]["code"] == "too_large"


def test_sixteen_clients_embed_while_others_stream(daemon: Daemon) -> None:
    streams = [daemon.client() for _ in range(4)]
    clients = [daemon.client() for _ in range(16)]
    texts = [s.stream(prompt="n=300 delay=0.002", id=f"s{n}", max_tokens=400) for n, s in enumerate(streams)]
    assert all(next(events)["ok"] for events in texts)
    ends: list[str] = []
    for turn in range(10):
        for client in clients:
            client.ask(op="embed", input=[f"turn {turn}"] * 8)
        for client in clients:
            _, reply = client.receive()
            ends.append("ok" if reply["ok"] else reply["error"]["code"])
    assert set(ends) <= {"ok", "busy"}
    assert ends.count("ok") >= 40
    for events in texts:
        *_, end = events
        assert end["usage"]["completion_tokens"] == 300
    for client in streams + clients:
        client.close()


def test_a_worker_that_dies_over_an_embed_is_told_and_replaced(daemon: Daemon) -> None:
    with daemon.client() as client:
        error = client.call(op="embed", input=["die=KILL"])["error"]
        assert (error["code"], error["retryable"]) == ("worker_lost", True)
        end = time.monotonic() + WAIT_S
        while not (reply := client.call(op="embed", input=["one"]))["ok"]:
            assert reply["error"]["code"] == "unavailable"
            assert time.monotonic() < end
        assert daemon.wait_ready()


def test_a_drain_refuses_them(daemon: Daemon) -> None:
    with daemon.client() as client, daemon.operator() as operator:
        operator.call(op="drain")
        assert client.call(op="embed", input=["one"])["error"]["code"] == "unavailable"
        assert client.call(op="warm", messages=[{"role": "user", "content": "x"}])["error"]["code"] == "unavailable"
        assert client.call(op="tokenize", text="x")["ok"]


def test_no_text_is_logged(daemon: Daemon) -> None:
    secret = "xyzzy-secret"
    with daemon.client() as client:
        client.call(op="embed", input=[secret])
        client.call(op="embed", input=[f"{secret} refuse=internal"])
        client.call(op="warm", messages=[{"role": "user", "content": secret}])
    assert secret not in daemon.log.read_text()


def test_plain_req(daemon: Daemon) -> None:
    req = daemon.socket(zmq.REQ)
    req.send_json({"op": "embed", "input": ["one"]})
    assert req.poll(WAIT_S * 1000)
    assert req.recv_json()["ok"]
