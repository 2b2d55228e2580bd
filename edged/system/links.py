"""The connections of this process as the kernel knows them: who is at the other end, what waits, and cutting one.

libzmq tells neither how many connections there are nor lets anybody close one of them. The kernel does: every open
descriptor can be asked which listener it came from (getsockname) and who is behind it (SO_PEERCRED, getpeername), and
shutdown(2) on a duplicate ends a connection for libzmq exactly as if the peer had gone. A descriptor's number is used
again, a socket's inode is not: what is cut is looked at once more through the duplicate, which cannot change hands.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
import termios
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

FDS: Final = "/proc/self/fd"
_UCRED: Final = struct.Struct("iII")

Place = str | int
"""Where a listener is: the path of a Unix socket, the port of a tcp one."""


class Link(Struct, frozen=True):
    """`name`: the socket it belongs to; `address`: its peer, as ZAP and `Peer-Address` write it."""

    fd: int
    inode: int
    name: str
    address: str
    since: float


class Links:
    """`places`: listeners, and the socket that each is for. Connections are asked once and then known by inode."""

    def __init__(self, places: Mapping[Place, str]) -> None:
        self._places = dict(places)
        self._known: dict[int, tuple[int, Link | None]] = {}

    def look(self, now: float) -> list[Link]:
        """All connections, in no order. About a microsecond or two for each open descriptor."""
        found, known = [], {}
        for name in os.listdir(FDS):
            fd = int(name)
            try:
                inode = _inode(fd)
            except OSError:
                continue
            if not inode:
                continue
            entry = self._known.get(fd)
            if entry is None or entry[0] != inode:
                entry = inode, self._ask(fd, inode, now)
            known[fd] = entry
            if entry[1] is not None:
                found.append(entry[1])
        self._known = known
        return found

    def _ask(self, fd: int, inode: int, now: float) -> Link | None:
        try:
            with duplicate(fd) as sock:
                if _inode(sock.fileno()) != inode or sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    return None
                here = sock.getsockname()
                name = self._places.get(here[1] if isinstance(here, tuple) else here)
                return Link(fd, inode, name, _peer(sock), now) if name is not None else None
        except OSError:
            return None


def duplicate(fd: int) -> socket.socket:
    """Another descriptor of the same socket. Raises OSError where it is none."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _peer(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return f"localhost:{uid}:{gid}:{pid}"
    return str(sock.getpeername()[0])


def _inode(fd: int) -> int:
    """0: not a socket."""
    found = os.fstat(fd)
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def cut(link: Link) -> bool:
    """Ends a connection; False: it had ended already."""
    try:
        with duplicate(link.fd) as sock:
            if _inode(sock.fileno()) != link.inode:
                return False
            if sock.family != socket.AF_UNIX:  # a reset when libzmq closes it: nothing of it is left in the kernel
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False


def unread(fd: int) -> int:
    """Bytes that the peer sent and libzmq has not read yet."""
    return _queued(fd, termios.FIONREAD)


def unsent(fd: int) -> int:
    """Bytes that libzmq sent and the peer has not taken yet (unix(7) and tcp(7), SIOCOUTQ)."""
    return _queued(fd, termios.TIOCOUTQ)


def keeps_up(fd: int) -> bool:
    """Whether the peer reads what it is sent: as long as libzmq holds something back, the kernel's buffer is full.

    A quarter, since on tcp the buffer's size counts what each packet takes and not what it carries. Where there is no
    connection any more nothing is held back either: libzmq is to be asked, which says that the peer is gone.
    """
    try:
        with duplicate(fd) as sock:
            return 4 * unsent(sock.fileno()) < sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    except OSError as error:
        return error.errno in (errno.EBADF, errno.ENOTSOCK)


def _queued(fd: int, what: int) -> int:
    try:
        return int(struct.unpack("i", fcntl.ioctl(fd, what, b"\0\0\0\0"))[0])
    except OSError:
        return 0
