"""docs/clients.md, "byte for byte": the exchange written there, spoken over a plain socket without libzmq."""

from __future__ import annotations

import json
import re
import socket
import struct
from pathlib import Path

from harness import TESTS, WAIT_S, Daemon

PAGE = TESTS.parent / "docs/clients.md"


def spoken(title: str) -> bytes:
    """The hexadecimal block under the line `title` of the page."""
    found = re.search(rf"^{re.escape(title)}\n\n((?:    .*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert found, title
    columns = [line.strip().split("  ")[0] for line in found[1].splitlines()]
    return bytes.fromhex("".join(columns))


class Raw:
    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(path))

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the daemon hung up"
            data += more
        return data

    def frame(self) -> tuple[int, bytes]:
        """Flags and content: bit 0 more follows, bit 1 the size has 8 bytes, bit 2 a command."""
        flags = self.exactly(1)[0]
        size = struct.unpack(">Q", self.exactly(8))[0] if flags & 2 else self.exactly(1)[0]
        return flags, self.exactly(size)

    def message(self) -> list[bytes]:
        frames = []
        while True:
            flags, content = self.frame()
            assert not flags & 4, content
            frames.append(content)
            if not flags & 1:
                return frames


def test_the_page_is_right_byte_for_byte(daemon: Daemon) -> None:
    raw = Raw(daemon.directory / "run/request.sock")
    raw.socket.sendall(spoken("The client's greeting, 64 bytes:"))
    greeting = raw.exactly(64)
    assert greeting[:1] + greeting[9:10] == b"\xff\x7f"
    assert greeting[12:32].rstrip(b"\0") == b"NULL"
    raw.socket.sendall(spoken("The client's READY:"))
    flags, ready = raw.frame()
    assert flags & 4
    assert b"ROUTER" in ready
    asked = spoken("The request:")
    raw.socket.sendall(asked)
    messages = [raw.message() for _ in range(5)]
    assert all(frames[:1] == [b""] and len(frames) == 2 for frames in messages)
    ticket, *events = [json.loads(frames[1]) for frames in messages]
    assert ticket["ok"]
    assert ticket["id"] == "probe-1"
    assert [event["type"] for event in events] == ["prefill", "token", "token", "end"]
    assert events[-1]["text"] == "t0 t1 "
    raw.socket.close()
