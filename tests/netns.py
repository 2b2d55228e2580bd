"""Two network namespaces with a cable between them: a box in one, devices in the other. For root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import zmq

CLONE_NEWNET = 0x4000_0000
BOX, DEVICE = "10.231.77.1", "10.231.77.2"


def why_not() -> str | None:
    """Why there can be none here."""
    if os.geteuid() != 0:
        return "root only: network namespaces are made"
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2)"
    name = f"edged-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Cable:
    """`box` and `device` are the namespaces' names."""

    def __init__(self) -> None:
        mark = f"{os.getpid():x}"
        self.box, self.device = f"edged-box-{mark}", f"edged-dev-{mark}"
        self.ends = f"eb{mark}", f"ed{mark}"

    def lay(self) -> None:
        for name in (self.box, self.device):
            ip("netns", "add", name)
        ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for end, name, address in zip(self.ends, (self.box, self.device), (BOX, DEVICE), strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def pull(self) -> None:
        """Nobody is told: no packet gets through any more."""
        ip("-n", self.device, "link", "set", self.ends[1], "down")

    def plug(self) -> None:
        ip("-n", self.device, "link", "set", self.ends[1], "up")

    def remove(self) -> None:
        for name in (self.box, self.device):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def context(self) -> zmq.Context[Any]:
        """For sockets of the devices: its I/O thread lives in their namespace, and so does what it connects."""
        made: list[zmq.Context[Any]] = []

        def make() -> None:
            with open(f"/run/netns/{self.device}", "rb") as file:
                assert ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) == 0
            context = zmq.Context()
            context.socket(zmq.PAIR).close()  # now the threads are there
            made.append(context)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    one = Cable()
    try:
        one.lay()
        yield one
    finally:
        one.remove()
