"""Bytes that no honest client sends: an error where one can be addressed, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

import pytest
import zmq
from harness import WAIT_S, Daemon

GOOD = json.dumps({"op": "ping"}).encode()

BODIES = {
    "not JSON": b"hello",
    "GBK": '{"op":"generate","prompt":"你好"}'.encode("gbk"),
    "lone surrogate": b'{"op":"generate","prompt":"\\ud800"}',
    "NUL": b'{"op":"generate","prompt":"a\\u0000b"}',
    "duplicate key": b'{"op":"ping","op":"ping"}',
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "NaN": b'{"op":"generate","prompt":"a","temperature":NaN}',
    "empty": b"",
    "empty prompt": b'{"op":"generate","prompt":""}',
    "empty messages": b'{"op":"generate","messages":[]}',
    "unknown role": b'{"op":"generate","messages":[{"role":"robot","content":"x"}]}',
    "negative deadline": b'{"op":"generate","prompt":"a","deadline_ms":-5}',
    "UTF-16": '{"op":"ping"}'.encode("utf-16"),
    "binary": bytes(range(256)) * 40,
}


def answer(sock: zmq.Socket[Any], frames: list[bytes]) -> dict[str, Any]:
    sock.send_multipart(frames)
    assert sock.poll(WAIT_S * 1000), "no answer"
    return json.loads(sock.recv_multipart()[-1])


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_bad_request_and_the_next_good_one_works(shared: Daemon, name: str) -> None:
    dealer = shared.socket(zmq.DEALER)
    reply = answer(dealer, [b"", BODIES[name]])
    assert reply["error"]["code"] == "bad_request"
    assert reply["error"]["retryable"] is False
    assert answer(dealer, [b"", GOOD])["ok"]


def test_over_the_limit_is_too_large_and_far_over_it_cuts_the_peer_off(shared: Daemon) -> None:
    dealer = shared.socket(zmq.DEALER)
    body = b'{"op":"generate","id":"big","prompt":"' + b"x" * 300_000 + b'"}'
    assert answer(dealer, [b"", body])["error"]["code"] == "too_large"
    monster = shared.socket(zmq.DEALER)
    monster.send_multipart([b"", b"x" * 500_000_000], copy=False)
    assert answer(dealer, [b"", GOOD])["ok"]
    assert shared.rss_kb() < 60_000
    monster.close(linger=0)


@pytest.mark.parametrize(
    "frames",
    [
        [b"tag", GOOD],
        [GOOD],
        [b"", GOOD, GOOD],
        [b"", *[GOOD] * 10],
        [b""],
        [b"", b"", GOOD],
        [b"a", b"b", b"c", b"d", b"e", b"", GOOD],
        [b"x" * 5000, b"", GOOD],
        [b"tag"] * 1000,
    ],
    ids=[
        "no delimiter",
        "body only",
        "two bodies",
        "ten bodies",
        "no body",
        "two empty",
        "long",
        "wide",
        "1000 frames",
    ],
)
def test_bad_framing_is_answered(shared: Daemon, frames: list[bytes]) -> None:
    dealer = shared.socket(zmq.DEALER)
    assert answer(dealer, frames)["error"]["code"] == "bad_request"
    assert answer(dealer, [b"", GOOD])["ok"]


def test_what_stands_before_the_delimiter_is_echoed(shared: Daemon) -> None:
    dealer = shared.socket(zmq.DEALER)
    dealer.send_multipart([b"tag", b"", GOOD])
    assert dealer.poll(WAIT_S * 1000)
    assert dealer.recv_multipart()[:2] == [b"tag", b""]


def test_connections_that_speak_no_zmtp_are_harmless(shared: Daemon) -> None:
    path = shared.request_endpoint.removeprefix("ipc://")
    raw = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    for number, sock in enumerate(raw):
        sock.connect(path)
        sock.send(bytes([number * 5 % 256]) * 200)
    assert answer(shared.socket(zmq.DEALER), [b"", GOOD])["ok"]
    for sock in raw:
        sock.close()


def test_other_socket_types_cannot_harm(shared: Daemon) -> None:
    for kind in (zmq.PUSH, zmq.PUB, zmq.PAIR, zmq.ROUTER, zmq.XSUB):
        odd = shared.socket(kind)
        with contextlib.suppress(zmq.ZMQError):
            odd.send_multipart([b"", GOOD], zmq.NOBLOCK)
    assert answer(shared.socket(zmq.DEALER), [b"", GOOD])["ok"]
