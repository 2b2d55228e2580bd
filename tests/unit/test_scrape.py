"""The port that Prometheus asks, against those who ask badly; and the hand-over from the loop."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from edged.broker.histogram import Histogram
from edged.metricsside import Handover
from edged.observe import scrape
from edged.observe.metrics import Buckets, Snapshot, buckets

PAGE = b"edged_ready 1.0\n"
HANDED = Snapshot({}, Buckets((), (0,), 0.0), Buckets((), (0,), 0.0))


class Port:
    """`made`: how often a page was asked for."""

    def __init__(self, *, size: int = 1, each_s: float = 0.4) -> None:
        self.made = 0
        self.size = size
        listener = scrape.listen("127.0.0.1:0")
        self.port = listener.getsockname()[1]
        self.scrape = scrape.Scrape(listener, self.page, each_s)

    def page(self) -> tuple[bytes, str] | None:
        self.made += 1
        return PAGE * self.size, "text/plain"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def ask(self, question: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> bytes:
        with self.connect() as asker:
            asker.sendall(question)
            return read(asker)


def read(asker: socket.socket) -> bytes:
    out = b""
    with contextlib.suppress(ConnectionResetError):
        while part := asker.recv(65536):
            out += part
    return out


@pytest.fixture
def port():
    one = Port()
    yield one
    one.scrape.stop()


def test_a_page(port):
    head, _, body = port.ask().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK")
    assert b"Content-Length: %d" % len(PAGE) in head
    assert body == PAGE


def test_it_is_made_once_a_second_however_many_ask(port):
    for _ in range(30):
        assert port.ask().endswith(PAGE)
    assert port.made <= 30 * scrape.FRESH_S  # a slow machine may need more than one second for thirty
    begun = time.monotonic()
    made = port.made
    port.ask()
    port.ask()
    assert port.made - made <= 1 + (time.monotonic() - begun) / scrape.FRESH_S


def test_nothing_to_tell():
    listener = scrape.listen("[::1]:0") if socket.has_ipv6 else scrape.listen("127.0.0.1:0")
    family, address = listener.family, listener.getsockname()
    served = scrape.Scrape(listener, lambda: None)
    with socket.socket(family) as asker:
        asker.settimeout(30)
        asker.connect(address)
        asker.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert read(asker).startswith(b"HTTP/1.0 503")
    served.stop()


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00" + b"\xff" * 8000, b"GET\r\n\r\n", b"\0\n\n", b"get /metrics\n\n", b"A" * 4096]
)
def test_what_is_no_question(port, junk):
    assert port.ask(junk)[:11] in (b"HTTP/1.0 40", b"")
    assert port.ask().endswith(PAGE)
    assert port.made == 1


def test_those_who_say_nothing_are_closed_and_others_served(port):
    """They take every place there is; who comes then waits until their time is over, and no longer."""
    slow = [port.connect() for _ in range(scrape.CONNECTIONS + 2)]
    slow[0].sendall(b"GET /metr")
    assert port.ask().endswith(PAGE)
    assert [read(asker) for asker in slow] == [b""] * len(slow)
    for asker in slow:
        asker.close()


def test_one_who_trickles_is_closed_in_time(port):
    """Each byte is a sign of life, and none of them buys time."""
    with port.connect() as asker:
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - begun < 20:
                asker.sendall(b"G")
                time.sleep(0.02)
        assert time.monotonic() - begun < 20


def test_one_who_takes_nothing_holds_nobody_up():
    port = Port(size=1_000_000, each_s=0.4)
    with socket.socket() as asker:
        asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asker.connect(("127.0.0.1", port.port))
        asker.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert port.ask(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 404")
        time.sleep(0.6)
        asker.settimeout(30)
        assert len(read(asker)) < 10_000_000
    port.scrape.stop()


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        scrape.listen(f"127.0.0.1:{taken.getsockname()[1]}")


def test_the_port_is_free_after_a_stop(port):
    port.ask()
    port.scrape.stop()
    until = time.monotonic() + 30
    while True:
        try:
            scrape.listen(f"127.0.0.1:{port.port}").close()
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.01)
        else:
            return


# ---- the hand-over ------------------------------------------------------------------------------------------------


def test_a_loop_that_turns_hands_over():
    asked = threading.Event()
    handover = Handover(asked.set)
    got: list[Snapshot | None] = []
    thread = threading.Thread(target=lambda: got.append(handover.take()))
    thread.start()
    assert asked.wait(30)
    handover.give(lambda: HANDED)
    thread.join(30)
    assert got == [HANDED]


def test_nothing_is_made_when_nobody_asked():
    Handover(lambda: None).give(lambda: 1 / 0)


def test_a_loop_that_hangs_is_no_snapshot():
    assert Handover(lambda: None, within_s=0.05).take() is None


def test_a_loop_that_ended_is_not_waited_for():
    handover = Handover(lambda: None, within_s=60)
    handover.close()
    assert handover.take() is None


# ---- counting -----------------------------------------------------------------------------------------------------


def test_a_histogram():
    counts = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        counts.add(value)
    counts.add(0.2, 3)
    assert buckets(counts) == Buckets((0.1, 1.0), (2, 6, 7), pytest.approx(0.05 + 0.1 + 0.5 + 7 + 0.6))
