"""Keys for a box under test: its own, and those of callers, made and taken away while it runs."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import zmq
from harness import Client, Daemon, Prepare, Subscriber

from edged import keyfile, keypair
from edged.keyfile import KeyFile


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pair(**metadata: Any) -> KeyFile:
    public, secret = keypair.new()
    return KeyFile(public=public, secret=secret, **metadata)


def with_key(key: KeyFile, server: str) -> Prepare:
    """Makes a socket one of the owner of `key`, for the box whose public key is `server`."""

    def prepare(sock: zmq.Socket[Any]) -> None:
        assert key.secret is not None
        sock.curve_serverkey = server.encode()
        sock.curve_publickey, sock.curve_secretkey = key.public.encode(), key.secret.encode()

    return prepare


class Keys:
    """`ADDRESS:port` for `request` and `stream`, and the files that the daemon reads."""

    def __init__(self, directory: Path, address: str = "127.0.0.1") -> None:
        self.directory = directory
        self.clients = directory / "clients"
        self.clients.mkdir(parents=True)
        self.server = pair()
        self.server_path = directory / "server.key_secret"
        self.write_server(self.server)
        self.request, self.stream = (f"tcp://{address}:{free_port()}" for _ in range(2))

    def write_server(self, key: KeyFile) -> None:
        self.server = key
        self.server_path.touch(0o600)
        self.server_path.write_text(keyfile.secret_text(key))

    def settings(self, run: Path) -> dict[str, Any]:
        """For `running`: ipc beside tcp."""
        return {
            "listen": {
                "request": [f"ipc://{run}/request.sock", self.request],
                "stream": [f"ipc://{run}/stream.sock", self.stream],
            },
            "security": {"clients_dir": str(self.clients), "server_key": str(self.server_path)},
        }

    def admit(self, file: str, key: KeyFile | None = None, **metadata: Any) -> KeyFile:
        """A key file in the daemon's directory; in force at the next reload."""
        key = key or pair(**metadata)
        (self.clients / f"{file}.key").write_text(keyfile.public_text(key))
        return key

    def remove(self, file: str) -> None:
        (self.clients / f"{file}.key").unlink()

    def client(self, box: Daemon, key: KeyFile, server: str | None = None) -> Client:
        return Client(box.context, self.request, with_key(key, server or self.server.public))

    def subscriber(self, box: Daemon, key: KeyFile, topic: str | bytes = b"") -> Subscriber:
        return Subscriber(box.context, self.stream, topic, with_key(key, self.server.public))


def apply(box: Daemon) -> dict[str, Any]:
    """The configuration and the keys are read again."""
    with box.operator() as operator:
        return operator.call(op="config", action="apply")
