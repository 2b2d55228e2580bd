"""The daemon's sockets at work: listeners, zmq sockets, who sent what, sends that never block.

What is sent to a peer that cannot take it is dropped; the caller is told, and the broker decides what that means.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import stat
from collections import Counter
from typing import Final

import msgspec
import zmq
from msgspec import Struct

from edged import keyring
from edged.broker.instructions import Address, SocketName
from edged.config import Config
from edged.errors import ConfigError
from edged.keyring import Keyring, Known
from edged.messages import Priority
from edged.places import fallback_runtime_dir
from edged.system.descriptors import Descriptors
from edged.wire import sockets
from edged.wire.auth import CONNECTION, KEY, Auth, Refusal
from edged.wire.listeners import Listener, ListenError, listen

RESTORE_S: Final = 0.5
"""Between tries to bind `stream` again."""

PREFIX_FRAMES: Final = 4
PREFIX_BYTES: Final = 512
"""What a peer may put before the delimiter (routing id, REQ's 4 bytes, one frame of its own), since it is echoed."""


class Incoming(Struct, frozen=True):
    """One message on `request` or `control`. `wrong`: why its framing cannot be accepted, to be told to `to`.

    `max_queued`: this caller's own share of the queue, if it has one.
    """

    to: Address
    identity: str
    max_priority: Priority
    max_queued: int | None
    socket_type: str
    wrong: str | None
    body: bytes


class Subscription(Struct, frozen=True):
    """One frame on `stream`; the metadata is None where libzmq made the frame itself."""

    data: bytes
    identity: str | None
    connection: str | None
    address: str
    key: str | None = None  # the peer's public key


class Endpoints:
    """Makes everything that listens. Raises ListenError, ConfigError."""

    def __init__(self, config: Config) -> None:
        self._warnings: list[str] = []
        self._config = config
        self._keys = keyring.load(config)
        self._known = _by_identity(self._keys)
        self._auth = Auth(
            allow_tcp=config.security.allow_insecure_tcp,
            ban_s=config.security.ban_s,
            clients=None if self._keys is None else self._keys.clients,
        )
        self._descriptors = Descriptors()
        self._warnings += self._descriptors.warnings
        self._stream_at = 0.0
        self._listeners: list[Listener] = []
        prepare_directory(config.runtime_dir, private=False)
        try:
            prepare_directory(config.state_dir, private=True)
        except ListenError as error:  # only a cache lies there
            self._warnings.append(f"{error}: nothing is remembered over a restart")
        try:
            gid = _group(config)
            requests = [self._listen(endpoint, 0o660, gid) for endpoint in config.request_endpoints]
            self._streams = [self._listen(endpoint, 0o660, gid) for endpoint in config.stream_endpoints]
            control = self._listen(config.control_endpoint, 0o600, None)
        except BaseException:
            self._close_listeners()
            raise
        if self._keys is None and any(listener.endpoint.startswith("tcp://") for listener in self._listeners):
            self._warnings.append("TCP without CURVE (security.allow_insecure_tcp): anybody on the network may ask")
        self._context: zmq.Context[sockets.Socket] = zmq.Context()
        self.zap = sockets.zap(self._context)
        self._requests, self._controls = requests, [control]
        self._bound: Counter[SocketName] = Counter()
        self.request, self.control = self._router(self._requests), self._router(self._controls)
        self._bind_stream()

    def _listen(self, endpoint: str, mode: int, gid: int | None) -> Listener:
        listener = listen(endpoint, mode=mode, gid=gid)
        self._listeners.append(listener)
        return listener

    def _router(self, listeners: list[Listener]) -> sockets.Socket:
        return sockets.router(self._context, listeners, 4 * self._config.limits.request_bytes, self._secret)

    def _bind_stream(self) -> None:
        self._nodrop = False
        self.stream: sockets.Socket | None = sockets.xpub(self._context, self._streams, self._secret)

    @property
    def _secret(self) -> str | None:
        return None if self._keys is None else self._keys.secret

    @property
    def warnings(self) -> list[str]:
        return [*self._warnings, *(() if self._keys is None else self._keys.warnings)]

    def poller(self) -> zmq.Poller:
        """A fresh poller over all sockets."""
        poller = zmq.Poller()
        for socket in (self.zap, self.request, self.stream, self.control):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        return poller

    # ---- in --------------------------------------------------------------------------------------------------

    def authenticate(self, now: float) -> Refusal | None:
        """Answers the handshakes that wait; nobody more is let in while descriptors are short. Who was refused last."""
        self._auth.refused = None
        self._auth.full = self._descriptors.short()
        with contextlib.suppress(zmq.Again):
            while True:
                answer = self._auth.answer(self.zap.recv_multipart(zmq.NOBLOCK), now)
                if answer is not None:
                    self.zap.send_multipart(answer, zmq.NOBLOCK)
        return self._auth.refused

    def receive(self, name: SocketName) -> Incoming | None:
        """The next message, or None when there is none. One without an identity cannot be: it is dropped."""
        socket = self.request if name == "request" else self.control
        while True:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            identity = _metadata(frames[-1], "User-Id")
            if identity is not None:
                return self._incoming(name, identity, frames)

    def _incoming(self, name: SocketName, identity: str, frames: list[zmq.Frame]) -> Incoming:
        sizes = [len(frame) for frame in frames]
        delimiter = sizes.index(0, 1) if 0 in sizes[1:] else 0
        prefix, rest = frames[: delimiter + 1], frames[delimiter + 1 :]
        addressable = 0 < delimiter < PREFIX_FRAMES and sum(sizes[:delimiter]) <= PREFIX_BYTES
        routing_id = frames[0].bytes
        echo = tuple(frame.bytes for frame in prefix) if addressable else (routing_id, b"")
        known = self._known.get(identity)
        wrong = None
        if not addressable or len(rest) != 1:
            wrong = "a message is: an empty frame, then one body frame"
        elif not given_by_libzmq(routing_id):
            wrong = "set no routing id on your socket: whoever takes it after you would get your answers"
        return Incoming(
            to=Address(name, echo, self._bound[name]),
            identity=identity,
            max_priority=self._max_priority(identity, known),
            max_queued=None if known is None else known.max_queued,
            socket_type=_metadata(frames[-1], "Socket-Type") or "",
            wrong=wrong,
            body=b"" if wrong else rest[0].bytes,
        )

    def _max_priority(self, identity: str, known: Known | None) -> Priority:
        if identity.startswith("uid:"):
            return "high"
        return (known and known.max_priority) or self._config.security.tcp_max_priority

    def receive_subscription(self) -> Subscription | None:
        """The next frame on `stream`, in order."""
        if self.stream is None:
            return None
        try:
            frame = self.stream.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return Subscription(
            data=frame.bytes,
            identity=_metadata(frame, "User-Id"),
            connection=_metadata(frame, CONNECTION),
            address=_metadata(frame, "Peer-Address") or "",
            key=_metadata(frame, KEY),
        )

    # ---- subscriptions ---------------------------------------------------------------------------------------

    def approve(self, topic: bytes) -> None:
        """For the connection whose frame was read last: before anything else is read."""
        assert self.stream is not None, "a frame was read from it"
        self.stream.setsockopt(zmq.SUBSCRIBE, topic)

    def remove(self, topic: bytes, *, named: bool) -> None:
        """The connection whose frame was read last no longer wants the topic; one that is gone has no pipe left."""
        if named and self.stream is not None:
            self.stream.setsockopt(zmq.UNSUBSCRIBE, topic)

    def rebind_stream(self, address: str, now: float, key: str | None = None) -> None:
        """After a foreign frame (protocol 4): the peer is banned, the socket closed and bound anew."""
        self._auth.ban(address, now, key)
        if self.stream is not None:
            self.stream.close(linger=0)
        self.stream, self._stream_at = None, now
        self.restore_stream(now)

    def rebind(self, now: float, *, control: bool = True) -> None:
        """All sockets closed and bound anew on the same listeners: every connection is cut, and what libzmq held for
        it is freed. Raises OSError when a socket cannot be made (no descriptor free, no memory).

        Honest clients come back by themselves; what was to be sent to the old connections is dropped. `control` False:
        not that one, which is never on TCP.
        """
        self._bound["request"] += 1
        self.request.close(linger=0)
        self.request = self._router(self._requests)
        if control:
            self._bound["control"] += 1
            self.control.close(linger=0)
            self.control = self._router(self._controls)
        if self.stream is not None:
            self.stream.close(linger=0)
        self.stream, self._stream_at = None, now
        self.restore_stream(now)

    def restore_stream(self, now: float) -> None:
        """Tries to bind `stream` again when it could not be (no descriptor free, no memory)."""
        if self.stream is None and now >= self._stream_at:
            self._stream_at = now + RESTORE_S
            with contextlib.suppress(OSError):  # ZMQError is one
                self._bind_stream()

    def next_wake(self) -> float:
        return float("inf") if self.stream is not None else self._stream_at

    # ---- out -------------------------------------------------------------------------------------------------

    def send(self, to: Address, body: bytes) -> int | None:
        """None, or the errno: EHOSTUNREACH the peer is gone, EAGAIN it takes no more."""
        if to.bound != self._bound[to.socket]:
            return errno.EHOSTUNREACH
        socket = self.request if to.socket == "request" else self.control
        try:
            socket.send_multipart([*to.frames, body], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            return error.errno
        return None

    def publish(self, topic: bytes, body: bytes, *, drop: bool) -> bool:
        """`drop`: readers that are full miss it silently; else nobody gets it and False is returned."""
        if self.stream is None:
            return False
        if self._nodrop is drop:
            self._nodrop = not drop
            self.stream.setsockopt(zmq.XPUB_NODROP, int(self._nodrop))
        try:
            self.stream.send_multipart([topic, body], zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    # ---- keys ------------------------------------------------------------------------------------------------

    def rekey(self, keys: Keyring) -> bool:
        """Other client keys are in force. True: one that let somebody in is gone or means another, and only `rebind`
        ends the connections that it made."""
        if self._keys is None:
            return False
        before, self._keys = (
            self._keys,
            msgspec.structs.replace(self._keys, clients=keys.clients, warnings=keys.warnings),
        )
        self._auth.clients, self._known = keys.clients, _by_identity(keys)
        found = ((keys.clients.get(raw), was) for raw, was in before.clients.items())
        return any(known is None or known.identity != was.identity for known, was in found)

    def knows(self, identity: str) -> bool:
        """Whether somebody may still come as this caller."""
        return not identity.startswith(("name:", "key:")) or identity in self._known

    @property
    def public_key(self) -> str | None:
        """Of the box; None: no CURVE."""
        return None if self._keys is None else self._keys.public

    # ---- the rest --------------------------------------------------------------------------------------------

    def differ(self, config: Config) -> bool:
        """Whether the endpoints of `config` are not those that are bound."""
        bound = {listener.endpoint for listener in self._listeners}
        return bound != {*config.request_endpoints, *config.stream_endpoints, config.control_endpoint}

    def reconfigure(self, config: Config) -> None:
        """Takes over what can change while sockets are bound."""
        self._config = config
        self._auth.ban_s = config.security.ban_s

    def close(self) -> None:
        """Unbinds, lets the last answers out, removes the sockets' files."""
        self._close_listeners()
        self._context.destroy(linger=sockets.LINGER_MS)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()


def _by_identity(keys: Keyring | None) -> dict[str, Known]:
    return {} if keys is None else {known.identity: known for known in keys.clients.values()}


def given_by_libzmq(routing_id: bytes) -> bool:
    """A ROUTER names a peer that brings no id by a zero byte and a number of its own, which no other peer ever has."""
    return len(routing_id) == 5 and routing_id[0] == 0


def _metadata(frame: zmq.Frame, name: str) -> str | None:
    try:
        value = frame.get(name)
    except (zmq.ZMQError, UnicodeDecodeError):
        return None
    return str(value) if value else None


def _group(config: Config) -> int | None:
    if config.security.group is None:
        return None
    try:
        return grp.getgrnam(config.security.group).gr_gid
    except KeyError:
        raise ConfigError(
            config.path, "security.group", "a group of this system", repr(config.security.group)
        ) from None


def prepare_directory(path: str, *, private: bool) -> None:
    """Makes it: 0700 when `private`, or for the default in /tmp, which is refused when it is not ours; else 0750.

    An existing directory keeps its mode. Raises ListenError.
    """
    shared = path == fallback_runtime_dir()
    try:
        os.makedirs(path, mode=0o700 if private or shared else 0o750, exist_ok=True)
        found = os.lstat(path)
    except OSError as error:
        raise ListenError(f"cannot use {path}: {error.strerror}") from error
    if shared and (not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid()):
        raise ListenError(f"{path} is not a directory of ours; remove it or set runtime_dir")
