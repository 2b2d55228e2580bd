"""A daemon under attack, and a good client beside it whose every request is timed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import zmq
from harness import TESTS, Client, Daemon, open_to_others

ATTACKER_UID = 54321
ATTACKER_ADDRESS = "127.0.0.9"
PATIENCE_S = 2.0
"""A good client that hears nothing for so long connects anew and asks again (what was lost with a cut connection)."""

STREAM_KINDS = ("subscriptions", "taint")
"""Attacks on `stream`; the others are on `request`."""


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Castle(Daemon):
    """Serves other users on ipc, and tcp too; `wall`: which of the two is attacked."""

    def __init__(self, directory: Path, wall: str, **keys: Any) -> None:
        request, stream = free_ports(2)
        self.tcp = {"request": f"tcp://127.0.0.1:{request}", "stream": f"tcp://127.0.0.1:{stream}"}
        self.wall = wall
        run = directory / "run"
        listen = {name: [f"ipc://{run}/{name}.sock", self.tcp[name]] for name in ("request", "stream")}
        keys = {"limits": {"drain_s": 0.2}, "log_level": "warning", "health_interval_s": 1, **keys}
        super().__init__(directory, listen=listen, security={"allow_insecure_tcp": True}, **keys)

    def open(self, **how: Any) -> Castle:
        self.start(**how)
        open_to_others(self.directory)
        (self.directory / "run").chmod(0o755)
        for name in ("request", "stream"):
            (self.directory / f"run/{name}.sock").chmod(0o666)
        return self

    def endpoint(self, name: str) -> str:
        return self.tcp[name] if self.wall == "tcp" else f"ipc://{self.directory}/run/{name}.sock"

    def counters(self) -> dict[str, int]:
        with self.operator() as operator:
            return dict(operator.call(op="status")["counters"])

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def castle(directory: Path, wall: str = "ipc", **keys: Any) -> Iterator[Castle]:
    box = Castle(directory, wall, **keys)
    try:
        yield box.open()
        box.context.destroy(linger=0)
        assert box.stop() == 0, box.log.read_text()
    except BaseException:
        sys.stderr.write(box.log.read_text()[-4000:])
        raise
    finally:
        box.close()


@contextlib.contextmanager
def attack(box: Castle, kind: str, **options: object) -> Iterator[dict[str, Any]]:
    """tests/attacker.py as another user, or from another address. What it said when it began."""
    if box.wall == "tcp":
        options.setdefault("source", ATTACKER_ADDRESS)
    elif os.geteuid() == 0:
        options.setdefault("uid", ATTACKER_UID)
    endpoint = box.endpoint("stream" if kind in STREAM_KINDS else "request")
    words = [f"{key}={value}" for key, value in options.items()]
    command = [sys.executable, str(TESTS / "attacker.py"), kind, endpoint, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("ready "), line
        yield json.loads(line.removeprefix("ready "))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Good(threading.Thread):
    """Pings, short requests, streams by topic and on its connection, one after the other until `stop`.

    `times`: milliseconds of each ping and each short request since `mark`; `faults`: broken promises.
    """

    def __init__(self, box: Castle, pause_s: float = 0.01) -> None:
        super().__init__(daemon=True)
        self.box = box
        self.times: list[float] = []
        self.faults: list[str] = []
        self.streams = self.again = 0
        self._pause_s = pause_s
        self._leave = threading.Event()
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self.join()
        if self._client is not None:
            self._client.close()

    def mark(self) -> list[float]:
        """The times since the last mark."""
        taken, self.times = self.times, []
        return taken

    def run(self) -> None:
        count = 0
        while not self._leave.is_set():
            count += 1
            begun = time.perf_counter()
            self._ask(op="ping")
            self.times.append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
            self._ask(op="generate", prompt="n=3", id=f"short{count}")
            self.times.append((time.perf_counter() - begun) * 1000)
            if count % 20 == 0:
                self._stream(f"long{count}")
            self._leave.wait(self._pause_s)

    def _ask(self, **body: Any) -> dict[str, Any]:
        for _ in range(30):
            reply = self._once(body)
            if reply is not None:
                if not reply["ok"]:
                    self.faults.append(f"{body}: {reply}")
                return reply
            self.again += 1
        self.faults.append(f"never answered: {body}")
        return {}

    def _once(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if self._client is None:
            self._client = Client(self.box.context, self.box.endpoint("request"))
        tag = self._client.ask(**body)
        end = time.monotonic() + PATIENCE_S
        while self._client.socket.poll(max(0.0, end - time.monotonic()) * 1000):
            got, reply = self._client.receive()
            if got == tag:
                return reply
        self._client.close()
        self._client = None
        return None

    def _stream(self, name: str) -> None:
        """By topic: the subscriber makes itself whole when it was cut off."""
        ticket = self._ask(op="generate", prompt="n=20 delay=0.005", id=name, stream=True)
        if "topic" not in ticket:
            return
        with contextlib.closing(self.box.context.socket(zmq.SUB)) as sub:
            sub.linger = 0
            sub.connect(self.box.endpoint("stream"))
            sub.subscribe(ticket["topic"])
            text, seq, end = "", -1, time.monotonic() + 20
            while sub.poll(max(0.0, end - time.monotonic()) * 1000):
                event = json.loads(sub.recv_multipart()[1])
                if event["type"] == "snapshot" and event["seq"] > seq:
                    text, seq = event["text"], event["seq"]
                elif event["type"] != "snapshot" and event["seq"] > seq:
                    text += event.get("text", "") if event["type"] == "token" else ""
                    seq = event["seq"]
                if event["type"] == "end":
                    self.streams += 1
                    if event.get("text") != text:
                        self.faults.append(f"{name}: stream {text!r}, end {event}")
                    return
        self.faults.append(f"{name}: no end")


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else float("nan")
