"""Peers kept from connecting at all, by the kernel: on ipc a user (acl(5) of the socket's file), on tcp an address (a
socket(7) filter of the listener, which drops its SYN).

What reaches libzmq costs an accept, a handshake object and a descriptor, whatever is decided then. A peer that
connects anew as fast as it is turned away takes a core that way, and nothing in libzmq stops it. Connections that
exist are not touched. The file's owner and root cannot be barred on ipc (they are the daemon's own user, or above any
rule), and where the file is not ours, or its file system knows no ACL, nobody can: `bar` says so.

The programs are classic BPF, six instructions for an IPv4 address and twelve for an IPv6 one.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from typing import Final

MOST: Final = 16
"""Barred at a time, of each kind; the longest barred is let go first."""

_ACL: Final = "system.posix_acl_access"
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY: Final = 0xFFFFFFFF

_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_NET: Final = 0xFFF00000
"""SKF_NET_OFF: offsets from the beginning of the IP header."""
_LOAD, _LOAD_BYTE, _AND, _EQUAL, _RETURN = 0x20, 0x30, 0x54, 0x15, 0x06


class Barrier:
    """`paths`: files of Unix listeners; `listeners`: tcp ones."""

    def __init__(self, paths: Iterable[str], listeners: Iterable[socket.socket]) -> None:
        self._paths, self._listeners = list(paths), list(listeners)
        self._until: dict[str, float] = {}
        self._set_users()  # what an earlier daemon left

    def bar(self, identity: str, until: float) -> bool:
        """`uid:N` or `ip:ADDRESS`. False: it cannot be done."""
        self._until.pop(identity, None)
        self._until[identity] = until
        kind = identity[:3]
        mine = [name for name in self._until if name.startswith(kind)]
        if len(mine) > MOST:
            del self._until[mine[0]]
        return self._apply(kind)

    def lift(self, now: float) -> None:
        """Lets go whose time is over."""
        over = [name for name, until in self._until.items() if until <= now]
        for name in over:
            del self._until[name]
        for kind in {name[:3] for name in over}:
            self._apply(kind)

    def lift_all(self) -> None:
        if self._until:
            self.lift(float("inf"))

    def _apply(self, kind: str) -> bool:
        return self._set_users() if kind == "uid" else self._set_addresses()

    def _set_users(self) -> bool:
        users = sorted(int(name[4:]) for name in self._until if name.startswith("uid:"))
        done = False
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.setxattr(path, _ACL, acl(stat.S_IMODE(os.lstat(path).st_mode), users), follow_symlinks=False)
                done = True
        return done

    def _set_addresses(self) -> bool:
        names = [name[3:] for name in self._until if name.startswith("ip:")]
        code = program([ipaddress.ip_address(name.partition("%")[0]) for name in names])
        done = False
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                if names:
                    buffer = ctypes.create_string_buffer(code)
                    head = struct.pack("HL", len(code) // 8, ctypes.addressof(buffer))  # struct sock_fprog
                    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
                else:
                    listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
                done = True
        return done


def acl(mode: int, users: Sequence[int]) -> bytes:
    """The mode as it is, and nothing for these users (linux/posix_acl_xattr.h); without users just the mode."""
    group = mode >> 3 & 7
    rows = [(_OWNER, mode >> 6 & 7, _NOBODY), *((_USER, 0, user) for user in users), (_GROUP, group, _NOBODY)]
    if users:
        rows.append((_MASK, group, _NOBODY))
    rows.append((_OTHER, mode & 7, _NOBODY))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)


def program(addresses: Iterable[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bytes:
    """Drops packets that come from these, lets all others through."""
    code: list[tuple[int, int, int, int]] = []
    for address in addresses:
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        code += _block(mapped or address)
    code.append((_RETURN, 0, 0, 0xFFFFFFFF))
    return b"".join(struct.pack("HBBI", *one) for one in code)


def _block(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[tuple[int, int, int, int]]:
    """Returns 0 for this source; else goes on behind itself."""
    words = struct.unpack(f">{len(address.packed) // 4}I", address.packed)
    at = _NET + (12 if address.version == 4 else 8)
    code = [(_LOAD_BYTE, 0, 0, _NET), (_AND, 0, 0, 0xF0), (_EQUAL, 0, 2 * len(words) + 1, address.version << 4)]
    for index, word in enumerate(words):
        code += [(_LOAD, 0, 0, at + 4 * index), (_EQUAL, 0, 2 * (len(words) - index) - 1, word)]
    return [*code, (_RETURN, 0, 0, 0)]
