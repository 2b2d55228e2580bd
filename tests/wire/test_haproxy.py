"""deploy/haproxy/haproxy.cfg with a real HAProxy before two boxes with keys of their own. Its addresses are moved to
the loopback net; its times are kept.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import TESTS, Daemon, until
from keys import Keys, pair

from edged.client import Anew, Client, NotAdmitted, Pace, Unavailable
from edged.keyfile import KeyFile

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed (apt-get install haproxy)")
CONFIG = TESTS.parent / "deploy/haproxy/haproxy.cfg"
PACE = Pace(first_try_s=2.0, silence_s=2.0)
LIMITS = {"drain_s": 0.2, "orphan_grace_ms": 5000}


class Site:
    """Two boxes and the proxy. `instance` tells boxes apart."""

    def __init__(self, directory: Path, net: str) -> None:
        self.net, self.directory = net, directory
        self.ada: KeyFile = pair(name="ada")
        self.boxes: list[Daemon] = []
        self.keys: list[Keys] = []
        for name, host in (("box-1", 11), ("box-2", 12)):
            keys = Keys(directory / f"{name} keys")
            keys.request, keys.stream = (f"tcp://{net}.{host}:{port}" for port in (5555, 5556))
            keys.admit("ada", self.ada)
            run = directory / name / "run"
            self.keys.append(keys)
            self.boxes.append(Daemon(directory / name, limits=LIMITS, **keys.settings(run)))
        text = CONFIG.read_text().replace("192.0.2.", f"{net}.").replace("/run/haproxy/", f"{directory}/")
        (directory / "haproxy.cfg").write_text(text)
        self.log = directory / "haproxy.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for box in self.boxes:
            box.start()
        assert HAPROXY is not None
        with self.log.open("wb") as log:
            command = [HAPROXY, "-db", "-f", str(self.directory / "haproxy.cfg")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: self.states() == {"box-1": "UP", "box-2": "UP"}, "the proxy and its checks")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for box in self.boxes:
            box.close()

    def runtime(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.directory / "admin.sock"))
            admin.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: admin.recv(65_536), b"")).decode()

    def states(self) -> dict[str, str]:
        try:
            rows = self.runtime("show stat").splitlines()
        except OSError:
            return {}
        names = rows[0].removeprefix("# ").split(",")
        found = [dict(zip(names, row.split(","), strict=False)) for row in rows[1:] if row]
        return {
            row["svname"]: row["status"].split()[0]
            for row in found
            if row["pxname"] == "edged_request" and row["svname"].startswith("box")
        }

    def client(self, device: int, **more: Any) -> Client:
        """A device with an address of its own that knows the keys of both boxes."""
        endpoint = f"tcp://{self.net}.{device}:0;{self.net}.10:5555"
        known = [keys.server.public for keys in self.keys]
        return Client(endpoint, key=self.ada.secret, server_key=known, pace=PACE, **more)

    def instances_of(self, box: Daemon) -> str:
        return Client(box.request_endpoint).ping().instance

    def instances(self) -> dict[str, Daemon]:
        return {self.instances_of(box): box for box in self.boxes}

    def device_at(self, box: Daemon) -> Client:
        """A device whose box this is."""
        known = self.instances()
        for device in range(100, 120):
            client = self.client(device)
            if known[client.ping().instance] is box:
                return client
        raise AssertionError("all are at the other box")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site"), f"127.{60 + os.getpid() % 100}.{os.getpid() // 100 % 250}")
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.fixture(autouse=True)
def both_up(site: Site) -> Iterator[None]:
    yield
    for box, name in zip(site.boxes, ("box-1", "box-2"), strict=True):
        site.runtime(f"set server edged_request/{name} state ready")
        site.runtime(f"set server edged_stream/{name} state ready")
        if box.process is None or box.process.poll() is not None:
            box.start()
        with box.operator() as operator:
            operator.call(op="resume")
    until(lambda: site.states() == {"box-1": "UP", "box-2": "UP"}, "both are up again")


def test_devices_are_spread_and_each_stays(site: Site) -> None:
    asked = {device: [site.client(device).generate("n=1").instance for _ in range(3)] for device in range(20, 32)}
    assert all(len(set(instances)) == 1 for instances in asked.values())
    per_box = Counter(instances[0] for instances in asked.values())
    assert min(per_box.values()) >= 3
    assert set(per_box) == set(site.instances())


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_streams_are_where_the_requests_are(site: Site, mode: str) -> None:
    for device in range(40, 46):
        with site.client(device).stream("n=20 delay=0.01", mode=mode) as stream:
            assert "".join(stream) == stream.result.text == "".join(f"t{n} " for n in range(20))
        assert site.client(device).result(stream.id).text == stream.text


def test_a_quick_restart_keeps_the_stream(site: Site) -> None:
    box = site.boxes[0]
    with site.device_at(box).stream("n=150 delay=0.03", max_tokens=150, deadline_s=60) as stream:
        next(stream)
        box.stop(signal.SIGKILL)
        box.start(ready=False)
        text = "t0 " + "".join(stream)
    assert stream.run == 1
    assert text == stream.result.text == "".join(f"t{n} " for n in range(150))


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_a_box_that_stays_away_is_left_and_the_text_begins_anew(site: Site, mode: str) -> None:
    dead, other = site.boxes
    edged = site.device_at(dead)
    with edged.stream("n=200 delay=0.02", max_tokens=200, mode=mode, deadline_s=60) as stream:
        next(stream)
        dead.stop(signal.SIGKILL)
        events = list(stream.events())
    assert any(isinstance(event, Anew) for event in events)
    assert stream.result.text == "".join(f"t{n} " for n in range(200))
    assert site.instances_of(other) == stream.result.instance
    assert edged.generate("n=2").text == "t0 t1 "


def test_a_drained_box_refuses_until_the_proxy_is_told(site: Site) -> None:
    """HAProxy does not read what a box says. Who is streaming goes on; new requests go elsewhere once it is told."""
    drained, other = site.boxes
    edged = site.device_at(drained)
    with edged.stream("n=100 delay=0.05", max_tokens=100, deadline_s=60) as stream:
        next(stream)
        with drained.operator() as operator:
            operator.call(op="drain")
        with pytest.raises(Unavailable, match="draining"):
            edged.generate("n=1", retry=False)
        for backend in ("edged_request", "edged_stream"):
            site.runtime(f"set server {backend}/box-1 state drain")
        site.runtime("clear table edged_request data.server_id eq 1")
        assert edged.generate("n=1", deadline_s=20).instance == site.instances_of(other)
        assert stream.result.text == "".join(f"t{n} " for n in range(100))
        assert stream.run == 1


def test_a_request_that_is_silent_for_long_and_another_in_the_meantime(site: Site) -> None:
    edged = site.device_at(site.boxes[0])
    answers: list[str] = []
    long = threading.Thread(target=lambda: answers.append(edged.generate("n=1 delay=9", deadline_s=60).text))
    long.start()
    assert edged.generate("n=2", deadline_s=60).text
    long.join()
    assert answers == ["t0 "]


def test_who_knocks_without_a_key_is_told_and_the_boxes_go_on(site: Site) -> None:
    stranger = Client(
        f"tcp://{site.net}.99:0;{site.net}.10:5555",
        key=pair().secret,
        server_key=[keys.server.public for keys in site.keys],
        pace=PACE,
    )
    with pytest.raises(NotAdmitted):
        stranger.generate("n=1", deadline_s=5)
    assert site.client(50).generate("n=1").text == "t0 "
    assert site.states() == {"box-1": "UP", "box-2": "UP"}


def test_the_checks_leave_no_trace_at_the_boxes(site: Site) -> None:
    for box in site.boxes:
        with box.client() as client:
            status = client.call(op="status")
        assert status["warnings"] == []
        assert "banned" not in box.log.read_text()
