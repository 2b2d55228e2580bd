"""Peers that mean harm: ZMTP spoken over plain sockets, so that nothing is said that libzmq would not let through.

    python tests/attacker.py KIND ENDPOINT [key=value …]

A kind is a method of `Attacker`. It runs until it is killed, or as its docstring says. `uid=N`: as that user (root
only); `source=ADDRESS`: from that address. One line on stdout says `ready` when the attack is under way.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable

GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01NULL" + b"\0" * 48
MORE, LONG, COMMAND = 1, 2, 4
GOOD = b'{"op":"ping"}'


def frame(data: bytes, flags: int = 0) -> bytes:
    if len(data) > 255:
        return bytes([flags | LONG]) + struct.pack(">Q", len(data)) + data
    return bytes([flags, len(data)]) + data


def prop(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def command(name: bytes, body: bytes = b"") -> bytes:
    return frame(bytes([len(name)]) + name + body, COMMAND)


def message(*frames: bytes) -> bytes:
    return b"".join(frame(one, MORE if at < len(frames) - 1 else 0) for at, one in enumerate(frames))


SOURCE: dict[str, str] = {}
"""`ip`: the address that tcp connections come from."""


def dial(endpoint: str, wait_s: float = 20.0) -> socket.socket:
    """A connected socket. A full backlog of a Unix socket is waited for."""
    scheme, _, place = endpoint.partition("://")
    family = socket.AF_UNIX if scheme == "ipc" else socket.AF_INET
    host, _, port = place.rpartition(":")
    sock = socket.socket(family)
    sock.settimeout(wait_s)
    if scheme == "tcp" and SOURCE:
        sock.bind((SOURCE["ip"], 0))
    sock.connect(place if scheme == "ipc" else (host, int(port)))  # type: ignore[arg-type]
    return sock


def shake(endpoint: str, kind: bytes = b"DEALER", extra: bytes = b"", wait_s: float = 20.0) -> socket.socket:
    """Through the handshake; OSError when the daemon hangs up."""
    sock = dial(endpoint, wait_s)
    sock.sendall(GREETING + command(b"READY", prop(b"Socket-Type", kind) + extra))
    heard = b""
    while b"READY" not in heard:
        more = sock.recv(4096)
        if not more or b"ERROR" in more:
            sock.close()
            raise ConnectionResetError("refused")
        heard += more
    return sock


MALFORMED: list[list[bytes]] = [
    [GOOD],  # no delimiter
    [b""],  # no body
    [b"", b""],
    [b"", b"", GOOD],
    [b"", GOOD, GOOD],
    [b"tag"] * 1000,
    [b"x" * 5000, b"", GOOD],
    [b"", b"hello"],
    [b"", '{"op":"generate","prompt":"你好"}'.encode("gbk")],
    [b"", b'{"op":"generate","prompt":"\\ud800"}'],
    [b"", b'{"op":"generate","prompt":"a\\u0000b"}'],
    [b"", b'{"op":"ping","op":"ping"}'],
    [b"", b"[" * 100_000],
    [b"", b'{"a":' * 20_000],
    [b"", b'{"op":"generate","prompt":"a","temperature":NaN}'],
    [b"", b'{"op":"generate","prompt":"a","seed":' + b"9" * 4000 + b"}"],
    [b"", b'{"op":"generate","prompt":"a","deadline_ms":1e400}'],
    [b"", b'{"op":"generate","id":"\\u0000","prompt":"a"}'],
    [b"", b'{"op":"generate","id":"' + b"x" * 300 + b'","prompt":"a"}'],
    [b"", '{"op":"ping"}'.encode("utf-16")],
    [b"", bytes(range(256)) * 40],
    [b"", b'{"op":"generate","id":"big","prompt":"' + b"x" * 300_000 + b'"}'],
    [b"", b'{"op":"result","id":"nobody"}'],
    [b"", b'{"op":"cancel","id":"nobody"}'],
    [b"", b'{"op":"reload"}'],
]
"""Messages that are refused, every kind of them."""


class Attacker:
    def __init__(self, endpoint: str, **options: str) -> None:
        self.endpoint = endpoint
        self.options = options
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def number(self, key: str, default: float) -> float:
        return float(self.options.get(key, default))

    def ready(self, **facts: object) -> None:
        sys.stdout.write(f"ready {json.dumps(facts)}\n")
        sys.stdout.flush()

    def again(self, act: Callable[[socket.socket], None], kind: bytes = b"DEALER") -> None:
        """`act` on a connection, and on another one whenever it was cut."""
        while True:
            try:
                with shake(self.endpoint, kind) as sock:
                    act(sock)
            except OSError:
                time.sleep(0.02)

    # ---- before the handshake is over ------------------------------------------------------------------------

    def halfopen(self) -> None:
        """`count` connections that say nothing; one that is closed is opened again."""
        count, socks = int(self.number("count", 5000)), {}
        poll, told = select.epoll(), False
        while True:
            while len(socks) < count:
                try:
                    sock = dial(self.endpoint)
                except OSError:
                    time.sleep(0.01)
                    break
                poll.register(sock, select.EPOLLHUP | select.EPOLLRDHUP)
                socks[sock.fileno()] = sock
            if not told:
                told = True
                self.ready(open=len(socks))
            for fd, _ in poll.poll(0.05):
                socks.pop(fd).close()

    def loris(self) -> None:
        """`count` connections that greet a byte every second."""
        socks: list[socket.socket] = []
        self.ready()
        while True:
            while len(socks) < self.number("count", 300):
                socks.append(dial(self.endpoint))
            for sock in list(socks):
                try:
                    sock.send(GREETING[:1])
                except OSError:
                    socks.remove(sock)
                    sock.close()
            time.sleep(1)

    def properties(self) -> None:
        """READY with as many properties as fit, on `count` connections."""
        size = int(self.number("bytes", 1_000_000))
        extra = b"".join(prop(b"%x" % n, b"") for n in range(size // 9))
        socks = []
        for _ in range(int(self.number("count", 50))):
            with contextlib.suppress(OSError):
                socks.append(shake(self.endpoint, extra=extra))
        self.ready(open=len(socks))
        time.sleep(3600)

    def reconnect(self) -> None:
        """`rate` clients that each come back every second: a handshake, a question, and gone a second later."""
        rate, asked, begun = int(self.number("rate", 500)), 0, time.monotonic()
        staying: deque[socket.socket] = deque()
        self.ready()
        while True:
            for _ in range(max(0, int((time.monotonic() - begun) * rate) - asked)):
                asked += 1
                with contextlib.suppress(OSError):
                    sock = shake(self.endpoint, wait_s=2.0)
                    sock.sendall(message(b"", GOOD))
                    staying.append(sock)
                while len(staying) > rate:
                    staying.popleft().close()
            time.sleep(0.002)

    # ---- frames ----------------------------------------------------------------------------------------------

    def more(self) -> None:
        """Frames that announce another one, without end."""
        block = frame(b"x" * int(self.number("bytes", 1000)), MORE)
        block *= max(1, 200_000 // len(block))
        self.ready()

        def act(sock: socket.socket) -> None:
            while True:
                sock.sendall(block)

        self.again(act)

    def wide(self) -> None:
        """A message of `count` empty frames, one after the other."""
        block = frame(b"", MORE) * int(self.number("count", 1_000_000)) + frame(b"")
        self.ready()

        def act(sock: socket.socket) -> None:
            while True:
                sock.sendall(block)

        self.again(act)

    def halves(self) -> None:
        """`count` connections, each with a frame of the largest size that lacks its last byte."""
        data = frame(b"x" * int(self.number("bytes", 1_048_576)))[:-1]
        socks = []
        for _ in range(int(self.number("count", 200))):
            with contextlib.suppress(OSError):
                sock = shake(self.endpoint)
                sock.sendall(data)
                socks.append(sock)
        self.ready(open=len(socks))
        time.sleep(3600)

    def announce(self) -> None:
        """Frames that announce 2^63 bytes."""
        self.ready()

        def act(sock: socket.socket) -> None:
            sock.sendall(bytes([LONG]) + struct.pack(">Q", 2**63 - 1) + b"x" * 1000)
            sock.recv(1)

        self.again(act)

    def malformed(self) -> None:
        """`rate` bad messages a second, of every kind; answers are read and thrown away."""
        rate = self.number("rate", 1000)
        blocks = [message(*frames) for frames in MALFORMED]
        self.ready(kinds=len(blocks))

        def act(sock: socket.socket) -> None:
            begun, sent = time.monotonic(), 0
            while True:
                for _ in range(max(0, int((time.monotonic() - begun) * rate) - sent)):
                    sent += 1
                    sock.sendall(blocks[sent % len(blocks)])
                    drain(sock)
                drain(sock)
                time.sleep(0.002)

        self.again(act)

    def flood(self) -> None:
        """Pings as fast as they are taken; answers are read."""
        self._pour(message(b"", GOOD) * 100)

    def unread(self) -> None:
        """Asks for large replies on `count` connections and reads none."""
        ask = message(b"", json.dumps({"op": "generate", "prompt": "n=1 word=" + "y" * 100_000, "id": "u"}).encode())
        body = message(b"", b'{"op":"result","id":"u"}')
        count = int(self.number("count", 1))
        self.ready()

        def act(sock: socket.socket) -> None:
            sock.sendall(ask)
            others = [shake(self.endpoint) for _ in range(count - 1)]
            for _ in range(int(self.number("times", 3000))):
                for one in (sock, *others):
                    one.sendall(body)
                time.sleep(0.001)

        self.again(act)

    def commands(self) -> None:
        """PING commands with the longest context, as fast as they are taken."""
        self._pour(command(b"PING", struct.pack(">H", 0) + b"c" * 16) * 4000)

    def _pour(self, block: bytes) -> None:
        self.ready()

        def act(sock: socket.socket) -> None:
            while True:
                sock.sendall(block)
                drain(sock)

        self.again(act)

    def forge(self) -> None:
        """Claims in READY to be somebody else, in every name that the daemon reads, and sends `send` (hex)."""
        claims = {b"User-Id": b"identity", b"X-Key": b"key", b"X-Conn": b"1", b"Peer-Address": b"localhost:4:4:4"}
        claims |= {b"__fd": b"0"}
        extra = b"".join(prop(k, self.options.get(v.decode(), v.decode()).encode()) for k, v in claims.items())
        with shake(self.endpoint, self.options.get("kind", "DEALER").encode(), extra) as sock:
            sock.sendall(bytes.fromhex(self.options["send"]))
            self.ready(pid=os.getpid())
            time.sleep(3600)

    def hangup(self) -> None:
        """Messages and PING commands without end, and gone before they are read; each time over another connection."""
        kind = self.options.get("socket", "DEALER").encode()
        one = message(b"", GOOD) if kind == b"DEALER" else frame(b"\1sys/x")
        block = (one * 100 + command(b"PING", struct.pack(">H", 0))) * 20
        self.ready()
        while True:
            with contextlib.suppress(OSError), shake(self.endpoint, kind) as sock:
                sock.sendall(block)
                if sock.family == socket.AF_INET:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    # ---- stream ----------------------------------------------------------------------------------------------

    def subscriptions(self) -> None:
        """`count` subscriptions as frames, or as commands of ZMTP 3.1 with commands=1."""
        count = int(self.number("count", 100_000))
        self.ready()

        def act(sock: socket.socket) -> None:
            for at in range(0, count, 500):
                topics = [b"sys/%d" % n + b"x" * int(self.number("bytes", 40)) for n in range(at, at + 500)]
                if "commands" in self.options:
                    sock.sendall(b"".join(command(b"SUBSCRIBE", topic) for topic in topics))
                else:
                    sock.sendall(b"".join(frame(b"\1" + topic) for topic in topics))
                drain(sock)

        self.again(act, b"SUB")

    def taint(self) -> None:
        """A foreign frame from a new process each time."""
        self.ready()
        while True:
            pid = os.fork()
            if not pid:
                with contextlib.suppress(OSError):
                    sock = shake(self.endpoint, b"SUB")
                    sock.sendall(frame(b"\2foreign"))
                    sock.settimeout(2)
                    while sock.recv(1000):
                        pass
                os._exit(0)
            os.waitpid(pid, 0)
            time.sleep(self.number("pause", 0.01))

    def noise(self) -> None:
        """Random bytes, before and after a handshake."""
        rng = random.Random(1)
        self.ready()
        while True:
            with contextlib.suppress(OSError):
                sock = dial(self.endpoint) if rng.random() < 0.5 else shake(self.endpoint)
                sock.sendall(rng.randbytes(rng.choice([1, 63, 64, 65, 1000, 100_000])))
                sock.close()
            time.sleep(0.001)


def drain(sock: socket.socket) -> None:
    """Throws away what has come."""
    while select.select([sock], [], [], 0)[0]:
        if not sock.recv(1 << 20):
            raise ConnectionResetError


def main() -> None:
    kind, endpoint, *words = sys.argv[1:]
    options = dict(word.split("=", 1) for word in words)
    if "source" in options:
        SOURCE["ip"] = options.pop("source")
    attacker = Attacker(endpoint, **options)
    if "uid" in options:
        os.setgroups([])
        os.setgid(0)
        os.setuid(int(options["uid"]))
    getattr(attacker, kind)()


if __name__ == "__main__":
    main()
