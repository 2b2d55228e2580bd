"""Listening sockets that systemd made and passed on (sd_listen_fds(3)).

* They are told apart by the address that they are bound to: a socket unit has one FileDescriptorName for all of its
  ListenStreams.
* They stay systemd's: never unlinked, and while this process is away connections wait in them for the next one.
* An endpoint of the configuration that was not passed is bound as ever; a socket that the configuration does not name
  is a warning, and nobody answers there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping

from edged.system.notify import library


class Activated:
    """The sockets that were passed, by endpoint."""

    def __init__(self, sockets: Iterable[socket.socket] = ()) -> None:
        self._by_endpoint: dict[str, socket.socket] = {}
        self.warnings: list[str] = []
        for sock in sockets:
            endpoint = endpoint_of(sock)
            if endpoint is None:
                self.warnings.append(
                    f"systemd passed a socket that is no listening stream (descriptor {sock.fileno()})"
                )
                continue
            sock.setblocking(
                False
            )  # they come blocking, and a peer that is gone before accept() must not be waited for
            self._by_endpoint[endpoint] = sock

    def __bool__(self) -> bool:
        return bool(self._by_endpoint)

    @property
    def endpoints(self) -> list[str]:
        return list(self._by_endpoint)

    def take(self, endpoint: str) -> socket.socket | None:
        """A descriptor of its own for this endpoint, if it was passed."""
        found = match(endpoint, self._by_endpoint)
        return None if found is None else self._by_endpoint[found].dup()

    def unknown(self, configured: Iterable[str]) -> list[str]:
        """Warnings for sockets that nobody serves."""
        served = {match(endpoint, self._by_endpoint) for endpoint in configured}
        left = [endpoint for endpoint in self._by_endpoint if endpoint not in served]
        return self.warnings + [
            f"systemd passed {endpoint}, which the configuration does not name: nobody answers there"
            for endpoint in left
        ]


def passed(environment: Mapping[str, str]) -> Activated:
    """Those of this process; afterwards the environment no longer says so. Raises MissingError."""
    if environment.get("LISTEN_PID") != str(os.getpid()) or "LISTEN_FDS" not in environment:
        return Activated()
    return Activated(socket.socket(fileno=fd) for fd in library().listen_fds(True))


def endpoint_of(sock: socket.socket) -> str | None:
    """As ZeroMQ writes it; None: not a listening stream socket with an address."""
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    address = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"ipc://{address}" if isinstance(address, str) and address else None
    if sock.family == socket.AF_INET:
        return f"tcp://{address[0]}:{address[1]}"
    return f"tcp://[{address[0]}]:{address[1]}" if sock.family == socket.AF_INET6 else None


def match(endpoint: str, known: Iterable[str]) -> str | None:
    """Which of the known ones it is. `*` is every address, as systemd binds it (IPv6 first) or IPv4 alone."""
    found = set(known)
    if endpoint in found:
        return endpoint
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or host not in ("*", "0.0.0.0", "[::]"):  # noqa: S104 - compared, not bound
        return None
    return next((one for one in (f"tcp://[::]:{port}", f"tcp://0.0.0.0:{port}") if one in found), None)
