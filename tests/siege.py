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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import zmq
from harness import TESTS, Client, Daemon, open_to_others, until

ATTACKER_UID = 54321
ATTACKER_ADDRESS = "127.0.0.9"
PATIENCE_S = 2.0
"""A good client that hears nothing for so long connects anew and asks again (what was lost with a cut connection)."""

STREAM_KINDS = ("subscriptions", "taint")
"""Attacks on `stream`; the others are on `request`."""


ATTACKS: dict[str, dict[str, Any]] = {
    "malformed": {"rate": 1000},
    "more": {},
    "more 1 byte": {"bytes": 1},
    "more 1 MB": {"bytes": 1_000_000},
    "wide": {"count": 100_000},
    "halves": {"count": 120},
    "properties": {},
    "announce": {},
    "subscriptions": {"count": 100_000},
    "subscriptions as commands": {"count": 100_000, "commands": 1},
    "taint": {},
    "halfopen": {"count": 5000},
    "loris": {"count": 500},
    "reconnect": {"rate": 500},
    "unread": {"count": 20},
    "commands": {},
    "flood": {},
    "noise": {},
    "hangup": {},
    "hangup of subscribers": {"socket": "SUB"},
}
"""Names, the first word of which is the kind, and options."""


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
    on_stream = kind in STREAM_KINDS or options.get("socket") == "SUB"
    endpoint = box.endpoint("stream" if on_stream else "request")
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


@dataclass
class Seen:
    """p99 in ms undisturbed and besieged, each the better of its two turns (a machine that others use too adds to all
    of them); memory in kB; `cpu`: of the daemon, in percent of a core, in the calm and the attack."""

    calm: float
    besieged: float
    turns: list[float]
    cpu: tuple[float, float]
    memory_before: int
    memory_most: int
    memory_after: int
    descriptors_before: int
    descriptors_most: int
    descriptors_after: int
    faults: list[str]
    again: int
    streams: int
    counters: dict[str, int]

    def __str__(self) -> str:
        turns = " ".join(f"{value:.1f}" for value in self.turns)
        ours = {key: self.counters[key] for key in sorted(self.counters) if key.startswith(OURS)}
        return (
            f"p99 {self.calm:.1f} ms, besieged {self.besieged:.1f} ({turns}); "
            f"CPU {self.cpu[0]:.0f} %, {self.cpu[1]:.0f} %; "
            f"memory {self.memory_before >> 10}, {self.memory_most >> 10}, {self.memory_after >> 10} MB; "
            f"descriptors {self.descriptors_before}, {self.descriptors_most}, {self.descriptors_after}; "
            f"{self.streams} streams whole, {self.again} asked again; {ours}"
        )


OURS = ("connections", "handshakes", "memory", "peers", "tainted", "malformed", "rejected", "replies", "subscriptions")


class Siege:
    """A B B A: calm, attack, attack, calm, `seconds` each; `longer` times that for the attacks."""

    def __init__(self, box: Castle, kind: str, options: dict[str, Any], seconds: float, longer: float = 1) -> None:
        self.box, self.kind, self.options = box, kind, options
        self.seconds, self.besieged = seconds, longer * seconds
        self.most = [0, 0]

    def run(self) -> Seen:
        box = self.box
        with Good(box) as good:
            until(lambda: good.streams, "a first stream")
            before = box.rss_kb(), box.descriptors()
            a, cpu_a = self._turn(good, self.seconds)
            with attack(box, self.kind, **self.options):
                good.mark()
                b, cpu_b = self._turn(good, self.besieged)
                c, cpu_c = self._turn(good, self.besieged)
            with contextlib.suppress(AssertionError):  # what is left is judged by the caller
                until(lambda: box.rss_kb() <= before[0] * 1.1 + 1000 and box.descriptors() <= before[1] + 4, "calm", 15)
            good.mark()
            d, cpu_d = self._turn(good, self.seconds)
            return Seen(
                min(a, d),
                min(b, c),
                [a, b, c, d],
                (50 * (cpu_a + cpu_d) / self.seconds, 50 * (cpu_b + cpu_c) / self.besieged),
                before[0],
                self.most[0],
                box.rss_kb(),
                before[1],
                self.most[1],
                box.descriptors(),
                good.faults,
                good.again,
                good.streams,
                box.counters(),
            )

    def _turn(self, good: Good, seconds: float) -> tuple[float, float]:
        cpu, end = self.box.cpu_s(), time.monotonic() + seconds
        while time.monotonic() < end:
            self.most = [max(self.most[0], self.box.rss_kb()), max(self.most[1], self.box.descriptors())]
            time.sleep(0.02)
        return p99(good.mark()), self.box.cpu_s() - cpu
