"""`edgectl doctor` and sockets that systemd holds: what is stopped stays stopped, and the advice fits."""

from __future__ import annotations

import contextlib
import socket

import pytest

from edged import config, doctor
from edged.doctor import box, manager, ports, service
from edged.places import SOCKETS_AFRESH

SHOW = """\
Id=edged.service
ActiveState={service}
LoadState=loaded

Listen=/run/edged/request.sock (Stream)
Listen=/run/edged/stream.sock (Stream)
Listen=[::]:5555 (Stream)
Id=edged.socket
ActiveState={sockets}
LoadState=loaded

Listen=/run/edged/control.sock (Stream)
Id=edged-control.socket
ActiveState={sockets}
LoadState=loaded
"""


def held(active: str, sockets: str) -> manager.Held:
    return manager.by_systemd(manager.parsed(SHOW.format(service=active, sockets=sockets)))


def test_what_systemd_holds():
    stopped = held("inactive", "active")
    ends = ["ipc:///run/edged/request.sock", "ipc:///run/edged/control.sock", "tcp://*:5555", "tcp://10.0.0.1:5555"]
    assert all(stopped.asleep(end) for end in ends)
    assert not any(stopped.asleep(end) for end in ("ipc:///tmp/request.sock", "tcp://*:5556"))
    assert held("failed", "active").asleep("/run/edged/request.sock")
    for runs in (held("active", "active"), held("activating", "active"), held("reloading", "active")):
        assert runs.has("/run/edged/stream.sock")
        assert not runs.asleep("/run/edged/stream.sock")
    down = held("inactive", "inactive")
    assert not down.has("/run/edged/request.sock")
    assert down.stopped == manager.SOCKETS


def test_what_systemd_holds_by_its_files(tmp_path):
    """Where it does not answer."""
    unit = tmp_path / "etc/systemd/system/edged.socket"
    (tmp_path / "etc/systemd/system/edged.socket.d").mkdir(parents=True)
    unit.write_text("[Socket]\nListenStream=/run/edged/request.sock\n")
    (unit.parent / "edged.socket.d/tcp.conf").write_text("[Socket]\nListenStream=5555\n")
    found = manager.by_files(str(tmp_path))
    assert found.asleep("ipc:///run/edged/request.sock")
    assert found.asleep("tcp://0.0.0.0:5555")
    group = tmp_path / "sys/fs/cgroup/system.slice/edged.service"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("4711\n")
    assert not manager.by_files(str(tmp_path)).asleep("ipc:///run/edged/request.sock")


def test_what_is_stopped_is_not_connected_to(tmp_path, monkeypatch):
    """A connection would start it. The socket is a real one, in systemd's place."""
    ends = [tmp_path / f"{name}.sock" for name in ("request", "stream", "control")]
    waiting = manager.Held(frozenset(map(str, ends)), runs=False)
    monkeypatch.setattr(manager, "held", lambda _: waiting)
    settings = config.parse({"runtime_dir": str(tmp_path)}, "test")
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in ends]
        for one, end in zip(listening, ends, strict=True):
            one.bind(str(end))
            one.listen()
            one.setblocking(False)
        found = {one.check: one for one in doctor.run(settings)}
        for one in listening:
            with pytest.raises(BlockingIOError):
                one.accept()
    assert found["service"].what == box.STOPPED
    assert found["ports"].what == "systemd listens for the service; nobody else has a port of it"


def test_a_socket_file_that_was_removed():
    """Both checks say the same steps."""
    gone = ports.Port("listen.request", "ipc:///run/edged/request.sock", None, gone=True, held=True)
    assert ports.judge([gone], None, answers=False)[0].do == SOCKETS_AFRESH
    assert service.judge_service("there is no socket", installed=True, removed=True)[0].do == SOCKETS_AFRESH
    hidden = service.judge_service("no permission for /run/edged/request.sock", installed=True, removed=True)
    assert hidden[0].severity == "unknown"


def test_socket_units_that_were_stopped():
    left = ports.Port("listen.request", "ipc:///run/edged/request.sock", None, left=True)
    found = ports.judge([left], None, answers=False, stopped=("edged.socket", "edged-control.socket"))
    assert found[0].why == "stopped: edged.socket and edged-control.socket"
    assert found[0].do == "sudo systemctl start edged"
    assert "was killed" in ports.judge([left], None, answers=False)[0].why


def test_a_port_that_systemd_holds_is_the_services():
    """Its socket is root's, whoever the service is."""
    port = ports.Port("listen.request", "tcp://*:5555", 0, "systemd (1)", held=True)
    assert ports.judge([port], 990, answers=True)[0].severity == "ok"
