"""A box and its devices in two network namespaces, CURVE between them: who gets in, what is whose, keys that end in
mid-stream, a cable that is pulled."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from harness import TESTS, Client, Daemon, Prepare, Subscriber, until
from keys import Keys, apply, pair, with_key
from netns import BOX, Cable, cable, why_not

from edged import keyfile

SILENT_MS = 700
HEARTBEAT_S = 6.0
"""HEARTBEAT_TIMEOUT of edged.wire.sockets."""
GRACE_S = 1.0
LONG = {"op": "generate", "prompt": "n=4000 delay=0.01", "stream": True, "max_tokens": 4000}


class Site:
    """What the tests have: the cable, the keys, the daemon at one end and sockets at the other."""

    def __init__(self, line: Cable, keys: Keys, box: Daemon, context: zmq.Context) -> None:
        self.line, self.keys, self.box, self.context = line, keys, box, context

    def client(self, key: keyfile.KeyFile, server: str | None = None) -> Client:
        return Client(self.context, self.keys.request, with_key(key, server or self.keys.server.public))

    def subscriber(self, key: keyfile.KeyFile, topic: str | bytes) -> Subscriber:
        return Subscriber(self.context, self.keys.stream, topic, with_key(key, self.keys.server.public))

    def refused(self, prepare: Prepare | None) -> bool:
        with Client(self.context, self.keys.request, prepare) as one:
            one.ask(op="ping")
            return not one.socket.poll(SILENT_MS)

    def running(self) -> list[str]:
        with self.box.operator() as operator:
            return sorted(row["id"] for row in operator.call(op="requests")["requests"])


@pytest.fixture(scope="module")
def line() -> Iterator[Cable]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with cable() as one:
        yield one


@pytest.fixture
def site(tmp_path: Path, line: Cable) -> Iterator[Site]:
    keys = Keys(tmp_path / "keys", BOX)
    keys.ada, keys.bob = keys.admit("ada", name="ada"), keys.admit("bob", name="bob")
    limits = {"drain_s": 0.2, "orphan_grace_ms": round(1000 * GRACE_S)}
    box = Daemon(tmp_path / "box", limits=limits, **keys.settings(tmp_path / "box/run"))
    context = line.context()
    try:
        yield Site(line, keys, box.start(before=("ip", "netns", "exec", line.box)), context)
        context.destroy(linger=0)
        assert box.stop() == 0, box.log.read_text()
    finally:
        context.destroy(linger=0)
        box.close()


def test_who_gets_in(site: Site) -> None:
    keys = site.keys
    with site.client(keys.ada) as ada:
        assert ada.call(op="generate", prompt="n=2")["text"] == "t0 t1 "
    assert site.refused(with_key(pair(), keys.server.public)), "an unknown key"
    assert site.refused(with_key(keys.ada, pair().public)), "a wrong server key"
    assert site.refused(None), "NULL"
    device = keys.directory / "ada.key_secret"
    device.touch(0o600)
    device.write_text(keyfile.secret_text(keys.ada))
    command = ["ip", "netns", "exec", site.line.device, sys.executable, "-m", "edged.cli.main"]
    command += ["--endpoint", keys.request, "--key", str(device), "--server-key", keys.server.public]
    done = subprocess.run([*command, "ask", "n=3"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "t0 t1 t2 \n"), done.stderr


def test_nothing_of_a_is_b_s(site: Site) -> None:
    keys = site.keys
    with site.client(keys.ada) as ada, site.client(keys.bob) as bob:
        ticket = ada.call(**LONG, id="r")
        kept = ada.call(op="generate", prompt="n=2", id="kept")
        with site.subscriber(keys.ada, ticket["topic"]) as own, site.subscriber(keys.bob, ticket["topic"]) as other:
            assert own.receive()["type"] == "snapshot"
            for op in ("result", "cancel"):
                for name in ("r", "kept"):
                    assert bob.call(op=op, id=name)["error"]["code"] == "not_found"
            assert bob.call(op="cancel", id="r", identity="name:ada")["error"]["code"] in ("forbidden", "bad_request")
            assert bob.call(op="generate", prompt="n=3", id="m", supersedes="r")["ok"]
            assert bob.call(op="generate", prompt="n=3", id="kept")["text"] != kept["text"]
            attached = list(bob.stream(prompt="n=4", id="r"))
            assert attached[-1]["text"] == "t0 t1 t2 t3 ", "its own request of that id"
            for topic in (b"", b"tok/", ticket["topic"][:-1]):
                other.subscribe(topic)
            assert other.silent()
            other.close()
            time.sleep(2 * GRACE_S)
            assert own.receive()["id"] == "r", "nor was it ended by the stranger's leaving"
            assert site.running() == ["r"]


def test_a_key_revoked_in_mid_stream(site: Site) -> None:
    keys = site.keys
    with site.client(keys.ada) as ada, site.client(keys.bob) as bob:
        mine, theirs = ada.call(**LONG, id="a"), bob.call(**{**LONG, "prompt": "n=200 delay=0.01"}, id="b")
        with site.subscriber(keys.ada, mine["topic"]) as lost, site.subscriber(keys.bob, theirs["topic"]) as whole:
            lost.receive()
            lost.receive()
            keys.remove("ada")
            assert apply(site.box)["applied"]
            assert until(lambda: site.running() == ["b"], "the end of a's")
            text, end, _ = whole.whole()
            assert text == end["text"] == "".join(f"t{n} " for n in range(200))
            while not lost.silent():
                assert lost.receive()["type"] != "end"
    assert site.refused(with_key(keys.ada, keys.server.public))


def test_both_keys_are_good_while_a_device_changes(site: Site) -> None:
    keys = site.keys
    new = keys.admit("ada~new", name="ada")
    assert apply(site.box)["applied"]
    with site.client(keys.ada) as ada, site.client(new) as same:
        ada.call(**LONG, id="r")
        assert same.call(op="result", id="r")["ok"]
        keys.remove("ada")
        assert apply(site.box)["applied"]
    assert site.refused(with_key(keys.ada, keys.server.public))
    with site.client(new) as same:
        assert same.call(op="cancel", id="r")["state"] == "cancelled"


def test_a_cable_that_is_pulled(site: Site) -> None:
    """Half-open: nobody says goodbye. The slots are free within heartbeat and grace, whichever way the stream went."""
    keys = site.keys
    with site.client(keys.ada) as ada, site.client(keys.bob) as bob:
        ticket = ada.call(**LONG, id="pub")
        bob.ask(**{**LONG, "stream": "reply"}, id="reply")
        with site.subscriber(keys.ada, ticket["topic"]) as sub:
            sub.receive()
            until(lambda: bob.receive()[1].get("type") == "token", "a token")
            try:
                site.line.pull()
                pulled = time.monotonic()
                assert site.running() == ["pub", "reply"]
                until(lambda: site.running() == [], "the cancels")
                took = time.monotonic() - pulled
            finally:
                site.line.plug()
    assert GRACE_S < took < 3 * (HEARTBEAT_S + GRACE_S), took
    for key, name in ((keys.ada, "pub"), (keys.bob, "reply")):
        with site.client(key) as again:
            kept = again.call(op="result", id=name)
            assert kept["finish_reason"] == "cancelled"
            assert kept["usage"]["completion_tokens"] > 0


BROKEN = """
import sys
import edged.wire.auth as auth
def answer(*_):
    raise RuntimeError("broken")
auth.Auth.answer = answer
from edged.__main__ import main
sys.exit(main())
"""


def test_nobody_gets_in_when_the_authenticator_is_broken(tmp_path: Path, line: Cable) -> None:
    keys = Keys(tmp_path / "keys", BOX)
    ada = keys.admit("ada", name="ada")
    box = Daemon(tmp_path / "box", **keys.settings(tmp_path / "box/run"))
    context = line.context()
    command = ["ip", "netns", "exec", line.box, "env", f"PYTHONPATH={TESTS}:{TESTS.parent}", "EDGED_SCRIPT="]
    command += [sys.executable, "-c", BROKEN, "--config", str(box.config), "--worker", "scripted_worker"]
    try:
        with box.log.open("ab") as log:
            box.process = subprocess.Popen(command, stderr=log)
        until(box.control_path.exists, "the sockets")
        assert Site(line, keys, box, context).refused(with_key(ada, keys.server.public))
        assert "error bug kind=RuntimeError" in box.log.read_text()
        assert box.process.poll() is None
    finally:
        context.destroy(linger=0)
        box.close()
