"""The daemon's sockets at work: listeners, zmq sockets, who sent what, sends that never block.

What is sent to a peer that cannot take it is dropped; the caller is told, and the broker decides what that means.
"""

from __future__ import annotations

import contextlib
import grp
import os
import stat
from typing import Final

import zmq
from msgspec import Struct

from edged.broker.instructions import Address, SocketName
from edged.config import Config
from edged.errors import ConfigError
from edged.messages import Priority
from edged.places import fallback_runtime_dir
from edged.wire import sockets
from edged.wire.auth import CONNECTION, Auth
from edged.wire.listeners import Listener, ListenError, listen

PREFIX_FRAMES: Final = 4
PREFIX_BYTES: Final = 512
"""What a peer may put before the delimiter (routing id, REQ's 4 bytes, one frame of its own), since it is echoed."""


class Incoming(Struct, frozen=True):
    """One message on `request` or `control`. `body` None: the framing is wrong, an error can be addressed to `to`."""

    to: Address
    identity: str
    max_priority: Priority
    socket_type: str
    body: bytes | None


class Subscription(Struct, frozen=True):
    """One frame on `stream`; the metadata is None where libzmq made the frame itself."""

    data: bytes
    identity: str | None
    connection: str | None
    address: str


class Endpoints:
    """Makes everything that listens. Raises ListenError, ConfigError."""

    def __init__(self, config: Config) -> None:
        self.warnings: list[str] = []
        self._config = config
        self._auth = Auth(allow_tcp=config.security.allow_insecure_tcp, ban_s=config.security.ban_s)
        self._listeners: list[Listener] = []
        prepare_directory(config.runtime_dir, private=False)
        prepare_directory(config.state_dir, private=True)
        try:
            gid = _group(config)
            requests = [self._listen(endpoint, 0o660, gid) for endpoint in config.request_endpoints]
            self._streams = [self._listen(endpoint, 0o660, gid) for endpoint in config.stream_endpoints]
            control = self._listen(config.control_endpoint, 0o600, None)
        except BaseException:
            self._close_listeners()
            raise
        if any(listener.endpoint.startswith("tcp://") for listener in self._listeners):
            self.warnings.append("TCP without CURVE (security.allow_insecure_tcp): anybody on the network may ask")
        self._context: zmq.Context[sockets.Socket] = zmq.Context()
        self.zap = sockets.zap(self._context)
        self.request, self.control = (
            sockets.router(self._context, listeners, 4 * config.limits.request_bytes)
            for listeners in (requests, [control])
        )
        self._bind_stream()

    def _listen(self, endpoint: str, mode: int, gid: int | None) -> Listener:
        listener = listen(endpoint, mode=mode, gid=gid)
        self._listeners.append(listener)
        return listener

    def _bind_stream(self) -> None:
        self.stream = sockets.xpub(self._context, self._streams)
        self._nodrop = False

    def poller(self) -> zmq.Poller:
        """A fresh poller over all sockets."""
        poller = zmq.Poller()
        for socket in (self.zap, self.request, self.stream, self.control):
            poller.register(socket, zmq.POLLIN)
        return poller

    # ---- in --------------------------------------------------------------------------------------------------

    def authenticate(self, now: float) -> None:
        """Answers the handshakes that wait."""
        with contextlib.suppress(zmq.Again):
            while True:
                answer = self._auth.answer(self.zap.recv_multipart(zmq.NOBLOCK), now)
                if answer is not None:
                    self.zap.send_multipart(answer, zmq.NOBLOCK)

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
        good = 0 < delimiter < PREFIX_FRAMES and sum(sizes[:delimiter]) <= PREFIX_BYTES and len(rest) == 1
        if 0 < delimiter < PREFIX_FRAMES and sum(sizes[:delimiter]) <= PREFIX_BYTES:
            echo = tuple(frame.bytes for frame in prefix)
        else:
            echo = (frames[0].bytes, b"")
        return Incoming(
            to=Address(name, echo),
            identity=identity,
            max_priority="high" if identity.startswith("uid:") else self._config.security.tcp_max_priority,
            socket_type=_metadata(frames[-1], "Socket-Type") or "",
            body=rest[0].bytes if good else None,
        )

    def receive_subscription(self) -> Subscription | None:
        """The next frame on `stream`, in order."""
        try:
            frame = self.stream.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return Subscription(
            data=frame.bytes,
            identity=_metadata(frame, "User-Id"),
            connection=_metadata(frame, CONNECTION),
            address=_metadata(frame, "Peer-Address") or "",
        )

    # ---- subscriptions ---------------------------------------------------------------------------------------

    def approve(self, topic: bytes) -> None:
        """For the connection whose frame was read last: before anything else is read."""
        self.stream.setsockopt(zmq.SUBSCRIBE, topic)

    def remove(self, topic: bytes, *, named: bool) -> None:
        """The connection whose frame was read last no longer wants the topic; one that is gone has no pipe left."""
        if named:
            self.stream.setsockopt(zmq.UNSUBSCRIBE, topic)

    def rebind_stream(self, address: str, now: float) -> None:
        """After a foreign frame (protocol 4): the peer is banned, the socket closed and bound anew."""
        self._auth.ban(address, now)
        self.stream.close(linger=0)
        self._bind_stream()

    # ---- out -------------------------------------------------------------------------------------------------

    def send(self, to: Address, body: bytes) -> int | None:
        """None, or the errno: EHOSTUNREACH the peer is gone, EAGAIN it takes no more."""
        socket = self.request if to.socket == "request" else self.control
        try:
            socket.send_multipart([*to.frames, body], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            return error.errno
        return None

    def publish(self, topic: bytes, body: bytes, *, drop: bool) -> bool:
        """`drop`: readers that are full miss it silently; else nobody gets it and False is returned."""
        if self._nodrop is drop:
            self._nodrop = not drop
            self.stream.setsockopt(zmq.XPUB_NODROP, int(self._nodrop))
        try:
            self.stream.send_multipart([topic, body], zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

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
