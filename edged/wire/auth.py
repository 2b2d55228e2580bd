"""Who is calling: the ZAP handler's rules (protocol 9; ZAP is RFC 27 of rfc.zeromq.org). Pure but for a counter.

The handler runs in the daemon's loop; the sockets enforce their ZAP domain, so that nobody gets in when it does not
answer. On ipc the kernel names the peer (`localhost:UID:GID:PID`, from SO_PEERCRED): the identity is `uid:UID`. On tcp
without CURVE, which the configuration must allow, it is `ip:ADDRESS`. Each connection gets a number of its own,
`X-Conn`, readable on every frame that it sends. A banned peer (on ipc a process, on tcp an address) is refused.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from msgspec import Struct

DOMAIN: Final = b"edged"
CONNECTION: Final = "X-Conn"
_VERSION: Final = b"1.0"
_IPC: Final = re.compile(r"localhost:(\d+):(\d+):(\d+)\Z")
_MAX_BANS: Final = 1024
"""Beyond this the oldest ban is lifted: memory is bounded."""


class Peer(Struct, frozen=True):
    """`identity` owns requests; `key` is what a ban names."""

    identity: str
    key: str


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
    """Decides about connections. `ban_s` 0: nobody is banned."""

    def __init__(self, *, allow_tcp: bool, ban_s: float) -> None:
        self.allow_tcp = allow_tcp
        self.ban_s = ban_s
        self.full = False  # nobody more is let in
        self._connections = 0
        self._bans: dict[str, float] = {}

    def ban(self, address: str, now: float) -> None:
        peer = peer_of(address, allow_tcp=True)
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
        peer = peer_of(address.decode("ascii", "replace"), allow_tcp=self.allow_tcp)
        if version != _VERSION or domain != DOMAIN or mechanism != b"NULL" or peer is None:
            return [*head, b"400", b"not admitted", b"", b""]
        if self.full:
            return [*head, b"400", b"too many connections", b"", b""]
        if self.banned(peer.key, now):
            return [*head, b"400", b"banned for a while", b"", b""]
        self._connections += 1
        metadata = _property(CONNECTION, str(self._connections))
        return [*head, b"200", b"OK", peer.identity.encode(), metadata]


def _property(name: str, value: str) -> bytes:
    """One metadata property as in ZMTP 3.1: name with a 1-byte length, value with a 4-byte one."""
    n, v = name.encode(), value.encode()
    return struct.pack("B", len(n)) + n + struct.pack(">I", len(v)) + v
