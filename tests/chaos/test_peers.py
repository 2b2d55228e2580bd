"""Long sieges on ipc and tcp (faults 16 and 19, floods, storms): what a good client sees beside them, in A B B A order.

A is undisturbed, B under attack; `EDGED_SIEGE_S` seconds each (2.5, for 10 s an attack). Each prints what it saw. The
limits here allow for a machine that others use too; bench/run_peers.py measures.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacker import message, shake
from harness import Client, Daemon, running, until
from siege import ATTACKS, Good, Siege, attack, castle, free_ports

SECONDS = float(os.environ.get("EDGED_SIEGE_S", "2.5"))
NOISE_MS = 40.0
"""The attacker is a process too, and there may be two cores. A flood has five seconds until it counts as one, and a
turn that reads a thousand of its frames takes ten milliseconds and more."""


@pytest.mark.parametrize("wall", ["ipc", "tcp"])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_good_client_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, wall: str) -> None:
    if wall == "ipc" and os.geteuid() != 0:
        pytest.skip("an attacker of another uid takes root")
    with castle(tmp_path, wall) as box:
        seen = Siege(box, name.partition(" ")[0], ATTACKS[name], SECONDS).run()
        with capsys.disabled():
            sys.stdout.write(f"\n  {wall} {name}: {seen}\n")
    assert seen.faults == []
    assert seen.besieged <= 2 * seen.calm + NOISE_MS
    assert seen.memory_after <= seen.memory_before * 1.1 + 1000
    assert seen.descriptors_after <= seen.descriptors_before + 4


def test_the_daemon_was_the_same_all_the_time(tmp_path: Path) -> None:
    """All attacks at once."""
    if os.geteuid() != 0:
        pytest.skip("an attacker of another uid takes root")
    with castle(tmp_path) as box, Good(box) as good:
        pid = box.pid
        with contextlib.ExitStack() as stack:
            for uid, (name, options) in enumerate(ATTACKS.items()):
                stack.enter_context(attack(box, name.partition(" ")[0], uid=60_000 + uid, **options))
            time.sleep(4 * SECONDS)
        until(lambda: len(good.mark()) > 20, "answers")
        assert good.faults == []
        assert box.pid == pid
        assert "bugs" not in box.counters()


def test_a_peer_far_away_that_takes_nothing_is_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its kernel acknowledges and its program does not read (it is stopped): TCP_USER_TIMEOUT, and then the grace."""
    limits = {"drain_s": 0.2, "orphan_grace_ms": 200}
    with castle(tmp_path, "tcp", limits=limits) as box, shake(box.endpoint("request")) as frozen:
        prompt = f"n=4000 delay=0.01 word={'x' * 4000}"
        body = {"op": "generate", "id": "f", "prompt": prompt, "max_tokens": 4000, "stream": "reply"}
        frozen.sendall(message(b"", json.dumps(body).encode()))
        until(lambda: frozen.recv(1000), "the ticket")
        begun = time.monotonic()
        until(lambda: box.counters().get("finished_cancelled") == 1, "its end, and not because the text is whole")
        took = time.monotonic() - begun
        assert took <= 6 + 2 + 0.2 + 3, "what it takes to fill its buffer, timeout, grace, and the machine's share"
        with capsys.disabled():
            sys.stdout.write(f"\n  a stopped peer: given up after {took:.1f} s\n")
        with Client(box.context, box.tcp["request"]) as good:
            assert good.call(op="ping")["ok"]


# ---- fault 19: a cable is pulled -------------------------------------------------------------------------------


class Cable:
    """Two network namespaces and a cable between them."""

    def __init__(self) -> None:
        self.names = [f"siege{os.getpid()}{end}" for end in "ab"]
        self.addresses = ["10.98.7.1", "10.98.7.2"]
        a, b = self.names
        for name in self.names:
            self._ip("netns", "add", name)
        self._ip("link", "add", "siegea", "netns", a, "type", "veth", "peer", "name", "siegeb", "netns", b)
        for name, link, address in zip(self.names, ("siegea", "siegeb"), self.addresses, strict=True):
            self._ip("-n", name, "address", "add", f"{address}/24", "dev", link)
            self._ip("-n", name, "link", "set", link, "up")
            self._ip("-n", name, "link", "set", "lo", "up")

    def pull(self) -> None:
        """At the client's end of a switch: the daemon's interface stays up and is told nothing."""
        drop = ["iptables", "-A", "INPUT", "-i", "siegea", "-j", "DROP"]
        done = subprocess.run(["ip", "netns", "exec", self.names[0], *drop], check=False, capture_output=True)
        if done.returncode:
            self._ip("-n", self.names[1], "link", "set", "siegeb", "down")

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces take root and iproute2")
    try:
        one = Cable()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    yield one
    one.close()


FAR = """
import json, sys, zmq
dealer = zmq.Context().socket(zmq.DEALER)
dealer.connect(sys.argv[1])
dealer.send_multipart([b"", json.dumps({"op": "generate", "id": "far", "prompt": "n=4000 delay=0.01",
                                        "max_tokens": 4000, "stream": "reply"}).encode()])
while True:
    dealer.recv_multipart()
    print("heard", flush=True)
"""


def test_a_pulled_cable_is_noticed_and_the_slot_is_free(
    tmp_path: Path, cable: Cable, capsys: pytest.CaptureFixture[str]
) -> None:
    request, stream = free_ports(2)
    run, here = tmp_path / "run", cable.addresses[0]
    listen = {
        name: [f"ipc://{run}/{name}.sock", f"tcp://{here}:{port}"]
        for name, port in (("request", request), ("stream", stream))
    }
    box = Daemon(
        tmp_path, listen=listen, security={"allow_insecure_tcp": True}, limits={"drain_s": 0.2, "orphan_grace_ms": 1000}
    )
    inside = ["ip", "netns", "exec", cable.names[1]]
    try:
        box.start(before=("ip", "netns", "exec", cable.names[0]))
        far = subprocess.Popen(
            [*inside, sys.executable, "-c", FAR, f"tcp://{here}:{request}"], stdout=subprocess.PIPE, text=True
        )
        assert far.stdout.readline() == "heard\n"
        box.wait_status(lambda s: s["slots"]["busy"], "work")
        cable.pull()
        begun = time.monotonic()
        box.wait_status(lambda s: s["counters"].get("finished_cancelled") and not s["slots"]["busy"], "the cancel")
        took = time.monotonic() - begun
        with capsys.disabled():
            sys.stdout.write(f"\n  cable pulled: slot free after {took:.1f} s\n")
        assert took <= 6 + 2 + 1 + 3, "heartbeat timeout, interval, grace, and the machine's share"
        with box.client() as client:
            assert client.call(op="generate", prompt="n=1")["ok"]
            assert client.call(op="status")["connections"]["request"] == 1
        far.kill()
        far.wait()
        far.stdout.close()
        box.context.destroy(linger=0)
        assert box.stop() == 0
    finally:
        box.close()


def test_a_crowd_larger_than_the_limits_is_served_in_turn(tmp_path: Path) -> None:
    """Sixty clients of one caller, twenty places: who is turned away comes in when somebody leaves."""
    limits = {"drain_s": 0.2, "connections": 20, "connections_per_identity": 20}
    with running(tmp_path, limits=limits) as box:
        waiting = [box.client() for _ in range(60)]
        for client in waiting:
            client.ask(op="ping")
        end = time.monotonic() + 90
        while waiting and time.monotonic() < end:
            served = [client for client in waiting if client.socket.poll(0)]
            for client in served:
                client.close()
            waiting = [client for client in waiting if client not in served]
            time.sleep(0.05)
        assert waiting == []
