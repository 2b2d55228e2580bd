"""A daemon of its own for a measurement, and what all measurements share.

Every script prints ratios from one run. Models: the embedded default, and EDGED_BENCH_MODEL when it is set. Run them on
a machine that does nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
import zmq

from edged.places import EMBEDDED_MODEL, models_dir

WAIT_S = 600.0


def models() -> list[Path]:
    found = [models_dir() / EMBEDDED_MODEL]
    if extra := os.environ.get("EDGED_BENCH_MODEL"):
        found.append(Path(extra))
    return [path for path in found if path.is_file()]


class Service:
    """`ask` speaks the protocol itself: what is measured is the daemon, not a client library."""

    def __init__(self, directory: Path, model: Path, **keys: Any) -> None:
        self.directory = directory
        settings = {"runtime_dir": str(directory / "run"), "state_dir": str(directory / "state")}
        limits = {"limits": {"drain_s": 5}, "log_level": "warning"}
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "config.yaml"
        self._config.write_text(yaml.safe_dump(settings | limits | {"model": {"path": str(model)}} | keys))
        self._context = zmq.Context()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "edged", "--config", str(self._config)])
        end = time.monotonic() + WAIT_S
        while not (self.directory / "run/control.sock").exists() or not self.ask(op="status")["ready"]:
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit("the daemon does not come up")
            time.sleep(0.05)

    def stop(self) -> float:
        """Seconds that it took."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return time.monotonic() - begun

    @property
    def worker(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def send(self, body: dict[str, Any], endpoint: str | None = None) -> zmq.Socket[bytes]:
        sock = self._context.socket(zmq.DEALER)
        sock.linger = 0
        sock.connect(endpoint or f"ipc://{self.directory}/run/control.sock")
        sock.send_multipart([b"", json.dumps(body).encode()])
        return sock

    @staticmethod
    def receive(sock: zmq.Socket[bytes]) -> dict[str, Any]:
        if not sock.poll(WAIT_S * 1000):
            raise SystemExit("no reply")
        reply: dict[str, Any] = json.loads(sock.recv_multipart()[-1])
        sock.close()
        return reply

    def ask(self, **body: Any) -> dict[str, Any]:
        return self.receive(self.send(body))

    def generate(self, messages: list[dict[str, str]], **more: Any) -> dict[str, Any]:
        reply = self.ask(**{"op": "generate", "messages": messages, "temperature": 0, "deadline_ms": 600_000, **more})
        if not reply["ok"]:
            raise SystemExit(f"refused: {reply['error']}")
        return reply


@contextlib.contextmanager
def service(model: Path, **keys: Any) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as directory:
        running = Service(Path(directory), model, **keys)
        try:
            yield running
        finally:
            running.stop()


def memory_kb(pid: int) -> int:
    """RssAnon + VmSwap: what a process takes that the kernel cannot drop."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "VmSwap:")))


def spread(values: Sequence[float]) -> str:
    """Median, and the range of the middle half."""
    if len(values) < 3:
        return f"{statistics.median(values):.3f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} (middle half {low:.3f} to {high:.3f}, n={len(values)})"


def say(user: str) -> dict[str, str]:
    return {"role": "user", "content": user}


def verdict(what: str, value: float, most: float) -> None:
    print(f"{'ok  ' if value <= most else 'MISS'} {what}: {value:.3f} (at most {most})", flush=True)
