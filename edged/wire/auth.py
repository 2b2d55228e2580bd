"""Who is calling: the ZAP handler's rules (protocol 9; ZAP is RFC 27 of rfc.zeromq.org). Pure but for a counter.

The handler runs in the daemon's loop; the sockets enforce their ZAP domain, so that nobody gets in when it does not
answer. On ipc the kernel names the peer (`localhost:UID:GID:PID`, from SO_PEERCRED): the identity is `uid:UID`. On tcp
with CURVE it is what the table of known keys says of the peer's public key, which libzmq has made sure of. On tcp
without, which the configuration must allow, it is `ip:ADDRESS`. Each connection gets a number of its own, `X-Conn`,
readable on every frame that it sends, and one with a key that key, `X-Key`. A banned peer (on ipc a process, on tcp a
key, without keys an address) is refused.

Status codes: 200; 400 who is not known; 500 who may come later (banned, no room). A client of libzmq is told the number
and does not try again by itself after either.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from msgspec import Struct

from edged.keyfile import to_z85
from edged.keyring import Clients

DOMAIN: Final = b"edged"
CONNECTION: Final = "X-Conn"
KEY: Final = "X-Key"
_VERSION: Final = b"1.0"
_IPC: Final = re.compile(r"localhost:(\d+):(\d+):(\d+)\Z")
_MAX_BANS: Final = 1024
"""Beyond this the oldest ban is lifted: memory is bounded."""


class Peer(Struct, frozen=True):
    """`identity` owns requests; `key` is what a ban names; `curve` the public key, if it has one."""

    identity: str
    key: str
    curve: str | None = None


class Refusal(Struct, frozen=True):
    """For the log."""

    address: str
    why: str
    key: str | None


def peer_of(address: str, *, allow_tcp: bool) -> Peer | None:
    """The peer behind a ZAP address or a frame's `Peer-Address`; None: nobody we know."""
    ipc = _IPC.match(address)
    if ipc:
        process = f"pid:{ipc[3]}" if ipc[3] != "0" else f"pid:0/uid:{ipc[1]}"  # 0: of another pid namespace
        return Peer(f"uid:{ipc[1]}", process)
    if allow_tcp and address:
        return Peer(f"ip:{address}", f"ip:{address}")
    return None


class Auth:
    """Decides about connections. `clients` None: there is no CURVE. `ban_s` 0: nobody is banned."""

    def __init__(self, *, allow_tcp: bool, ban_s: float, clients: Clients | None = None) -> None:
        self.allow_tcp = allow_tcp and clients is None
        self.ban_s = ban_s
        self.clients = clients
        self.full = False  # nobody more is let in
        self.refused: Refusal | None = None  # the last one
        self._connections = 0
        self._bans: dict[str, float] = {}

    def ban(self, address: str, now: float, key: str | None = None) -> None:
        """`key`: the public key of a peer that has one; its address may be that of others too."""
        peer = peer_of(address, allow_tcp=True) if key is None else Peer("", ban_of(key))
        if peer is None or self.ban_s <= 0:
            return
        self._bans.pop(peer.key, None)
        self._bans[peer.key] = now + self.ban_s
        while len(self._bans) > _MAX_BANS:
            del self._bans[next(iter(self._bans))]

    def banned(self, key: str, now: float) -> bool:
        until = self._bans.get(key)
        if until is None:
            return False
        if until <= now:
            del self._bans[key]
            return False
        return True

    def answer(self, frames: list[bytes], now: float) -> list[bytes] | None:
        """A ZAP request as a ROUTER receives it → the reply's frames; None for what is not one."""
        try:
            delimiter = frames.index(b"")
            version, request_id, domain, address, _, mechanism = frames[delimiter + 1 : delimiter + 7]
        except ValueError:
            return None
        head = [*frames[: delimiter + 1], _VERSION, request_id]
        credentials = frames[delimiter + 7 :]
        peer = None
        if version == _VERSION and domain == DOMAIN:
            peer = self._peer(mechanism, address.decode("ascii", "replace"), credentials)
        refusal = self._refusal(peer, now)
        if refusal is not None:
            code, why = refusal
            key = to_z85(credentials[0]) if mechanism == b"CURVE" and list(map(len, credentials)) == [32] else None
            self.refused = Refusal(address.decode("ascii", "replace"), why, key)
            return [*head, code, why.encode(), b"", b""]
        assert peer is not None, "else it is refused"
        self._connections += 1
        metadata = _property(CONNECTION, str(self._connections))
        if peer.curve is not None:
            metadata += _property(KEY, peer.curve)
        return [*head, b"200", b"OK", peer.identity.encode(), metadata]

    def _peer(self, mechanism: bytes, address: str, credentials: list[bytes]) -> Peer | None:
        if mechanism == b"NULL":
            return peer_of(address, allow_tcp=self.allow_tcp)
        if mechanism != b"CURVE" or self.clients is None or len(credentials) != 1:
            return None
        known = self.clients.get(credentials[0])
        return None if known is None else Peer(known.identity, ban_of(known.key), known.key)

    def _refusal(self, peer: Peer | None, now: float) -> tuple[bytes, str] | None:
        if peer is None:
            return b"400", "not admitted"
        if self.full:
            return b"500", "too many connections"
        if self.banned(peer.key, now):
            return b"500", "banned for a while"
        return None


def ban_of(key: str) -> str:
    return f"key:{key}"


def _property(name: str, value: str) -> bytes:
    """One metadata property as in ZMTP 3.1: name with a 1-byte length, value with a 4-byte one."""
    n, v = name.encode(), value.encode()
    return struct.pack("B", len(n)) + n + struct.pack(">I", len(v)) + v
