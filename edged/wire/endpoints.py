"""The daemon's sockets at work: listeners, zmq sockets, who sent what, sends that never block.

What is sent to a peer that cannot take it is dropped; the caller is told, and the broker decides what that means.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import time
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

import msgspec
import zmq

from edged import keyring
from edged.broker.instructions import Address, SocketName
from edged.config import Config
from edged.errors import ConfigError
from edged.keyring import Keyring, Known
from edged.messages import Priority
from edged.system.links import keeps_up
from edged.wire import sockets
from edged.wire.activation import Activated
from edged.wire.auth import ADDRESS, CONNECTION, CONTROL_DOMAIN, DOMAIN, KEY, STRANGER, Auth, Refusal
from edged.wire.directory import prepare_directory
from edged.wire.door import Door, Offender
from edged.wire.guests import Guests
from edged.wire.incoming import Endless, Framed, Incoming, Reader, Subscription, descriptor, metadata
from edged.wire.listeners import Listener, ListenError, listen
from edged.wire.outbox import Outbox

DROPPED: Final = 256
"""Messages of who was put out that are thrown away before the other sockets get their turn: some milliseconds."""

RESTORE_S: Final = 0.5
"""Between tries to bind `stream` again."""


class Endpoints:
    """Makes everything that listens, but for what systemd passed. Raises ListenError, ConfigError."""

    def __init__(self, config: Config, activated: Activated) -> None:
        self._warnings: list[str] = []
        self._activated = activated
        self._config = config
        self._keys = keyring.load(config)
        self._known = _by_identity(self._keys)
        self._guests = Guests()
        self._stream_at = 0.0
        self._listeners: list[Listener] = []
        self._readers: dict[SocketName, Reader] = {}
        prepare_directory(config.runtime_dir, private=False)
        try:
            prepare_directory(config.state_dir, private=True)
        except ListenError as error:  # only a cache lies there
            self._warnings.append(f"{error}: nothing is remembered over a restart")
        try:
            gid = _group(config)
            self._of: dict[str, list[Listener]] = {
                "request": [self._listen(endpoint, 0o660, gid) for endpoint in config.request_endpoints],
                "stream": [self._listen(endpoint, 0o660, gid) for endpoint in config.stream_endpoints],
                "control": [self._listen(config.control_endpoint, 0o600, None)],
            }
        except BaseException:
            self._close_listeners()
            raise
        self._warnings += activated.unknown(listener.endpoint for listener in self._listeners)
        if self._keys is None and any(listener.endpoint.startswith("tcp://") for listener in self._listeners):
            self._warnings.append("TCP without CURVE (security.allow_insecure_tcp): anybody on the network may ask")
        self._context: zmq.Context[sockets.Socket] = zmq.Context()
        self.zap = sockets.zap(self._context)
        self.door = Door(self._named(*self._of), **_door_settings(config))
        self._auth = Auth(
            allow_tcp=config.security.allow_insecure_tcp,
            door=self.door,
            clients=None if self._keys is None else self._keys.clients,
        )
        self._outbox = Outbox(keeps_up)
        self._bound: Counter[SocketName] = Counter()
        self.request, self.control = self._router("request"), self._router("control")
        self._bind_stream()

    def _listen(self, endpoint: str, mode: int, gid: int | None) -> Listener:
        given = self._activated.take(endpoint)
        listener = Listener(endpoint, given, None) if given else listen(endpoint, mode=mode, gid=gid)
        self._listeners.append(listener)
        return listener

    def _named(self, *names: str) -> list[tuple[str, Listener]]:
        return [(name, listener) for name in names for listener in self._of[name]]

    def _router(self, name: SocketName) -> sockets.Socket:
        domain = CONTROL_DOMAIN if name == "control" else DOMAIN
        most = 4 * self._config.limits.request_bytes
        socket = sockets.router(self._context, self._of[name], most, self._secret, domain)
        self._readers[name] = Reader(socket)
        self.door.opened(self._named(name))
        return socket

    def _bind_stream(self) -> None:
        self._nodrop = False
        self.stream: sockets.Socket | None = sockets.xpub(self._context, self._of["stream"], self._secret)
        self.door.opened(self._named("stream"))

    def _close_stream(self) -> None:
        if self.stream is not None:
            self.door.closing(self._named("stream"))
            self.stream.close(linger=0)
        self.stream = None

    @property
    def _secret(self) -> str | None:
        return None if self._keys is None else self._keys.secret

    @property
    def warnings(self) -> list[str]:
        return [*self._warnings, *self.door.warnings(), *(() if self._keys is None else self._keys.warnings)]

    def poller(self) -> zmq.Poller:
        """A fresh poller over all sockets."""
        poller = zmq.Poller()
        for socket in (self.zap, self.request, self.stream, self.control):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        return poller

    # ---- in --------------------------------------------------------------------------------------------------

    def authenticate(self, now: float) -> Refusal | None:
        """Answers the handshakes that wait. Who was refused last."""
        self._auth.refused = None
        with contextlib.suppress(zmq.Again):
            while True:
                before = self._auth.refused
                answer = self._auth.answer(self.zap.recv_multipart(zmq.NOBLOCK), now)
                if answer is not None:
                    self.zap.send_multipart(answer, zmq.NOBLOCK)
                refused = self._auth.refused
                if refused is not None and refused is not before and refused.why == STRANGER:
                    self.door.stranger(refused.address, now)
        return self._auth.refused

    def receive(self, name: SocketName, now: float) -> Incoming | None:
        """The next message, or None when there is none or the turn is over. One without an identity cannot be."""
        for _ in range(DROPPED):
            found = self._readers[name].read()
            if found is None:
                return None
            if isinstance(found, Endless):
                self._put_out(found, now)
                continue
            identity = metadata(found.last, "User-Id")
            address, connection = metadata(found.last, ADDRESS) or "", metadata(found.last, CONNECTION) or ""
            if identity is None or not self._welcome(found.last, identity, now):
                continue
            if name == "control" or self.door.heard(address, connection):
                return self._incoming(name, identity, found)
        return None

    def _incoming(self, name: SocketName, identity: str, found: Framed) -> Incoming:
        known = self._known.get(identity)
        self._outbox.heard(found.routing_id, identity, descriptor(found.last))
        return Incoming(
            to=Address(name, found.echo, self._bound[name]),
            identity=identity,
            max_priority=self._max_priority(identity, known),
            max_queued=None if known is None else known.max_queued,
            socket_type=metadata(found.last, "Socket-Type") or "",
            wrong=found.wrong,
            body=found.body,
        )

    def _put_out(self, found: Endless, now: float) -> None:
        address, key = metadata(found.last, ADDRESS) or "", metadata(found.last, KEY)
        self.door.put_out(
            descriptor(found.last),
            Offender(address, key, metadata(found.last, "User-Id") or ""),
            "endless message",
            now,
        )

    def _max_priority(self, identity: str, known: Known | None) -> Priority:
        if identity.startswith("uid:"):
            return "high"
        return (known and known.max_priority) or self._config.security.tcp_max_priority

    def _welcome(self, frame: zmq.Frame, identity: str, now: float) -> bool:
        """False: the key that let its sender in is no longer in force, and the connection is cut."""
        connection, key = metadata(frame, CONNECTION) or "", metadata(frame, KEY)
        if connection not in self._guests:
            guest = self._guests.came(connection, identity, key, metadata(frame, ADDRESS) or "", descriptor(frame))
            self.door.spoke(guest.place)
            if self._guests.crowded:
                self.door.look(now, again=True)
                self._guests.clear_up(self.door.links)
        if key is None or self._keys is None or keyring.in_force(self._keys, key, identity):
            return True
        self.door.show_out(self._guests.these([connection]), now)
        return False

    def receive_subscription(self, now: float) -> Subscription | None:
        """The next frame on `stream`, in order. One of a revoked key has no identity."""
        if self.stream is None:
            return None
        self.door.taking_in = time.monotonic()
        try:
            frame = self.stream.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        finally:
            self.door.taking_in = 0.0
        identity, connection = metadata(frame, "User-Id"), metadata(frame, CONNECTION)
        address = metadata(frame, ADDRESS) or ""
        if identity is not None and not self._welcome(frame, identity, now):
            identity = None
        if connection is not None:
            self.door.heard(address, connection)
        return Subscription(
            data=frame.bytes,
            identity=identity,
            connection=connection,
            address=address,
            key=metadata(frame, KEY),
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

    def living(self, connections: Collection[str], now: float) -> list[str]:
        """Those of them that are not gone."""
        self.door.look(now, again=True)
        return self._guests.living(connections, self.door.links)

    def put_out(self, connections: Collection[str], why: str, now: float, *, offence: bool) -> None:
        """Cuts them. `offence`: bans their peer for a while; else it may come back soon."""
        guests = self._guests.these(connections)
        self.door.show_out(guests, now)
        if offence and guests:
            self.door.offence(Offender(guests[0].address, guests[0].key, guests[0].identity), why, now)
        elif guests:
            self.door.bans.arrest(guests[0].identity, now)

    def rebind_stream(self, now: float) -> None:
        """After a foreign frame or a flood (protocol 4): the socket is closed and bound anew."""
        self._close_stream()
        self._stream_at = now
        self.restore_stream(now)

    def rebind(self, now: float) -> None:
        """All sockets closed and bound anew on the same listeners: every connection is cut, and what libzmq held for
        it is freed. Raises OSError when a socket cannot be made (no descriptor free, no memory).

        Honest clients come back by themselves; what was to be sent to the old connections is dropped.
        """
        self._outbox.clear()
        self.request = self._again("request", self.request)
        self.control = self._again("control", self.control)
        self._close_stream()
        self._stream_at = now
        self.restore_stream(now)

    def _again(self, name: SocketName, socket: sockets.Socket) -> sockets.Socket:
        self._bound[name] += 1
        self.door.closing(self._named(name))
        socket.close(linger=0)
        return self._router(name)

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
        if not self._outbox.takes(to.frames[0], len(body), time.monotonic()):
            return errno.EAGAIN
        socket = self.request if to.socket == "request" else self.control
        try:
            socket.send_multipart([*to.frames, body], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno == errno.EHOSTUNREACH:
                self._outbox.forget(to.frames[0])
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
        """Other client keys are in force. True: one that let somebody in is gone or means another (`cut_revoked`)."""
        if self._keys is None:
            return False
        before, self._keys = (
            self._keys,
            msgspec.structs.replace(self._keys, clients=keys.clients, warnings=keys.warnings),
        )
        self._auth.clients, self._known = keys.clients, _by_identity(keys)
        found = ((keys.clients.get(raw), was) for raw, was in before.clients.items())
        return any(known is None or known.identity != was.identity for known, was in found)

    def cut_revoked(self, now: float) -> int:
        """Connections whose key is gone, or means another now. Of those that never said a word only such as come from
        an address where nobody else is: the others end with their first word."""
        keys = self._keys
        if keys is None:
            return 0
        gone = [
            one
            for one in self._guests.all()
            if one.key is not None and not keyring.in_force(keys, one.key, one.identity)
        ]
        return self.door.show_out(gone, now, knows=self.knows)

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
        self.door.reconfigure(**_door_settings(config))

    def close(self) -> None:
        """Unbinds, lets the last answers out, removes the sockets' files."""
        self.door.closing(self._named(*self._of))
        self.door.close()
        self._close_listeners()
        self._context.destroy(linger=sockets.LINGER_MS)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()


def _by_identity(keys: Keyring | None) -> dict[str, Known]:
    return {} if keys is None else {known.identity: known for known in keys.clients.values()}


def _door_settings(config: Config) -> dict[str, Any]:
    limits = config.limits
    return {"limit": limits.connections, "share": limits.connections_per_identity, "ban_s": config.security.ban_s}


def _group(config: Config) -> int | None:
    if config.security.group is None:
        return None
    try:
        return grp.getgrnam(config.security.group).gr_gid
    except KeyError:
        raise ConfigError(
            config.path, "security.group", "a group of this system", repr(config.security.group)
        ) from None
