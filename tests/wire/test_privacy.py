"""No token reaches another caller; no caller learns of another's ids, text or timing (protocol 4, 9)."""

from __future__ import annotations

import os
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from harness import Daemon, open_to_others, running, tiny_gguf

from edged.broker.broker import Broker
from edged.broker.instructions import Address, Caller
from edged.config import parse
from edged.messages import Generate
from edged.observe.log import Log
from edged.subscriptions import Subscriptions
from edged.wire.activation import Activated
from edged.wire.codec import Encoder
from edged.wire.endpoints import Endpoints
from wire.conftest import Stranger

ROUNDS = 40
OTHER_UID = 54321
root = pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Daemon]:
    with running(
        open_to_others(tmp_path) / "box", limits={"drain_s": 0.2, "orphan_grace_ms": 400}, health_interval_s=0.5
    ) as daemon:
        yield daemon


def begin(client: Any) -> dict[str, Any]:
    body = {"op": "generate", "prompt": "n=100000 delay=0.005", "max_tokens": 4000, "stream": True, "id": "mine"}
    return client.call(**body)


@root
def test_another_user_hears_nothing_and_finds_nothing(box: Daemon) -> None:
    with box.client() as client:
        topic = begin(client)["topic"]
        b = Stranger(box, uid=OTHER_UID)
        try:
            with box.subscriber(topic) as mine:
                for guess in ("", "t", "tok/", topic[:-1], topic, topic + "x", topic.upper(), "\0", "sys"):
                    b.subscribe(guess)
                heard = b.do(events=0.5)
                assert heard == []
                for verb in ("result", "cancel"):
                    assert b.do(call={"op": verb, "id": "mine"})["error"]["code"] == "not_found"
                status = b.do(call={"op": "status"})
                assert "mine" not in str(status)
                assert topic not in str(status)
                b.subscribe("sys/health")
                assert b.do(events=1.5), "the stranger's socket works after all"
                own = b.do(call={"op": "generate", "prompt": "n=1", "id": "mine"})
                assert own["text"] == "t0 "
                assert client.call(op="cancel", id="mine")["state"] == "cancelled"
                text, end, gaps = mine.whole()
                assert (text, gaps) == (end["text"], 0)
        finally:
            b.close()


@root
def test_another_user_cannot_end_a_stream_by_coming_and_going(box: Daemon) -> None:
    with box.client() as client:
        topic = begin(client)["topic"]
        with box.subscriber(topic) as mine:
            mine.receive()
            for _ in range(3):
                b = Stranger(box, uid=OTHER_UID)
                b.subscribe(topic)
                b.do(events=0.1)
                b.close()
            last = client.call(op="result", id="mine", wait_ms=1500)
            assert last.get("state") == "running"


def test_a_foreign_frame_in_one_gap_hands_nothing_over(box: Daemon) -> None:
    """The loop is stopped, so that the foreign frame and both subscriptions are read in one go."""
    box.settings["security"] = {"ban_s": 0}
    box.write_config()
    box.process.send_signal(signal.SIGHUP)
    b = Stranger(box)
    leaks = 0
    try:
        with box.client() as client:
            for number in range(ROUNDS):
                ticket = client.call(
                    op="generate", prompt="n=20 delay=0.003", id=f"m{number}", stream=True, detach=True
                )
                topic = ticket["topic"]
                with box.subscriber("sys/") as mine:
                    box.process.send_signal(signal.SIGSTOP)
                    b.do(frame=b"xx".hex())
                    mine.subscribe(topic)
                    b.subscribe(f"guess-{number}")
                    box.process.send_signal(signal.SIGCONT)
                    text, end, _ = mine.whole()
                    assert text == end["text"]
                leaks += sum(topic in event[0] for event in b.do(events=0.01))
    finally:
        box.process.send_signal(signal.SIGCONT)
        b.close()
    assert leaks == 0
    with box.client() as client:
        assert client.call(op="status")["counters"]["tainted"] >= 1


class _Naive(Subscriptions):
    """A daemon that drops the foreign frame and goes on approving: what must be told apart."""

    def read(self, now: float) -> None:
        while (frame := self._endpoints.receive_subscription(now)) is not None:
            if frame.data[:1] == b"\1":
                self._subscribe(frame.data[1:], frame, now)


def _one_gap(tmp_path: Path, reader: type[Subscriptions]) -> int:
    """Foreign frame, A's subscription, B's: read in one gap, then an event on A's topic. How often B got it."""
    tmp_path.mkdir()
    tiny_gguf(tmp_path / "m.gguf")
    places = {"runtime_dir": str(tmp_path / "run"), "state_dir": str(tmp_path / "state")}
    config = parse({**places, "model": {"path": str(tmp_path / "m.gguf")}, "security": {"ban_s": 0}}, "test")
    endpoints = Endpoints(config, Activated())
    broker = Broker(config, Encoder("test"), lambda: secrets.token_hex(16), lambda: 1)
    broker.worker_ready("m", 4, "", 0.0)
    subscriptions = reader(endpoints, broker.topics, lambda _i, _n: None, Log("error"), Counter())
    context = zmq.Context()
    leaks = 0

    def settle(rounds: int = 8) -> None:
        for _ in range(rounds):
            if endpoints.poller().poll(3):
                endpoints.authenticate(0.0)

    try:
        for number in range(20):
            body = Generate(id=f"r{number}", prompt="x", stream="pub")
            caller = Caller(f"uid:{os.getuid()}", Address("request", (b"a", b"")))
            broker.asked(caller, body, b"", 0.0)
            topic = broker.lives.table.find(caller.identity, body.id).stream.topic
            a, b = context.socket(zmq.XSUB), context.socket(zmq.XSUB)
            for sock in (a, b):
                sock.linger = 0
                sock.connect(config.stream_endpoints[0])
            b.send(b"\1hello")
            a.send(b"\1hello")
            settle()
            subscriptions.read(0.0)
            b.send(b"foreign")
            settle(2)
            a.send(b"\1" + topic.encode())
            settle(2)
            b.send(b"\1sys-not")
            settle(2)
            subscriptions.read(0.0)
            endpoints.publish(topic.encode(), b"secret", drop=True)
            leaks += bool(b.poll(30))
            a.close()
            b.close()
            settle()
            subscriptions.read(0.0)
    finally:
        context.destroy(linger=0)
        endpoints.close()
    return leaks


def test_the_taint_rule_is_what_keeps_streams_apart(tmp_path: Path) -> None:
    assert _one_gap(tmp_path / "naive", _Naive) > 0
    assert _one_gap(tmp_path / "real", Subscriptions) == 0


def test_a_foreign_frame_bans_its_process_and_spares_the_others(box: Daemon) -> None:
    b = Stranger(box)
    try:
        with box.client() as client:
            topic = begin(client)["topic"]
            with box.subscriber(topic) as mine:
                assert mine.socket.poll(30_000)
                b.do(frame=b"zz".hex())
                box.wait_status(lambda s: s["counters"].get("tainted") == 1, "the taint")
                b.subscribe("sys/")
                client.call(op="cancel", id="mine")
                text, end, _ = mine.whole()
                assert text == end["text"]
            assert b.do(events=0.5) == []
    finally:
        b.close()


def test_prompts_answers_and_topics_are_not_logged(box: Daemon) -> None:
    with box.client() as client, box.operator() as operator:
        operator.call(op="loglevel", level="debug")
        list(client.stream(prompt="word=answer-word n=3 prompt-word", id="quiet", stop=["stop-word"]))
        client.call(op="generate", prompt="bad-prompt\0")
        client.call(op="generate", messages=[{"role": "user", "content": "message-word"}])
    log = box.log.read_text()
    assert "quiet" in log
    for word in ("answer-word", "prompt-word", "stop-word", "message-word", "bad-prompt", "tok/"):
        assert word not in log
