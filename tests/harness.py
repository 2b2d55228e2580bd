"""Real daemons and real clients for the tests: a process, a directory, sockets with deadlines."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import yaml
import zmq

from edged.system.ramdir import ram_dir

Prepare = Callable[[zmq.Socket[Any]], None]

TESTS = Path(__file__).parent
WAIT_S = 30.0
"""How long a test waits for something that should come at once: only a broken daemon makes it wait."""


def tiny_gguf(path: Path) -> Path:
    """The smallest file that passes the header check: one tensor, an architecture. For the scripted worker."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entry = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    tensor = text("t") + struct.pack("<IQIQ", 1, 8, 0, 0)  # eight floats
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + entry + tensor
    path.write_bytes(head + b"\0" * (-len(head) % 32) + b"\0" * 32)
    return path


def until(check: Callable[[], Any], what: str, seconds: float = WAIT_S) -> Any:
    """Looks again until `check` is true (for what has no event to wait for: /proc, files)."""
    end = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


def open_to_others(directory: Path) -> Path:
    """pytest's directories are for their owner only; another uid has to pass through them, up to /tmp (sticky)."""
    for one in (directory, *directory.parents):
        mode = one.stat().st_mode
        if mode & stat.S_ISVTX:
            break
        if not mode & 0o001:
            one.chmod(0o755)
    return directory


class Daemon:
    """`edged` as a process of its own in a directory of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        script: str | None = "",
        model: Path | None = None,
        worker: str = "scripted_worker",
        **keys: Any,
    ) -> None:
        self.directory = directory
        self.script = script
        self.worker = worker
        directory.mkdir(parents=True, exist_ok=True)
        path = model or tiny_gguf(directory / "tiny.gguf")
        settings = {"runtime_dir": str(directory / "run"), "state_dir": str(directory / "state")}
        self.settings: dict[str, Any] = {**settings, "model": {"path": str(path)}, **keys}
        self.config = directory / "config.yaml"
        self.log = directory / "log"
        self.write_config()
        self.process: subprocess.Popen[bytes] | None = None
        self.context = zmq.Context()
        self._sockets: list[zmq.Socket[Any]] = []

    def socket(self, kind: int, endpoint: str | None = None, **options: int) -> zmq.Socket[Any]:
        """A raw socket, closed with the daemon; connected to `request` unless told otherwise."""
        sock = self.context.socket(kind)
        sock.linger = 0
        for name, value in options.items():
            setattr(sock, name, value)
        sock.connect(endpoint or self.request_endpoint)
        self._sockets.append(sock)
        return sock

    def write_config(self) -> None:
        self.config.write_text(yaml.safe_dump(self.settings))

    def start(self, *, ready: bool = True, before: tuple[str, ...] = ()) -> Daemon:
        """`before`: words in front of the command, such as a shell that sets limits."""
        command = [*before, sys.executable, "-m", "edged", "--config", str(self.config)]
        environment = dict(os.environ)
        if self.script is not None:
            command += ["--worker", self.worker]
            environment |= {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "EDGED_SCRIPT": self.script}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)
        until(lambda: self.control_path.exists() or self.process.poll() is not None, "the sockets")
        assert self.process.poll() is None, self.log.read_text()
        if ready:
            self.wait_ready()
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def control_path(self) -> Path:
        return self.directory / "run/control.sock"

    @property
    def request_endpoint(self) -> str:
        return f"ipc://{self.directory}/run/request.sock"

    @property
    def stream_endpoint(self) -> str:
        return f"ipc://{self.directory}/run/stream.sock"

    @property
    def control_endpoint(self) -> str:
        return f"ipc://{self.control_path}"

    def wait_ready(self, seconds: float = 120.0) -> dict[str, Any]:
        with self.client() as client:
            return until(lambda: (s := client.call(op="status"))["ready"] and s, "ready", seconds)

    def wait_status(self, check: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        with self.client() as client:
            return until(lambda: (s := client.call(op="status")) and check(s) and s, what)

    def client(self) -> Client:
        return Client(self.context, self.request_endpoint)

    def operator(self) -> Client:
        return Client(self.context, self.control_endpoint)

    def subscriber(self, topic: str | bytes = b"") -> Subscriber:
        return Subscriber(self.context, self.stream_endpoint, topic)

    def worker_pid(self) -> int | None:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def stop(self, sig: int = signal.SIGTERM, seconds: float = WAIT_S) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(seconds)

    def close(self) -> None:
        self.context.destroy(linger=0)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        shutil.rmtree(ram_dir(str(self.directory / "run")), ignore_errors=True)  # of one that was killed

    def rss_kb(self) -> int:
        return proc_status_kb(self.pid, "VmRSS")


def proc_status_kb(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    raise KeyError(key)


@contextlib.contextmanager
def running(directory: Path, **keys: Any) -> Iterator[Daemon]:
    daemon = Daemon(directory, **keys)
    try:
        yield daemon.start()
        daemon.context.destroy(linger=0)
        assert daemon.stop() == 0, daemon.log.read_text()
    except BaseException:
        if daemon.log.exists():
            sys.stderr.write(daemon.log.read_text()[-4000:])
        raise
    finally:
        daemon.close()


class Client:
    """A DEALER with a frame of its own to correlate by; every receive has a deadline."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, prepare: Prepare | None = None) -> None:
        """`prepare`: what is to be done with the socket before it connects, such as giving it keys."""
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvhwm = 0
        if prepare is not None:
            prepare(self.socket)
        self.socket.connect(endpoint)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close(linger=0)

    def ask(self, **body: Any) -> bytes:
        """Sends; returns the tag that answers carry."""
        self._count += 1
        tag = str(self._count).encode()
        self.socket.send_multipart([tag, b"", json.dumps(body).encode()])
        return tag

    def receive(self, seconds: float = WAIT_S) -> tuple[bytes, dict[str, Any]]:
        assert self.socket.poll(seconds * 1000), "no answer"
        tag, empty, body = self.socket.recv_multipart()
        assert empty == b""
        return tag, json.loads(body)

    def silent(self, seconds: float = 0.3) -> bool:
        return not self.socket.poll(seconds * 1000)

    def call(self, **body: Any) -> dict[str, Any]:
        tag = self.ask(**body)
        while True:
            got, reply = self.receive()
            if got == tag:
                return reply

    def stream(self, **body: Any) -> Iterator[dict[str, Any]]:
        """Ticket, then events up to `end`."""
        tag = self.ask(stream="reply", op="generate", **body)
        while True:
            got, event = self.receive()
            if got == tag:
                yield event
                if event.get("type") == "end" or not event.get("ok", True):
                    return


class Subscriber:
    """A SUB; `events` collects up to `end`, applying snapshots as protocol 4 says."""

    def __init__(
        self, context: zmq.Context[Any], endpoint: str, topic: str | bytes, prepare: Prepare | None = None
    ) -> None:
        self.socket = context.socket(zmq.SUB)
        self.socket.linger = 0
        self.socket.rcvhwm = 0
        if prepare is not None:
            prepare(self.socket)
        self.socket.connect(endpoint)
        if topic:
            self.subscribe(topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close(linger=0)

    def subscribe(self, topic: str | bytes) -> None:
        self.socket.subscribe(topic if isinstance(topic, bytes) else topic.encode())

    def receive(self, seconds: float = WAIT_S) -> dict[str, Any]:
        assert self.socket.poll(seconds * 1000), "no event"
        _, body = self.socket.recv_multipart()
        return json.loads(body)

    def silent(self, seconds: float = 0.3) -> bool:
        return not self.socket.poll(seconds * 1000)

    def whole(self, seconds: float = WAIT_S) -> tuple[str, dict[str, Any], int]:
        """Text assembled from snapshot and tokens, the `end` event, and how many gaps were seen."""
        text, at, gaps = "", -1, 0
        while True:
            event = self.receive(seconds)
            if "seq" not in event:  # sys/
                continue
            if event["type"] == "snapshot":
                if event["seq"] > at:
                    text, at = event["text"], event["seq"]
                continue
            gaps += event["seq"] != at + 1
            at = event["seq"]
            if event["type"] == "token":
                text += event["text"]
            if event["type"] == "end":
                return text, event, gaps
