"""Sockets that systemd passed: which endpoint each is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from edged.system.notify import ping_interval
from edged.wire.activation import Activated, endpoint_of, match, passed


def unix(path: Path, *, listen: bool = True) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    if listen:
        sock.listen()
    return sock


def test_the_address_is_the_name(tmp_path: Path):
    with unix(tmp_path / "request.sock") as sock:
        assert endpoint_of(sock) == f"ipc://{tmp_path}/request.sock"
    with socket.create_server(("127.0.0.1", 0)) as sock:
        assert endpoint_of(sock) == f"tcp://127.0.0.1:{sock.getsockname()[1]}"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as sock:
        assert endpoint_of(sock) == f"tcp://[::1]:{sock.getsockname()[1]}"


def test_what_does_not_listen_is_warned_of(tmp_path: Path):
    with unix(tmp_path / "a", listen=False) as quiet, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        activated = Activated([quiet, datagrams])
        assert not activated
        assert len(activated.unknown([])) == 2


@pytest.mark.parametrize(
    ("endpoint", "known", "found"),
    [
        ("ipc:///run/a", ["ipc:///run/a", "ipc:///run/b"], "ipc:///run/a"),
        ("ipc:///run/a", ["ipc:///run/b"], None),
        ("tcp://*:5555", ["tcp://[::]:5555"], "tcp://[::]:5555"),
        ("tcp://*:5555", ["tcp://0.0.0.0:5555"], "tcp://0.0.0.0:5555"),
        ("tcp://0.0.0.0:5555", ["tcp://[::]:5555"], "tcp://[::]:5555"),
        ("tcp://*:5555", ["tcp://[::]:5556", "tcp://127.0.0.1:5555"], None),
        ("tcp://127.0.0.1:5555", ["tcp://[::]:5555"], None),
        ("tcp://127.0.0.1:5555", ["tcp://127.0.0.1:5555"], "tcp://127.0.0.1:5555"),
    ],
)
def test_matching(endpoint: str, known: list[str], found: str | None):
    assert match(endpoint, known) == found


def test_taken_is_a_duplicate_that_does_not_wait(tmp_path: Path):
    with unix(tmp_path / "a") as sock:
        sock.setblocking(True)
        activated = Activated([sock])
        taken = activated.take(f"ipc://{tmp_path}/a")
        assert taken is not None
        assert not os.get_blocking(taken.fileno())
        assert not os.get_inheritable(taken.fileno())
        taken.close()
        again = activated.take(f"ipc://{tmp_path}/a")  # as often as wanted
        assert again is not None
        again.close()
        assert activated.take("ipc:///elsewhere") is None
        assert activated.unknown(["ipc:///elsewhere"]) != []
        assert activated.unknown([f"ipc://{tmp_path}/a"]) == []


def test_somebody_elses_sockets_are_not_ours():
    assert not passed({})
    assert not passed({"LISTEN_FDS": "2", "LISTEN_PID": str(os.getpid() + 1)})
    assert not passed({"LISTEN_FDS": "2"})


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
    ],
)
def test_how_often_systemd_wants_a_sign(environment: dict[str, str], seconds: float | None):
    assert ping_interval(environment, 7) == seconds
