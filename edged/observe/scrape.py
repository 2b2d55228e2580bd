"""The port that Prometheus asks: HTTP/1.0, one page, on a thread of its own.

Whoever asks, and however slowly, costs the service nothing: at most CONNECTIONS at a time, each has EACH_S in all to
ask and to take its answer, asks with at most REQUEST bytes, and what is told is rendered at most once in FRESH_S.
"""

from __future__ import annotations

import contextlib
import ipaddress
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

CONNECTIONS: Final = 8
EACH_S: Final = 5.0
REQUEST: Final = 4096
FRESH_S: Final = 1.0

PATH: Final = b"/metrics"
END: Final = (b"\r\n\r\n", b"\n\n")

Page = Callable[[], tuple[bytes, str] | None]
"""Body and content type; None: there is nothing to tell now."""


def listen(address: str) -> socket.socket:
    """`127.0.0.1:9464`, `[::1]:9464`. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    listener = socket.create_server((host, int(port)), family=family, backlog=CONNECTIONS)
    listener.setblocking(False)
    return listener


class _Asker:
    """A connection: what it said so far, then what it is still to be told."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self.connection = connection
        self.until = until
        self.said = b""
        self.left = b""


class Scrape:
    """Takes the listener over; closes it in `stop`."""

    def __init__(self, listener: socket.socket, page: Page, each_s: float = EACH_S) -> None:
        self._listener = listener
        self._page = page
        self._each_s = each_s
        self._waker, self._wakes = socket.socketpair()
        self._stopping = False
        self._askers: set[_Asker] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._made: tuple[bytes, str] | None = None
        self._made_at = float("-inf")
        threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Nobody waits for the thread: it may be waiting for the caller."""
        self._stopping = True
        self._waker.close()

    # ---- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._look()
        for asker in list(self._askers):
            self._leave(asker)
        self._selector.close()
        self._listener.close()
        self._wakes.close()

    def _look(self) -> None:
        self._admit(len(self._askers) < CONNECTIONS)
        due = min((asker.until for asker in self._askers), default=None)
        ready = self._selector.select(None if due is None else max(0.0, due - time.monotonic()))
        for key, _ in ready:
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, _Asker):
                try:
                    self._serve(key.data)
                except OSError:
                    self._leave(key.data)
        now = time.monotonic()
        for asker in [asker for asker in self._askers if asker.until <= now]:
            self._leave(asker)

    def _admit(self, open_now: bool) -> None:
        """While there is no room, those who come wait with the kernel."""
        listens = self._listener in self._selector.get_map()
        if open_now and not listens:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif listens and not open_now:
            self._selector.unregister(self._listener)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it went away again, or there is no descriptor left
            time.sleep(0.01)
            return
        connection.setblocking(False)
        asker = _Asker(connection, time.monotonic() + self._each_s)
        self._askers.add(asker)
        self._selector.register(connection, selectors.EVENT_READ, asker)

    def _serve(self, asker: _Asker) -> None:
        if not asker.left:
            said = asker.connection.recv(REQUEST)
            asker.said += said
            if not said:
                self._leave(asker)
                return
            if not any(end in asker.said for end in END) and len(asker.said) < REQUEST:
                return
            asker.left = self._answer(asker.said)
            self._selector.modify(asker.connection, selectors.EVENT_WRITE, asker)
        with contextlib.suppress(BlockingIOError):
            asker.left = asker.left[asker.connection.send(asker.left) :]
        if not asker.left:
            self._leave(asker)

    def _leave(self, asker: _Asker) -> None:
        self._askers.discard(asker)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(asker.connection)
        with contextlib.suppress(OSError):
            asker.connection.shutdown(socket.SHUT_WR)
        asker.connection.close()

    # ---- answers ---------------------------------------------------------------------------------------------

    def _answer(self, said: bytes) -> bytes:
        method, _, rest = said.partition(b"\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response("405 Method Not Allowed", b"only GET\n", head="Allow: GET\r\n")
        if path != PATH:
            return _response("404 Not Found", b"the metrics are at /metrics\n")
        made = self._fresh()
        if made is None:
            return _response("503 Service Unavailable", b"the daemon's loop does not answer\n")
        return _response("200 OK", made[0], kind=made[1])

    def _fresh(self) -> tuple[bytes, str] | None:
        if time.monotonic() - self._made_at >= FRESH_S:
            self._made = self._page()
            self._made_at = time.monotonic()
        return self._made


def _response(status: str, body: bytes, *, kind: str = "text/plain; charset=utf-8", head: str = "") -> bytes:
    rest = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n{head}Connection: close\r\n\r\n"
    return f"HTTP/1.0 {status}\r\n{rest}".encode() + body
