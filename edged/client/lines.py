"""The sockets: carries out actions, waits for inputs. No rules here.

* DEALER, a fresh one per try; no routing id (a second socket with the same one is deaf); a random frame before the
  delimiter, and what comes back without it is dropped. LINGER 0: closing never waits.
* A monitor on each tells of a cut connection at once, where the silence rule would take ten seconds, and of a refused
  handshake, after which libzmq does not try again by itself. How each refusal shows (libzmq 4.3.5, tried): an unknown
  key as AUTH 400, a box without room as AUTH 500; a wrong server key as a connection that is cut in the handshake, keys
  on one side only as that or as MECHANISM_MISMATCH, whichever end notices first.
* Reconnects start at 0.1 s and are at most 0.5 s apart: a daemon that comes back is found soon, one that does not costs
  little.
* What comes in is read without blocking, at most `PER_TURN` messages of a line at once.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import zmq

from edged.client.errors import CUT, CUT_WITHOUT_KEYS, KEY_UNKNOWN, KEYS_WANTED, NO_KEYS, BadEndpoint, EdgedError
from edged.client.keys import Curve, Keys
from edged.client.steps import Action, Ask, Close, Heard, Input, Listen, Lost, Message, Reached, Say, Unreachable

RECONNECT_MS: Final = 100
RECONNECT_MAX_MS: Final = 500
STREAM_HWM: Final = 10_000
"""Events held here for a reader that is slow; more are dropped by the daemon and repaired."""
PER_TURN: Final = 64

REFUSED: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
NOT_KNOWN: Final = 400
"""The ZAP status (RFC 27) of who is not let in, however often it tries."""
GONE: Final = zmq.EVENT_DISCONNECTED | REFUSED
WATCHED: Final = GONE | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_HANDSHAKE_SUCCEEDED

Socket = zmq.Socket[Any]


class Line:
    """One socket and its monitor. `curve` None: without keys."""

    def __init__(self, context: zmq.Context[Any], number: int, kind: int, curve: Curve | None) -> None:
        self.number = number
        self.curve = curve
        self.endpoint = ""
        self.mark = os.urandom(8)
        self.told_unreachable = False
        self.socket: Socket = context.socket(kind)
        try:
            self.socket.setsockopt(zmq.LINGER, 0)
            self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
            self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
            self.socket.setsockopt(zmq.RCVHWM, STREAM_HWM)
            if curve is not None:
                self.socket.setsockopt(zmq.CURVE_SERVERKEY, curve.server.encode())
                self.socket.setsockopt(zmq.CURVE_PUBLICKEY, curve.public.encode())
                self.socket.setsockopt(zmq.CURVE_SECRETKEY, curve.secret.encode())
            self.monitor: Socket = self.socket.get_monitor_socket(WATCHED)
        except zmq.ZMQError:
            self.socket.close(0)
            raise

    def connect(self, endpoint: str) -> None:
        self.endpoint = endpoint
        if "[" in endpoint:
            self.socket.setsockopt(zmq.IPV6, 1)
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise BadEndpoint(f"{endpoint}: {error}") from None

    def say(self, body: bytes) -> None:
        self.socket.send_multipart([self.mark, b"", body], zmq.DONTWAIT)

    def message(self, frames: list[bytes]) -> Message | None:
        """The object in the frames, or None when they are not for us."""
        expected = 2 if self.socket.type == zmq.SUB else 3
        if len(frames) != expected or (expected == 3 and frames[:2] != [self.mark, b""]):
            return None
        try:
            found = msgspec.json.decode(frames[-1])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def event(self, frames: list[bytes]) -> Input | None:
        """What the monitor tells, if it matters."""
        kind, value = struct.unpack("=hi", frames[0])
        if kind & GONE:
            return Lost(self.number, self._reason(kind, value))
        if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return Reached(self.number)
        if kind == zmq.EVENT_CONNECT_RETRIED and not self.told_unreachable:
            self.told_unreachable = True
            return Unreachable(self.number)
        return None

    def _reason(self, kind: int, value: int) -> str | None:
        if kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return KEYS_WANTED if self.curve is None else NO_KEYS
        if kind == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and self.endpoint.startswith("tcp://"):
            return CUT_WITHOUT_KEYS if self.curve is None else CUT
        known = kind != zmq.EVENT_HANDSHAKE_FAILED_AUTH or value != NOT_KNOWN
        return None if known or self.curve is None else KEY_UNKNOWN

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)


class Lines:
    """The lines of one call. For one thread at a time."""

    def __init__(self, context: zmq.Context[Any], keys: Keys) -> None:
        self._context = context
        self._keys = keys
        self._open: dict[int, Line] = {}

    def __len__(self) -> int:
        return len(self._open)

    def do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Ask(line=number, endpoint=endpoint, body=body):
                    self._connect(number, zmq.DEALER, endpoint).say(body)
                case Listen(line=number, endpoint=endpoint, topic=topic):
                    self._connect(number, zmq.SUB, endpoint).socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
                case Say(line=number, body=body):
                    if number in self._open:
                        self._open[number].say(body)
                case Close(line=number):
                    self._open.pop(number).close()

    def _connect(self, number: int, kind: int, endpoint: str) -> Line:
        try:
            line = self._open[number] = Line(self._context, number, kind, self._keys.of(endpoint))
            line.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()  # there is no going on
            raise EdgedError(f"no socket for {endpoint}: {error}") from None
        except BadEndpoint:
            self.close()
            raise
        return line

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def wait(self, timeout_s: float) -> list[Input]:
        """What came, at the latest after `timeout_s`."""
        if not self._open:  # backing off: a poller of nothing would not wait
            time.sleep(max(0.0, timeout_s))
            return []
        poller = zmq.Poller()
        self._register(poller)
        poller.poll(milliseconds(timeout_s))
        out: list[Input] = []
        for line in self._open.values():
            for socket in (line.socket, line.monitor):  # what was said before the line was cut comes first
                try:
                    for _ in range(PER_TURN):
                        self._take(out, line, socket, socket.recv_multipart(zmq.DONTWAIT))
                except zmq.Again:
                    pass
        return out

    def _register(self, poller: zmq.Poller) -> None:
        for line in self._open.values():
            poller.register(line.socket, zmq.POLLIN)
            poller.register(line.monitor, zmq.POLLIN)

    def _take(self, out: list[Input], line: Line, socket: Socket, frames: list[bytes]) -> None:
        if socket is line.monitor:
            event = line.event(frames)
            if isinstance(event, Lost) and event.reason == CUT and line.curve is not None:
                self._keys.cut(line.endpoint, line.curve)
            if event is not None:
                out.append(event)
        else:
            message = line.message(frames)
            if message is not None:
                out.append(Heard(line.number, message))


def milliseconds(seconds: float) -> int:
    """For a poll: rounded up, so that a wait does not end before its time; at most an hour."""
    return int(min(3_600_000.0, max(0.0, seconds * 1000 + 0.999)))
