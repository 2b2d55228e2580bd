"""Entries for systemd-journald with fields of their own, in its native protocol: one datagram an entry.

`EDGED_EVENT` is the event's name, `REQUEST_ID`, `IDENTITY`, `LEVEL` and `CAUSE` are what they say, every other field
has its name with `EDGED_` before it; `MESSAGE` is the line for people. So `journalctl -u edged REQUEST_ID=sensor7-42`.

systemd-python's `journal.sendv` is not used: its socket waits when journald does not read (a card that hangs), with the
interpreter's lock held, and all of the daemon would stand still with the log (docs/adr/0019). Here an entry that is
not taken at once is not sent.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Final

SOCKET: Final = "/run/systemd/journal/socket"

_NAMES: Final = {"id": "REQUEST_ID", "identity": "IDENTITY", "level": "LEVEL", "cause": "CAUSE"}

VALUE_MAX: Final = 1000
"""Characters, as in a line."""


class Journald:
    """The journal of this machine."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(self, priority: int, event: str, text: str, fields: Mapping[str, object]) -> bool:
        """False: it was not taken. Never waits, never raises."""
        head = {"MESSAGE": text, "PRIORITY": priority, "SYSLOG_IDENTIFIER": "edged", "EDGED_EVENT": event}
        named = {_NAMES.get(name, f"EDGED_{name.upper()}"): value for name, value in fields.items()}
        try:
            self._socket.sendto(entry({**named, **head}), self._path)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def entry(fields: Mapping[str, object]) -> bytes:
    """One line a field; a value of several lines has its length before it."""
    out = bytearray()
    for name, value in fields.items():
        data = str(value)[: VALUE_MAX if name != "MESSAGE" else None].encode("utf-8", "backslashreplace")
        if b"\n" in data:
            out += name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
        else:
            out += name.encode() + b"=" + data + b"\n"
    return bytes(out)
