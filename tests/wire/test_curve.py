"""TCP with CURVE on the loopback: who is let in, as whom; what a caller owns is its own; keys that come and go."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from harness import TESTS, Client, Daemon, running, until
from keys import Keys, apply, pair, with_key

from edged import keypair

SILENT_MS = 500


@contextlib.contextmanager
def keyed(directory: Path, keys: Keys, **more: Any) -> Iterator[Daemon]:
    settings = keys.settings(directory / "run") | {"limits": {"drain_s": 0.2}} | more
    with running(directory, **settings) as box:
        yield box


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys")


@pytest.fixture
def box(tmp_path: Path, keys: Keys) -> Iterator[Daemon]:
    """`ada` and `bob` have keys."""
    keys.ada = keys.admit("ada", name="ada", max_priority="high")
    keys.bob = keys.admit("bob", max_queued=2)
    with keyed(tmp_path / "box", keys) as daemon:
        yield daemon


def silent(box: Daemon, endpoint: str, **options: bytes) -> bool:
    """No answer to `ping` from a socket with these options."""
    sock = box.context.socket(zmq.DEALER)
    sock.linger = 0
    for name, value in options.items():
        setattr(sock, name, value)
    sock.connect(endpoint)
    sock.send_multipart([b"", json.dumps({"op": "ping"}).encode()])
    heard = sock.poll(SILENT_MS)
    sock.close()
    return not heard


def curve(key: Any, server: str) -> dict[str, bytes]:
    return {
        "curve_serverkey": server.encode(),
        "curve_publickey": key.public.encode(),
        "curve_secretkey": key.secret.encode(),
    }


def talk(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# ---- the door --------------------------------------------------------------------------------------------------


def test_the_right_key_is_served_and_is_somebody(box: Daemon, keys: Keys) -> None:
    with keys.client(box, keys.ada) as ada, keys.client(box, keys.bob) as bob, box.operator() as operator:
        ticket = ada.call(op="generate", prompt="n=4000 delay=0.01", id="a", stream=True, priority="high")
        with keys.subscriber(box, keys.ada, ticket["topic"]) as sub:
            assert sub.receive()["type"] == "snapshot"
            assert sub.receive()["id"] == "a"
            rows = operator.call(op="requests")["requests"]
            assert [row["identity"] for row in rows] == ["name:ada"]
            assert bob.call(op="generate", prompt="n=1", priority="high")["error"]["code"] == "forbidden"
            ada.call(op="cancel", id="a")
        bob.call(op="generate", prompt="n=4000 delay=0.01", id="b", stream=True)
        (row,) = until(lambda: operator.call(op="requests")["requests"], "the request")
        assert row["identity"] == f"key:{keys.bob.public}"
        with box.client() as local:
            assert local.call(op="ping")["ok"], "ipc needs no key, on the same socket"
            assert local.call(op="status")["warnings"] == []


def test_everybody_else_is_refused_in_the_handshake(box: Daemon, keys: Keys) -> None:
    stranger = pair()
    assert silent(box, keys.request, **curve(stranger, keys.server.public)), "an unknown key"
    assert silent(box, keys.request, **curve(keys.ada, stranger.public)), "a wrong server key"
    assert silent(box, keys.request), "no key"
    assert silent(box, keys.request, plain_username=b"ada", plain_password=b"x")
    assert silent(box, box.request_endpoint, **curve(keys.ada, keys.server.public)), "a key on ipc"
    theirs = keypair.new()[1]
    assert silent(
        box,
        keys.request,
        curve_serverkey=keys.server.public.encode(),
        curve_publickey=keys.ada.public.encode(),
        curve_secretkey=theirs.encode(),
    ), "ada's public key without her secret"
    assert not silent(box, keys.request, **curve(keys.ada, keys.server.public))
    log = box.log.read_text()
    assert f"key={stranger.public}" in log.replace('"', "")
    assert stranger.secret not in log
    assert keys.server.secret not in log


def test_a_secret_that_others_can_read_ends_the_start(tmp_path: Path, keys: Keys) -> None:
    keys.server_path.chmod(0o640)
    box = Daemon(tmp_path / "box", **keys.settings(tmp_path / "box/run"))
    box.close()
    command = [sys.executable, "-m", "edged", "--config", str(box.config), "--worker", "scripted_worker"]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 78
    assert "security.server_key: expected mode 0600" in done.stderr
    assert done.stderr.count("\n") == 1


BROKEN = """
import sys
import edged.wire.auth as auth
def answer(*_):
    raise RuntimeError("broken")
auth.Auth.answer = answer
from edged.__main__ import main
sys.exit(main())
"""


def test_nobody_gets_in_when_the_authenticator_is_broken(tmp_path: Path, keys: Keys) -> None:
    ada = keys.admit("ada", name="ada")
    box = Daemon(tmp_path / "box", **keys.settings(tmp_path / "box/run"))
    command = [sys.executable, "-c", BROKEN, "--config", str(box.config), "--worker", "scripted_worker"]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}", "EDGED_SCRIPT": ""}
    try:
        with box.log.open("ab") as log:
            box.process = subprocess.Popen(command, stderr=log, env=environment)
        until(box.control_path.exists, "the sockets")
        assert silent(box, keys.request, **curve(ada, keys.server.public))
        assert silent(box, box.request_endpoint)
        assert silent(box, box.control_endpoint)
        assert box.process.poll() is None, "it is refused, not dead"
        assert "error bug kind=RuntimeError" in box.log.read_text()
    finally:
        box.close()


# ---- mine and yours --------------------------------------------------------------------------------------------


def test_what_a_owns_is_nothing_to_b(box: Daemon, keys: Keys) -> None:
    with keys.client(box, keys.ada) as ada, keys.client(box, keys.bob) as bob:
        long = {"op": "generate", "prompt": "n=4000 delay=0.01", "id": "r", "stream": True, "max_tokens": 4000}
        ticket = ada.call(**long)
        done = ada.call(op="generate", prompt="n=2", id="done")
        ada.call(op="generate", messages=talk("n=2"), id="turn", session="s")
        with keys.subscriber(box, keys.ada, ticket["topic"]) as own:
            own.receive()
            for op in ("result", "cancel"):
                for name in ("r", "done"):
                    assert bob.call(op=op, id=name)["error"]["code"] == "not_found"
            assert bob.call(op="session", session="s", action="get")["error"]["code"] == "not_found"
            assert bob.call(op="session", session="s", action="delete")["error"]["code"] == "not_found"
            assert bob.call(op="generate", prompt="n=3", id="m", supersedes="r")["ok"]
            assert bob.call(op="generate", prompt="n=3", id="done")["text"] != done["text"], "another request"
            with keys.subscriber(box, keys.bob, ticket["topic"]) as other, keys.subscriber(box, keys.bob, b"") as all_:
                own.receive()
                assert other.silent()
                assert all_.silent()
            for op in ("requests", "drain", "reload", "sessions"):
                assert bob.call(op=op)["error"]["code"] == "forbidden"
            assert ada.call(op="result", id="r")["state"] == "running", "nor could b end it"
            assert bob.call(op="status")["counters"].get("orphans") is None


def test_the_limits_of_a_key_are_in_force(box: Daemon, keys: Keys) -> None:
    with keys.client(box, keys.bob) as bob, keys.client(box, keys.ada) as ada:
        until(lambda: bob.call(op="status")["ready"], "ready")
        sequences = bob.call(op="status")["slots"]["total"]
        body = {"op": "generate", "prompt": "n=4000 delay=0.01", "stream": True, "max_tokens": 4000}
        replies = [bob.call(**body, id=f"b{number}") for number in range(sequences + 2 + 3)]
        assert [reply["ok"] for reply in replies] == [True] * (sequences + 4) + [False]
        assert "max_queued of your key is 2" in replies[-1]["error"]["message"]
        assert ada.call(**body, id="a")["ok"], "another caller has its own share"


def test_a_foreign_frame_bans_the_key_and_not_the_address(box: Daemon, keys: Keys) -> None:
    sock = box.context.socket(zmq.XSUB)
    sock.linger = 0
    with_key(keys.bob, keys.server.public)(sock)
    sock.connect(keys.stream)
    sock.send(b"hello")
    box.wait_status(lambda s: s["counters"].get("tainted"), "the taint")
    sock.close()
    assert silent(box, keys.request, **curve(keys.bob, keys.server.public))
    assert not silent(box, keys.request, **curve(keys.ada, keys.server.public)), "the same address"


# ---- keys that come and go -------------------------------------------------------------------------------------


def test_a_new_key_cuts_nobody(box: Daemon, keys: Keys) -> None:
    with keys.client(box, keys.ada) as ada:
        events = ada.stream(prompt="n=60 delay=0.01", id="r")
        next(events)
        new = keys.admit("new", name="new")
        keys.admit("ada", keys.ada.__class__(public=keys.ada.public, name="ada", max_priority="low"))
        assert apply(box)["applied"]
        with keys.client(box, new) as other:
            assert other.call(op="ping")["ok"]
        *_, end = events
        assert end["finish_reason"] == "stop"
        assert ada.call(op="generate", prompt="n=1", priority="high")["error"]["code"] == "forbidden", "at once"
    assert "keys_revoked" not in box.log.read_text()


def test_a_revoked_key_is_cut_and_what_it_owned_ends(box: Daemon, keys: Keys) -> None:
    body = {"op": "generate", "prompt": "n=4000 delay=0.01", "stream": True, "max_tokens": 4000}
    with keys.client(box, keys.ada) as ada, keys.client(box, keys.bob) as bob, box.operator() as operator:
        with keys.client(box, keys.ada) as other:
            kept = other.call(op="generate", prompt="n=2", id="kept")
        bob.call(op="generate", prompt="n=2", id="bobs")
        theirs, his = ada.call(**body, id="a"), bob.call(**body, id="b")
        with (
            keys.subscriber(box, keys.ada, theirs["topic"]) as lost,
            keys.subscriber(box, keys.bob, his["topic"]) as stays,
        ):
            assert lost.receive()["type"] == stays.receive()["type"] == "snapshot"
            until(lambda: stays.receive()["type"] == "token", "b's text")
            keys.remove("ada")
            assert apply(box)["applied"]
            until(lambda: [r["id"] for r in operator.call(op="requests")["requests"]] == ["b"], "the end of a's")
            kinds = [stays.receive()["type"] for _ in range(20)]
            assert kinds == ["token"] * 20, "who stays notices nothing"
            while not lost.silent():  # what was on its way
                lost.receive()
        assert silent(box, keys.request, **curve(keys.ada, keys.server.public))
        with keys.client(box, keys.bob) as again:
            assert again.call(op="result", id="bobs")["ok"], "b's result is kept"
            assert again.call(op="result", id="b")["state"] == "running"
        assert kept["ok"]
        keys.admit("ada", keys.ada)
        apply(box)
        with keys.client(box, keys.ada) as back:
            assert back.call(op="result", id="kept")["error"]["code"] == "not_found", "a's are dropped"
            assert back.call(op="result", id="a")["error"]["code"] == "not_found"


def test_one_bad_file_changes_nothing(box: Daemon, keys: Keys) -> None:
    keys.remove("bob")
    keys.admit("new", name="new")
    (keys.clients / "bad.key").write_text("curve\n    public-key = nonsense\n")
    error = apply(box)["error"]
    assert error["code"] == "bad_request"
    assert f"{keys.clients}/bad.key:2: security.clients_dir: expected public-key" in error["message"]
    with box.operator() as operator:
        told = [one for one in operator.call(op="status")["warnings"] if "was refused" in one]
        assert len(told) == 1, "and `status` says it to everybody"
        assert "bad.key" not in told[0], "without the caller's name"
        assert "bad.key:2" in operator.call(op="config", action="check")["error"]["message"]
    box.process.send_signal(signal.SIGHUP)
    until(lambda: "configuration_refused" in box.log.read_text(), "the refusal")
    with keys.client(box, keys.bob) as bob:
        assert bob.call(op="ping")["ok"], "the old set stays in force"
    (keys.clients / "bad.key").unlink()
    box.process.send_signal(signal.SIGHUP)
    until(lambda: "keys_revoked" in box.log.read_text(), "the revocation")
    assert silent(box, keys.request, **curve(keys.bob, keys.server.public))


def test_a_device_changes_its_key_and_stays_the_same_caller(box: Daemon, keys: Keys) -> None:
    with keys.client(box, keys.ada) as ada:
        assert ada.call(op="generate", messages=talk("n=3"), id="r", session="s")["ok"]
    new = keys.admit("ada~new", name="ada", max_priority="high")
    apply(box)
    for key in (keys.ada, new):
        with keys.client(box, key) as both:
            assert both.call(op="result", id="r")["ok"]
    keys.remove("ada")
    apply(box)
    assert silent(box, keys.request, **curve(keys.ada, keys.server.public)), "the old one is cut"
    with keys.client(box, new) as now:
        assert now.call(op="result", id="r")["ok"], "and what the caller owns stays"
        assert now.call(op="session", session="s", action="get")["turns_total"] == 1


def test_keys_revoked_while_it_was_down(tmp_path: Path, keys: Keys) -> None:
    """What the journal brings back of a caller without a key is not run."""
    ada = keys.admit("ada", name="ada")
    body = {"op": "generate", "prompt": "n=4000 delay=0.01", "id": "a", "stream": True, "detach": True}
    with keyed(tmp_path / "box", keys) as box:
        with keys.client(box, ada) as one:
            assert one.call(**body)["ok"]
        box.process.kill()
        box.process.wait()
        keys.remove("ada")
        box.start()
        with box.operator() as operator:
            assert operator.call(op="requests")["requests"] == []
            assert operator.call(op="status")["counters"].get("failed_forbidden") == 1
            assert any("nobody can come in" in w for w in operator.call(op="status")["warnings"])


def test_the_key_of_the_box_changes_at_a_restart(box: Daemon, keys: Keys) -> None:
    old = keys.server
    keys.write_server(pair())
    apply(box)
    assert "server_key_unchanged" in box.log.read_text()
    with box.operator() as operator:
        told = operator.call(op="status")["warnings"]
        assert any(one.startswith("the server key on the disk is another than the one in force") for one in told)
    assert not silent(box, keys.request, **curve(keys.ada, old.public))
    box.stop()
    box.start()
    assert silent(box, keys.request, **curve(keys.ada, old.public))
    with Client(box.context, keys.request, with_key(keys.ada, keys.server.public)) as ada:
        assert ada.call(op="ping")["ok"]


def test_nobody_else_notices_a_revocation(box: Daemon, keys: Keys) -> None:
    """Of ada's two keys one goes: its connections end, at once or with their next word, and no other does."""
    second = keys.admit("ada~new", name="ada", max_priority="high")
    assert apply(box)["applied"]
    asked = {"prompt": "n=300 delay=0.01", "max_tokens": 1000}
    with (
        keys.client(box, keys.ada) as lost,
        keys.client(box, second) as other,
        keys.client(box, keys.bob) as bob,
        box.client() as local,
        keys.subscriber(box, keys.ada, b"sys/") as idle,
    ):
        assert lost.call(op="ping")["ok"]
        streams = [who.stream(**asked, id="s") for who in (other, bob)]
        for stream in streams:
            next(stream)
        local.ask(op="generate", **asked, id="plain")
        keys.remove("ada")
        assert apply(box)["applied"]
        for stream in streams:
            *_, end = stream
            assert (end["type"], end["finish_reason"]) == ("end", "stop")
        assert local.receive()[1]["finish_reason"] == "stop", "an answer that was waited for"
        until(lambda: not lost.socket.poll(0, zmq.POLLOUT), "cut and refused: libzmq does not try again")
        while not idle.silent():
            idle.receive()
        assert bob.call(op="status")["counters"]["connections_cut"] >= 2
