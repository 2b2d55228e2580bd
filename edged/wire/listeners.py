"""Listening sockets made by Python: bind, chmod, listen; then given to zmq as descriptors (design 1).

Between bind and listen a Unix socket refuses connections, so nobody gets in with a mode that was not meant; a path in
use is an error and not a silent takeover; a socket whose server is gone is taken over; anything else at the path is
left alone. The directory is locked meanwhile, so that two daemons cannot take over from each other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from typing import Final

BACKLOG: Final = 512
"""Who waits to be let in: a crowd that comes back at once; the kernel caps it (net.core.somaxconn)."""
LOCK_S: Final = 5.0
"""How long to wait for another daemon that is binding in the same directory: it takes milliseconds."""


class ListenError(Exception):
    """An endpoint cannot be had; the message says why and what to do."""


class Listener:
    """One bound endpoint. The descriptor stays ours; zmq gets duplicates, of which `given` was the last."""

    def __init__(self, endpoint: str, sock: socket.socket, path: str | None) -> None:
        self.endpoint = endpoint
        self.socket = sock
        self.path = path
        self._inode = os.lstat(path).st_ino if path else 0
        self.given = -1

    def duplicate(self) -> int:
        """A descriptor for one zmq bind, which closes it."""
        self.given = os.dup(self.socket.fileno())
        return self.given

    @property
    def fd(self) -> int:
        return self.socket.fileno()

    @property
    def place(self) -> str | int:
        """What tells its connections from others': the path, or the port."""
        here = self.socket.getsockname()
        return int(here[1]) if isinstance(here, tuple) else str(here)

    def close(self) -> None:
        """Stops listening and removes the socket's file, if it still is ours."""
        if self.path:
            with contextlib.suppress(OSError):
                if os.lstat(self.path).st_ino == self._inode:
                    os.unlink(self.path)
        self.socket.close()


def listen(endpoint: str, *, mode: int, gid: int | None) -> Listener:
    """Binds `ipc:///path` (with file mode and group) or `tcp://address:port`. Raises ListenError."""
    scheme, _, rest = endpoint.partition("://")
    try:
        return _ipc(endpoint, rest, mode, gid) if scheme == "ipc" else _tcp(endpoint, rest)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ListenError(f"cannot listen on {endpoint}: {why}") from error


def _ipc(endpoint: str, path: str, mode: int, gid: int | None) -> Listener:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with _locked(os.path.dirname(path)):
            _clear(endpoint, path)
            sock.bind(path)
            if gid is not None and gid != os.lstat(path).st_gid:
                os.chown(path, -1, gid)
            os.chmod(path, mode)
            sock.listen(BACKLOG)
            return Listener(endpoint, sock, path)
    except BaseException:
        sock.close()
        raise


def _clear(endpoint: str, path: str) -> None:
    """Removes a dead socket; raises ListenError for a living one and for anything else."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenError(f"cannot listen on {endpoint}: a file that is not a socket lies there; it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        refused = probe.connect_ex(path) == errno.ECONNREFUSED
    if not refused:
        raise ListenError(f"cannot listen on {endpoint}: another daemon serves it; stop that one first")
    os.unlink(path)


def _tcp(endpoint: str, rest: str) -> Listener:
    host, _, port = rest.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("" if host == "*" else host, int(port)))
        sock.listen(BACKLOG)
        return Listener(endpoint, sock, None)
    except BaseException:
        sock.close()
        raise


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ListenError(f"{directory} is locked by another process") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)
