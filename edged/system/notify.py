"""systemd at the other end: sd_notify(3), over systemd-python.

* systemd-python is loaded only where systemd asks for it (`NOTIFY_SOCKET`, `LISTEN_FDS`): a compiler and libsystemd's
  headers are needed to build it, and a machine without systemd needs neither.
* Its `notify` waits when the other end does not read (PID 1 hangs: its queue has net.unix.max_dgram_qlen places), and
  holds the interpreter's lock meanwhile. So a datagram socket of ours, connected to the same address, is asked first
  whether there is room; what cannot be told is not told, and told by the next call that can.
* A dead notify socket is harmless: systemd that is not there misses nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Mapping
from typing import Any, Final

INSTALL: Final = "pip install 'edged[service]' (needs libsystemd-dev and a compiler, or a ready wheel)"

PINGS: Final = 3
"""Within `WatchdogSec`: one may be late, another lost."""


class MissingError(Exception):
    """systemd-python is wanted and not there; the message says what to install."""


def library() -> Any:
    """`systemd.daemon`. Raises MissingError."""
    try:
        from systemd import daemon  # noqa: PLC0415 - see the head
    except ImportError:
        raise MissingError(
            f"systemd started this and the Python package systemd-python is missing: {INSTALL}"
        ) from None
    return daemon


class Notifier:
    """Tells systemd. `every_s`: how often it wants `WATCHDOG=1`, None: never."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises MissingError."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._notify = library().notify if self._address else None
        self.every_s = ping_interval(environment, os.getpid()) if self._address else None

    @property
    def on(self) -> bool:
        return self._notify is not None

    def tell(self, **fields: str | int) -> bool:
        """`READY=1`, `STATUS="…"`; False: it could not be told now. Never waits, never raises."""
        if self._notify is None or not takes(self._address):
            return False
        text = "\n".join(f"{name}={str(value).replace(chr(10), ' ')}" for name, value in fields.items())
        with contextlib.suppress(OSError, ValueError):
            return bool(self._notify(text))
        return False


def takes(address: str) -> bool:
    """Whether a datagram can be sent there at once (unix(7): a connected socket polls writable when there is room)."""
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(name)
        except OSError:
            return False
        poll = select.poll()
        poll.register(probe, select.POLLOUT)
        return bool(poll.poll(0))


def ping_interval(environment: Mapping[str, str], pid: int) -> float | None:
    """From `WATCHDOG_USEC`, if it is meant for this process (sd_watchdog_enabled(3))."""
    try:
        if int(environment.get("WATCHDOG_PID", pid)) != pid:
            return None
        micros = int(environment.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return micros / 1e6 / PINGS if micros > 0 else None
