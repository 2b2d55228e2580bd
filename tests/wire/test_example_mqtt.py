"""examples/mqtt/bridge.py between a real broker and a real daemon: bridge, broker and daemon die in the middle."""

from __future__ import annotations

import json
import os
import queue
import runpy
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import TESTS, WAIT_S, Daemon, until

mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not here")
if shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin") is None:
    pytest.skip("Debian's mosquitto is not here", allow_module_level=True)

BRIDGE = TESTS.parent / "examples/mqtt/bridge.py"


class Broker:
    """Mosquitto with its memory on disk, at a port of its own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        settings = f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        self._config = directory / "mosquitto.conf"
        self._config.write_text(
            f"{settings}persistence_location {directory}/\nuser {'root' if os.getuid() == 0 else ''}\n"
        )
        self._log = directory / "log"
        self.start()

    def start(self) -> None:
        path = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([path, "-v", "-c", str(self._config)], stdout=log, stderr=log)
        until(self._answers, "the broker")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """In order: it writes down its sessions."""
        self.process.terminate()
        self.process.wait(WAIT_S)


class Device:
    """One that asks and listens; its session outlives its connections."""

    def __init__(self, port: int) -> None:
        self.heard: queue.SimpleQueue[tuple[str, bytes, bool]] = queue.SimpleQueue()
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="device", clean_session=False)
        self._client.on_message = lambda _c, _u, m: self.heard.put((m.topic, m.payload, m.retain))
        subscribed: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._client.on_connect = lambda client, *_: client.subscribe([("edged/answer/#", 1), ("edged/bridge/#", 1)])
        self._client.on_subscribe = lambda *_: subscribed.put(1)
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        subscribed.get(timeout=WAIT_S)

    def ask(self, payload: str | dict[str, Any], device: str = "d1", **options: Any) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        self._client.publish(f"edged/ask/{device}", text, qos=1, **options).wait_for_publish(WAIT_S)

    def hear(self, end: str) -> tuple[str, bytes, list[tuple[str, bytes]]]:
        """Up to the topic that ends so: topic, payload, and what came before."""
        before: list[tuple[str, bytes]] = []
        while True:
            topic, payload, _ = self.heard.get(timeout=WAIT_S)
            if topic.endswith(end):
                return topic, payload, before
            before.append((topic, payload))

    def answer(self) -> dict[str, Any]:
        return json.loads(self.hear("/result")[1])

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Bridge:
    def __init__(self, port: int, endpoint: str) -> None:
        command = [sys.executable, str(BRIDGE), "--broker", f"127.0.0.1:{port}", "--edged", endpoint]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.stop()


@pytest.fixture
def device(broker: Broker) -> Iterator[Device]:
    device = Device(broker.port)
    yield device
    device.close()


@pytest.fixture
def bridge(broker: Broker, device: Device, daemon: Daemon) -> Iterator[Bridge]:
    bridge = Bridge(broker.port, daemon.request_endpoint)
    assert device.hear("/state")[1] == b"online"
    yield bridge
    bridge.close()


def accepted(box: Daemon) -> int:
    with box.client() as client:
        return client.call(op="status")["counters"].get("accepted", 0)


def whole(n: int) -> str:
    return "".join(f"t{i} " for i in range(n))


def test_text_and_json_in_tokens_and_result_out(bridge: Bridge, device: Device, daemon: Daemon) -> None:
    device.ask("n=3")
    topic, payload, before = device.hear("/result")
    assert [text.decode() for name, text in before if name.endswith("/token")] == ["t0 ", "t1 ", "t2 "]
    assert json.loads(payload)["text"] == "t0 t1 t2 "
    assert topic == f"edged/answer/d1/{json.loads(payload)['id']}/result"
    device.ask({"id": "q-1", "prompt": "n=9", "max_tokens": 2}, device="d2")
    topic, payload, _ = device.hear("/result")
    assert (topic, json.loads(payload)["text"]) == ("edged/answer/d2/q-1/result", "t0 t1 ")
    device.ask("n=3")
    device.ask({"id": "q-1", "prompt": "n=9", "max_tokens": 2}, device="d2")
    assert {device.answer()["text"], device.answer()["text"]} == {"t0 t1 t2 ", "t0 t1 "}
    assert accepted(daemon) == 2, "the same question of the same device runs once"
    bridge.process.send_signal(signal.SIGTERM)
    assert device.hear("/state")[1] == b"offline"
    assert bridge.process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ("{", "bad_request"),
        ({"id": "a/b", "prompt": "n=1"}, "bad_request"),
        ({"id": "x"}, "bad_request"),
        ({"prompt": "n=1", "deadline_ms": "soon"}, "bad_request"),
        ({"prompt": "n=1", "tokens": 3}, "bad_request"),
        ("refuse=context_overflow", "context_overflow"),
    ],
)
def test_errors_are_answers_too(mqtt_road: Device, payload: str | dict[str, Any], code: str) -> None:
    mqtt_road.ask(payload)
    error = mqtt_road.answer()["error"]
    assert (error["code"], error["retryable"]) == (code, False)


@pytest.fixture(scope="module")
def mqtt_road(tmp_path_factory: pytest.TempPathFactory, shared: Daemon) -> Iterator[Device]:
    """All of it once for several tests."""
    broker = Broker(tmp_path_factory.mktemp("mqtt") / "broker")
    device = Device(broker.port)
    bridge = Bridge(broker.port, shared.request_endpoint)
    assert device.hear("/state")[1] == b"online"
    yield device
    device.close()
    bridge.close()
    broker.stop()


def test_retained_questions_are_ignored(broker: Broker, device: Device, daemon: Daemon) -> None:
    device.ask("n=1 word=retained", retain=True)
    bridge = Bridge(broker.port, daemon.request_endpoint)
    try:
        assert device.hear("/state")[1] == b"online"
        device.ask("n=1 word=live")
        assert device.answer()["text"] == "live"
        assert accepted(daemon) == 1
    finally:
        bridge.close()


def test_a_bridge_that_is_killed_is_asked_again_and_the_question_runs_once(
    broker: Broker, device: Device, bridge: Bridge, daemon: Daemon
) -> None:
    device.ask("n=30 delay=0.03")
    device.hear("/token")
    bridge.process.kill()
    assert device.hear("/state")[1] == b"offline", "the last will"
    device.ask("n=1 word=meanwhile")
    second = Bridge(broker.port, daemon.request_endpoint)
    try:
        assert {device.answer()["text"], device.answer()["text"]} == {whole(30), "meanwhile"}
        assert accepted(daemon) == 2
    finally:
        second.close()


def test_broker_and_daemon_restart_in_mid_answer(
    broker: Broker, device: Device, bridge: Bridge, daemon: Daemon
) -> None:
    device.ask("n=40 delay=0.03")
    device.hear("/token")
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()
    _, _, before = device.hear("/token")
    assert not any(topic.endswith("/anew") for topic, _ in before), "the next daemon goes on with it"
    broker.stop()
    broker.start()
    assert device.answer()["text"] == whole(40)
    assert accepted(daemon) == 0
    device.ask("n=1 word=after")
    until(lambda: device.answer()["text"] == "after", "an answer after it all")
    assert bridge.process.poll() is None


@pytest.mark.parametrize("payload", [b'{"id":"a\\u0001b","prompt":"x"}', b'{"id":"' + b"a" * 65 + b'","prompt":"x"}'])
def test_an_id_that_is_no_topic_is_refused(payload: bytes) -> None:
    question = runpy.run_path(str(TESTS.parent / "examples/mqtt/bridge.py"), run_name="bridge")["question"]
    with pytest.raises(ValueError, match="64"):
        question("device", payload)
