"""What systemd does for a service, for tests: makes its sockets, starts it with them, hears what it says.

Not systemd: for what systemd itself does with that there is tests/system.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import TESTS, WAIT_S, Daemon

LAUNCH = """
import fcntl, os, sys
count, command = int(sys.argv[1]), sys.argv[2:]
given = [int(fd) for fd in os.environ.pop("TEST_FDS").split(",") if fd]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in given]
for at, fd in enumerate(high, 3):
    os.dup2(fd, at, inheritable=True)
if count:
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count))
os.execv(command[0], command)
"""


class Manager:
    """`names`: sockets made in the daemon's runtime directory. `watchdog_s`: as WatchdogSec."""

    def __init__(
        self,
        box: Daemon,
        names: tuple[str, ...] = ("request.sock", "stream.sock", "control.sock"),
        watchdog_s: float | None = None,
    ) -> None:
        self.box = box
        self.watchdog_s = watchdog_s
        run = box.directory / "run"
        run.mkdir(exist_ok=True)
        self.sockets = [listening(run / name) for name in names]
        self.notify_path = str(box.directory / "notify")
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(self.notify_path)
        self.said: list[dict[str, str]] = []

    def start(self, **environment: str) -> Daemon:
        box = self.box
        command = [sys.executable, "-m", "edged", "--config", str(box.config), "--worker", box.worker]
        settings = {
            **os.environ,
            "PYTHONPATH": f"{TESTS}:{TESTS.parent}",
            "EDGED_SCRIPT": box.script or "",
            "NOTIFY_SOCKET": self.notify_path,
            "RUNTIME_DIRECTORY": str(box.directory / "run"),
            "STATE_DIRECTORY": str(box.directory / "state"),
            "TEST_FDS": ",".join(str(sock.fileno()) for sock in self.sockets),
            **environment,
        }
        if self.watchdog_s is not None:
            settings["WATCHDOG_USEC"] = str(round(self.watchdog_s * 1e6))
        with box.log.open("ab") as log:
            box.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(len(self.sockets)), *command],
                stderr=log,
                env=settings,
                pass_fds=[sock.fileno() for sock in self.sockets],
            )
        return box

    def hear(self, seconds: float) -> dict[str, str] | None:
        """The next message; None: there is none within that time."""
        if not select.select([self._notify], [], [], seconds)[0]:
            return None
        message = dict(line.split("=", 1) for line in self._notify.recv(65536).decode().splitlines())
        self.said.append(message)
        return message

    def wait(self, check: Callable[[dict[str, str]], Any], what: str) -> dict[str, str]:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            message = self.hear(0.2)
            if message is not None and check(message):
                return message
            gone = message is None and self.box.process.poll() is not None
            assert not gone, f"the daemon is gone: {self.box.log.read_text()[-2000:]}"
        raise AssertionError(f"waited in vain: {what}; heard {self.said[-5:]}")

    def drain(self) -> list[dict[str, str]]:
        """What is there now."""
        out = []
        while (message := self.hear(0)) is not None:
            out.append(message)
        return out

    def clog(self) -> None:
        """Its queue is full: the next datagram would have to wait."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            for _ in range(100_000):
                try:
                    sock.sendto(b"WATCHDOG=1", self.notify_path)
                except BlockingIOError:
                    return
        raise AssertionError("it takes everything")

    def close(self) -> None:
        for sock in (*self.sockets, self._notify):
            sock.close()


def listening(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    sock.listen(128)
    return sock
