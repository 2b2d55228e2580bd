"""TCP without CURVE: only when the configuration says so, and then the caller is an address."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from harness import Client, Daemon, Subscriber, running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def box(tmp_path: Path) -> Iterator[tuple[Daemon, str, str]]:
    request, stream = f"tcp://127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}"
    places = {"request": [f"ipc://{tmp_path}/run/request.sock", request], "stream": [stream]}
    security = {"allow_insecure_tcp": True}
    with running(tmp_path, listen=places, security=security, limits={"drain_s": 0.2}) as daemon:
        yield daemon, request, stream


def test_a_tcp_caller_is_served_apart_from_the_local_ones(box: tuple[Daemon, str, str]) -> None:
    daemon, request, stream = box
    with Client(daemon.context, request) as remote, daemon.client() as local:
        ticket = remote.call(op="generate", prompt="n=100 delay=0.01", id="r", stream=True)
        with Subscriber(daemon.context, stream, ticket["topic"]) as sub:
            text, end, gaps = sub.whole()
        assert (text, gaps) == (end["text"], 0)
        assert local.call(op="result", id="r")["error"]["code"] == "not_found"
        error = remote.call(op="generate", prompt="n=1", priority="high")["error"]
        assert error["code"] == "forbidden"
        assert local.call(op="generate", prompt="n=1", priority="high")["ok"]
        with daemon.operator() as operator:
            events = remote.stream(prompt="n=4000 delay=0.01", id="seen")
            next(events)
            (row,) = operator.call(op="requests")["requests"]
            assert row["identity"] == "ip:127.0.0.1"
        assert any("CURVE" in warning for warning in local.call(op="status")["warnings"])


def test_a_curve_client_is_not_let_in_as_nobody(box: tuple[Daemon, str, str]) -> None:
    daemon, request, _ = box
    public, secret = zmq.curve_keypair()
    sock = daemon.context.socket(zmq.DEALER)
    sock.linger = 0
    sock.curve_serverkey, sock.curve_publickey, sock.curve_secretkey = zmq.curve_keypair()[0], public, secret
    sock.connect(request)
    sock.send_multipart([b"", json.dumps({"op": "ping"}).encode()])
    assert not sock.poll(500)
    sock.close()
    with Client(daemon.context, request) as good:
        assert good.call(op="ping")["ok"]
