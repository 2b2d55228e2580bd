"""The live target: frames and bytes of all kinds at a real daemon, over plain sockets without libzmq.

Each round is a connection that says what a `Random` of its number makes it say. Meanwhile the daemon has to answer a
good client; at the end it has met no bug of its own, and has its memory.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path
from random import Random

from harness import Daemon, running

from .campaign import inputs
from .grammars import REQUEST
from .mutate import mutate

NAME = "live"
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01NULL" + b"\0" * 48
ENDPOINTS = ("request", "request", "stream", "control")
PEERS = {
    "stream": ("SUB", "SUB", "SUB", "XSUB", "DEALER", ""),
    "request": ("DEALER", "DEALER", "DEALER", "REQ", "SUB", "ROUTER", "", "X" * 200),
    "control": ("DEALER", "REQ", "PUSH"),
}
BANNED_WORDS = (b"drain", b"reload", b"profile", b"loglevel", b"apply")
"""Verbs that would end the exercise, or make it one of starting workers."""
OPEN = 24
"""Connections that stay open behind the newest."""
GROWTH_KB = 24 << 10
"""What the daemon may keep of it all: results (2 MiB), subscriptions (8 MB in libzmq), buffers of open connections."""
WORKERS_MOST = 3
TAKEN = 0.001
"""How many bring a routing id that may be taken. libzmq 4.3 keeps 10 kB of each such connection for as long as the
ROUTER lives (measured): it never reads what tells it that the peer has gone."""


def run(directory: Path, seconds: float, seed: int) -> str:
    """What was done, in words. Raises AssertionError."""
    with running(directory / "box", limits={"drain_s": 0.2}, security={"ban_s": 0}) as box:
        return _attack(box, seconds, seed)


def _attack(box: Daemon, seconds: float, seed: int) -> str:
    bodies = [path.read_bytes() for path in inputs("corpus", "request")]
    end, rounds, answered = time.monotonic() + seconds, 0, 0
    with box.client() as client:
        assert client.call(op="ping")["ok"]
        before = box.rss_kb()
        open_ones: list[socket.socket] = []
        while time.monotonic() < end:
            place = f"seed {seed}, round {rounds}"
            rng = Random(f"{seed} {rounds}")
            endpoint = rng.choice(ENDPOINTS)
            connection = _connect(box, endpoint)
            with contextlib.suppress(OSError):
                _say(connection, rng, endpoint, bodies)
            open_ones.append(connection)
            if len(open_ones) > OPEN:
                open_ones.pop(rng.randrange(len(open_ones))).close()
            rounds += 1
            if rounds % 10 == 0:
                assert box.process is not None
                assert box.process.poll() is None, f"the daemon has gone: {place}"
                assert client.call(op="ping")["ok"], place
                reply = client.call(op="generate", prompt="hi", max_tokens=2)
                assert reply["ok"] or reply["error"]["code"] in ("busy", "deadline_exceeded", "worker_lost"), (
                    place,
                    reply,
                )
                answered += bool(reply["ok"])
        for connection in open_ones:
            connection.close()
        status = client.call(op="status")
        assert not status["counters"].get("bugs"), (seed, rounds, box.log.read_text()[-3000:])
        assert status["watchdog"]["worker_deaths"] <= WORKERS_MOST, status["watchdog"]
        grown = box.rss_kb() - before
        assert grown < GROWTH_KB, f"seed {seed}: {grown} kB more after {rounds} rounds"
        assert "Traceback" not in box.log.read_text()
    assert answered
    return f"{rounds / seconds:.0f} connections a second, {answered} answers to a good client between, {grown} kB more"


def _connect(box: Daemon, endpoint: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(0.2)
    sock.connect(str(box.directory / "run" / f"{endpoint}.sock"))
    return sock


def _say(sock: socket.socket, rng: Random, where: str, bodies: list[bytes]) -> None:
    greeting, ready = GREETING, _command(b"READY", _properties(rng, where))
    if rng.random() < 0.15:
        greeting = mutate(rng, greeting)
    if rng.random() < 0.15:
        ready = mutate(rng, ready)
    sock.sendall(greeting + ready)
    for _ in range(rng.choice((0, 1, 3, 10, 30))):
        sock.sendall(_message(rng, where, bodies))
    if rng.random() < 0.5:
        sock.recv(1 << 16)


def _properties(rng: Random, where: str) -> bytes:
    own = b"%d" % rng.randrange(1 << 40)
    ids = (b"me", b"\0abcd", b"i" * 255) if rng.random() < TAKEN else (*[b""] * 9, own, own + b"i" * 240)
    pairs = [(b"Socket-Type", rng.choice(PEERS[where]).encode()), (b"Identity", rng.choice(ids))]
    pairs += [(b"X-Conn", b"1"), (b"User-Id", b"uid:0")] if rng.random() < 0.1 else []
    return b"".join(bytes([len(n)]) + n + struct.pack(">I", len(v)) + v for n, v in pairs)


def _command(name: bytes, body: bytes) -> bytes:
    data = bytes([len(name)]) + name + body
    return _frame(data, command=True)


def _frame(data: bytes, *, more: bool = False, command: bool = False) -> bytes:
    long = len(data) > 255
    size = struct.pack(">Q", len(data)) if long else bytes([len(data)])
    return bytes([more | long << 1 | command << 2]) + size + data


def _message(rng: Random, where: str, bodies: list[bytes]) -> bytes:
    kind = rng.random()
    if kind < 0.03:
        return rng.randbytes(rng.choice((1, 9, 64, 500)))
    if kind < 0.08:
        name = rng.choice((b"PING", b"PONG", b"SUBSCRIBE", b"CANCEL", b"READY", b"ERROR", b"HELLO", b""))
        return _command(name, rng.randbytes(rng.choice((0, 1, 20))))
    if (where == "stream") == (rng.random() < 0.95):
        topic = rng.choice(
            (b"sys/health", b"sys/", b"", b"tok/", b"tok/" + b"0" * 32 + b"/", rng.randbytes(8), b"t" * 2000)
        )
        return _frame(rng.choice((b"\1", b"\1", b"\1", b"\0", b"\0", rng.choice((b"\2", b"")))) + topic)
    body = _body(rng, bodies)
    frames = [b"", body]
    if rng.random() < 0.3:
        frames.insert(0, rng.choice((b"1", rng.randbytes(4), b"x" * 600)))
    if rng.random() < 0.1:
        frames = [rng.choice((b"", b"a", body[:50], b"f" * 300)) for _ in range(rng.choice((1, 3, 20)))]
    return b"".join(_frame(data, more=at < len(frames) - 1) for at, data in enumerate(frames))


def _body(rng: Random, bodies: list[bytes]) -> bytes:
    """A third is sound, under ids that come back."""
    body = rng.choice(bodies)
    if rng.random() < 0.35:
        body = body.replace(b'"sensor7-000042"', b'"id%d"' % rng.randrange(40))
    else:
        body = REQUEST.mutate(rng, body)
        body = mutate(rng, body) if rng.random() < 0.3 else body
    return b'{"op":"ping"}' if any(word in body for word in BANNED_WORDS) else body[: 64 << 10]
