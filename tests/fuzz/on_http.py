"""Target: what is said to the port that Prometheus asks, over a real connection."""

from __future__ import annotations

import re
import socket
import struct
from functools import cache

from edged.observe.scrape import REQUEST, Scrape, listen

PAGE = b"page 1\n"
SECONDS = 20.0
_STATUS = re.compile(rb"HTTP/1\.0 (\d{3}) [A-Za-z ]+\r\n")


@cache
def _port() -> int:
    listener = listen("127.0.0.1:0")
    Scrape(listener, lambda: (PAGE, "text/plain"))
    return int(listener.getsockname()[1])


def scrape(data: bytes) -> str:
    """One answer, or none to what is no whole request; the page for nothing but its own address."""
    with socket.create_connection(("127.0.0.1", _port()), SECONDS) as asker:
        asker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves nothing in TIME_WAIT
        try:
            asker.sendall(data)
            asker.shutdown(socket.SHUT_WR)
            answer = b""
            while more := asker.recv(4096):
                answer += more
        except TimeoutError:
            raise AssertionError("no answer and no end") from None
        except OSError:  # it said more than is listened to
            assert len(data) > REQUEST or b"\n" in data
            return "reset"
    if not answer:
        return "none"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = _STATUS.match(answer)
    assert status, answer
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert (status[1] == b"200") == (body == PAGE)
    assert status[1] != b"200" or data.startswith(b"GET /metrics")
    return status[1].decode()
