"""Who is calling: the ZAP handler's rules (protocol 9; ZAP is RFC 27 of rfc.zeromq.org). Pure.

The handler runs in the daemon's loop; the sockets enforce their ZAP domain, so that nobody gets in when it does not
answer. On ipc the kernel names the peer (`localhost:UID:GID:PID`, from SO_PEERCRED): the identity is `uid:UID`. On tcp
with CURVE it is what the table of known keys says of the peer's public key, which libzmq has made sure of. On tcp
without, which the configuration must allow, it is `ip:ADDRESS`. Each connection gets a number of its own, `X-Conn`,
and its public key, `X-Key`, readable on every frame that it sends. A banned peer (on ipc a process, on tcp a key,
without keys an address) is refused.

What a peer claims in its READY is metadata too, under any name it likes: libzmq takes what it knows itself
(`Peer-Address`, the descriptor), then what ZAP says, then the peer, and the first one stands (4.3.5). So every name
that is believed anywhere is said here for every connection, empty where there is nothing to say. `Socket-Type` alone is
the peer's own word, and matters to nobody else.

Status codes: 200; 400 who is not known; 500 who is banned: a client of libzmq is told the number and does not try again
by itself. 300 who may come later (no room): it is not told, and comes back by itself.
"""

from __future__ import annotations

import re
import struct
from typing import Final, Protocol

from msgspec import Struct

from edged.keyfile import to_z85
from edged.keyring import Clients

DOMAIN: Final = b"edged"
CONTROL_DOMAIN: Final = b"edged.control"
"""What `control` enforces: who gets there is an operator."""
CONNECTION: Final = "X-Conn"
KEY: Final = "X-Key"
STRANGER: Final = "not admitted"
ADDRESS: Final = "Peer-Address"
_VERSION: Final = b"1.0"
_IPC: Final = re.compile(r"localhost:(\d+):(\d+):(\d+)\Z")


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


class Admits(Protocol):
    admitted: int
    """How many were, so far."""

    def admit(self, peer: Peer, address: str, now: float, *, operator: bool) -> tuple[bytes, str] | None:
        """None, or the ZAP status and a reason."""


class Auth:
    """Decides about connections. `clients` None: there is no CURVE. `door`: whether there is room."""

    def __init__(self, *, allow_tcp: bool, door: Admits, clients: Clients | None = None) -> None:
        self.allow_tcp = allow_tcp and clients is None
        self.clients = clients
        self._door = door
        self.refused: Refusal | None = None  # the last one

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
        where = address.decode("ascii", "replace")
        if version == _VERSION and domain in (DOMAIN, CONTROL_DOMAIN):
            peer = self._peer(mechanism, where, credentials)
        operator = domain == CONTROL_DOMAIN
        refusal = (b"400", STRANGER) if peer is None else self._door.admit(peer, where, now, operator=operator)
        if refusal is not None:
            code, why = refusal
            key = to_z85(credentials[0]) if mechanism == b"CURVE" and list(map(len, credentials)) == [32] else None
            self.refused = Refusal(where, why, key)
            return [*head, code, why.encode(), b"", b""]
        assert peer is not None, "else it is refused"
        said = {CONNECTION: str(self._door.admitted), KEY: peer.curve or "", ADDRESS: where}
        metadata = b"".join(_property(name, value) for name, value in said.items())
        return [*head, b"200", b"OK", peer.identity.encode(), metadata]

    def _peer(self, mechanism: bytes, address: str, credentials: list[bytes]) -> Peer | None:
        if mechanism == b"NULL":
            return peer_of(address, allow_tcp=self.allow_tcp)
        if mechanism != b"CURVE" or self.clients is None or len(credentials) != 1:
            return None
        known = self.clients.get(credentials[0])
        return None if known is None else Peer(known.identity, ban_of(known.key), known.key)


def ban_of(key: str) -> str:
    return f"key:{key}"


def _property(name: str, value: str) -> bytes:
    """One metadata property as in ZMTP 3.1: name with a 1-byte length, value with a 4-byte one."""
    n, v = name.encode(), value.encode()
    return struct.pack("B", len(n)) + n + struct.pack(">I", len(v)) + v
