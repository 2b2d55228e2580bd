"""Under a service manager: readiness, watchdog, words, passed sockets, a configuration that is wrong."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Daemon, until
from manager import Manager

from edged.client import Client, NoAnswer

pytest.importorskip("systemd.daemon", reason="systemd-python is not installed (edged[service])")

QUICK = {"drain_s": 0.2}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "box", limits=QUICK)
    yield daemon
    daemon.close()


@pytest.fixture
def manager(box: Daemon) -> Iterator[Manager]:
    manager = Manager(box, watchdog_s=0.3)
    yield manager
    manager.close()


def names(box: Daemon) -> set[str]:
    return {path.name for path in (box.directory / "run").glob("*.sock")}


def ready(box: Daemon) -> bool:
    """What is on its way while sockets are closed is lost: the library asks again where a bare socket waits."""
    with Client(box.request_endpoint) as client:
        try:
            return client.call("status", deadline_s=5)["ready"] is True
        except NoAnswer:
            return False


# ---- readiness, words, watchdog ------------------------------------------------------------------------------


def test_ready_while_the_model_loads_then_words_and_a_stop_in_order(box: Daemon, manager: Manager) -> None:
    box.script = "load=0.4"
    manager.start()
    manager.wait(lambda m: m.get("READY") == "1", "READY")
    with box.client() as client:
        assert client.call(op="status")["state"] == "loading"
    first = manager.wait(lambda m: "STATUS" in m, "words")
    assert first["STATUS"].startswith("loading")
    ready = manager.wait(lambda m: "STATUS" in m and m["STATUS"].startswith("ready"), "words when ready")
    assert ready["STATUS"].startswith("ready, level normal, tiny (profile default), 0 running, 0 waiting")
    assert box.stop() == 0
    stop = next(m for m in manager.drain() if "STOPPING" in m)
    assert int(stop["EXTEND_TIMEOUT_USEC"]) > 1e6 * (0.2 + 5)
    assert names(box) == {"request.sock", "stream.sock", "control.sock"}  # the manager's, not ours to remove


def test_pings_come_from_the_loop_and_end_with_it(box: Daemon, manager: Manager) -> None:
    manager.start()
    for _ in range(5):
        manager.wait(lambda m: m.get("WATCHDOG") == "1", "a ping")
    os.kill(box.pid, signal.SIGSTOP)
    manager.drain()
    assert manager.hear(1.0) is None  # ten intervals
    os.kill(box.pid, signal.SIGCONT)
    manager.wait(lambda m: m.get("WATCHDOG") == "1", "a ping again")


def test_pings_go_on_while_no_worker_can_be_kept_up(box: Daemon, manager: Manager) -> None:
    box.script = "load=die"
    box.settings["watchdog"] = {"restart": {"max": 2, "backoff_s": 0.01, "backoff_max_s": 0.02}}
    box.settings["limits"] = {**QUICK, "max_restarts": 1}
    box.write_config()
    manager.start()
    manager.wait(lambda m: m.get("STATUS", "").startswith("unavailable: "), "unavailable in words")
    for _ in range(3):
        manager.wait(lambda m: m.get("WATCHDOG") == "1", "a ping")


def test_a_manager_that_reads_nothing_stops_nobody(box: Daemon, manager: Manager) -> None:
    """The queue of a datagram socket has some ten to some hundred places, and then a send waits."""
    manager.watchdog_s = 0.009
    manager.start()
    box.wait_ready()
    manager.clog()
    with box.client() as client:
        for n in range(20):
            assert client.call(op="generate", prompt=f"n={n + 1}", max_tokens=50)["ok"]
            time.sleep(0.02)
    manager.drain()
    manager.wait(lambda m: m.get("WATCHDOG") == "1", "a ping, now that it is read")


def test_a_dead_notify_socket_is_harmless(box: Daemon, manager: Manager) -> None:
    manager.start()
    box.wait_ready()
    os.unlink(manager.notify_path)
    time.sleep(0.3)
    os.kill(box.pid, signal.SIGHUP)
    with box.client() as client:
        assert client.call(op="generate", prompt="n=2")["text"] == "t0 t1 "
    assert box.stop() == 0


def test_reloading_then_ready_for_a_good_and_for_a_bad_configuration(box: Daemon, manager: Manager) -> None:
    manager.start()
    box.wait_ready()
    for good in (True, False):
        box.config.write_text(box.config.read_text() if good else "limits: {queu: 3}\n")
        manager.drain()
        os.kill(box.pid, signal.SIGHUP)
        told = manager.wait(lambda m: m.get("RELOADING") == "1", "RELOADING")
        assert abs(int(told["MONOTONIC_USEC"]) / 1e6 - time.monotonic()) < 60
        manager.wait(lambda m: m.get("READY") == "1", "READY again")
    with box.client() as client:
        assert client.call(op="generate", prompt="n=2")["text"] == "t0 t1 "
    assert "limits.queu" in box.log.read_text()


# ---- passed sockets ------------------------------------------------------------------------------------------


def test_who_asks_before_and_between_is_served(box: Daemon, manager: Manager) -> None:
    """The manager's sockets hold a client's connection while there is no daemon."""
    answers = []

    def ask(name: str) -> None:
        with Client(box.request_endpoint) as client:
            answers.append(client.generate(prompt="n=3", id=name, deadline_s=60).text)

    early = threading.Thread(target=ask, args=("early",))
    early.start()
    time.sleep(0.2)
    manager.start()
    early.join(60)
    assert box.stop() == 0
    between = threading.Thread(target=ask, args=("between",))
    between.start()
    time.sleep(0.2)
    manager.start()
    between.join(60)
    assert answers == ["t0 t1 t2 "] * 2
    with box.client() as client, box.operator() as operator, box.subscriber() as subscriber:
        ticket = client.call(op="generate", prompt="n=3", stream=True)
        subscriber.subscribe(ticket["topic"])
        assert subscriber.whole()[0] == "t0 t1 t2 "
        assert operator.call(op="requests")["ok"]


def test_who_comes_while_it_stops_waits_for_the_next(box: Daemon, manager: Manager) -> None:
    """A stop may take seconds (here for a worker that hangs): nobody may be let in by one who will not answer."""
    box.settings["cache"] = {"save_s": 1}
    box.write_config()
    manager.start()
    box.wait_ready()
    with box.client() as client:
        client.ask(op="generate", prompt="n=50 hang=1", id="stuck")
        until(lambda: client.call(op="result", id="stuck").get("text"), "a worker that hangs")
        box.process.terminate()
        assert client.receive()[1]["error"]["code"] == "shutting_down"
    with box.client() as late:
        late.ask(op="ping")
        assert late.silent(0.5)
        assert box.process.wait(30) == 0
        manager.start()
        assert late.receive()[1]["ok"]


def test_what_was_not_passed_is_bound_and_what_is_not_configured_is_warned_of(tmp_path: Path) -> None:
    box = Daemon(tmp_path / "box", limits=QUICK)
    manager = Manager(box, names=("request.sock", "elsewhere.sock"))
    try:
        manager.start()
        status = box.wait_ready()
        stray = f"ipc://{box.directory}/run/elsewhere.sock"
        assert [w for w in status["warnings"] if stray in w]
        with box.operator() as operator:
            assert operator.call(op="requests")["ok"]
        assert box.stop() == 0
        assert names(box) == {"request.sock", "elsewhere.sock"}
    finally:
        manager.close()
        box.close()


def test_a_passed_tcp_socket_serves(tmp_path: Path) -> None:
    box = Daemon(tmp_path / "box", limits=QUICK)
    manager = Manager(box, names=())
    with socket.create_server(("127.0.0.1", 0)) as sock:
        endpoint = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
        box.settings |= {"listen": {"request": [endpoint]}, "security": {"allow_insecure_tcp": True}}
        box.write_config()
        manager.sockets.append(sock)
        try:
            manager.start()
            manager.wait(lambda m: m.get("STATUS", "").startswith("ready"), "ready")
            with Client(endpoint) as client:
                assert client.generate(prompt="n=2", deadline_s=30).text == "t0 t1 "
            assert box.stop() == 0
        finally:
            manager.close()
            box.close()


# ---- a configuration that is wrong ---------------------------------------------------------------------------


def test_a_wrong_configuration_is_told_until_it_is_mended(box: Daemon, manager: Manager) -> None:
    good = box.config.read_text()
    box.config.write_text("limits: {queu: 3}\n")
    manager.start()
    manager.wait(lambda m: m.get("READY") == "1", "READY")
    pid = box.pid
    answers = []

    def ask() -> None:
        with Client(box.request_endpoint) as client:
            answers.append(client.generate(prompt="n=3", id="patient", deadline_s=60).text)

    with box.client() as client, box.operator() as operator:
        assert client.call(op="ping")["ok"]
        status = client.call(op="status")
        assert (status["state"], status["ready"]) == ("unavailable", False)
        assert "limits.queu: expected a key of config.yaml" in status["warnings"][0]
        for body in ({"op": "generate", "prompt": "n=1"}, {"op": "result", "id": "x"}, {"op": "cancel", "id": "x"}):
            error = client.call(**body)["error"]
            assert (error["code"], error["retryable"]) == ("unavailable", True)
            assert "limits.queu" in error["message"]
        assert client.call(op="nonsense")["error"]["code"] == "unknown_op"
        assert operator.call(op="config", action="apply")["error"]["code"] == "bad_request"
        assert client.call(op="requests")["error"]["code"] == "forbidden"
        patient = threading.Thread(target=ask)
        patient.start()
        box.config.write_text("limits: {queue: none}\n")
        os.kill(box.pid, signal.SIGHUP)
        until(lambda: "limits.queue" in client.call(op="status")["warnings"][0], "the other error")
        manager.wait(lambda m: m.get("WATCHDOG") == "1", "a ping")
        box.config.write_text(good)
        manager.drain()
        os.kill(box.pid, signal.SIGHUP)
        manager.wait(lambda m: m.get("RELOADING") == "1", "RELOADING")
        manager.wait(lambda m: m.get("READY") == "1", "READY")
        patient.join(60)
        assert answers == ["t0 t1 t2 "]
    assert ready(box)
    assert box.pid == pid
    assert box.process.poll() is None
    assert box.stop() == 0


def test_config_apply_mends_it_too(box: Daemon, manager: Manager) -> None:
    good = box.config.read_text()
    box.config.write_text("[")
    manager.start()
    with box.operator() as operator:
        assert "config.yaml" in operator.call(op="status")["warnings"][0]
        box.config.write_text(good)
        assert operator.call(op="config", action="check")["applied"] is False
        assert operator.call(op="status")["state"] == "unavailable"
        assert operator.call(op="config", action="apply")["applied"] is True
        until(lambda: ready(box), "ready")


def test_an_address_that_is_not_there_yet_is_tried_again(box: Daemon, manager: Manager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        box.settings |= {
            "listen": {"request": [f"ipc://{box.directory}/run/request.sock", endpoint]},
            "security": {"allow_insecure_tcp": True},
        }
        box.write_config()
        manager.start()
        with box.client() as client:
            assert endpoint in client.call(op="status")["warnings"][0]
    until(lambda: ready(box), "ready")


def test_a_stop_while_it_waits(box: Daemon, manager: Manager) -> None:
    box.config.write_text("[")
    manager.start()
    manager.wait(lambda m: m.get("READY") == "1", "READY")
    assert box.stop() == 0
    assert any("STOPPING" in m for m in manager.drain())
    assert names(box) == {"request.sock", "stream.sock", "control.sock"}


def test_without_activation_it_ends_with_78(box: Daemon) -> None:
    manager = Manager(box, names=())
    try:
        box.config.write_text("limits: {queu: 3}\n")
        manager.start()
        assert box.process.wait(30) == 78
        assert "limits.queu" in box.log.read_text()
    finally:
        manager.close()


# ---- the library is not there, the journal -------------------------------------------------------------------


def test_without_systemd_python_it_says_what_to_install(box: Daemon, manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/__init__.py").write_text("raise ImportError('not here')\n")
    here = os.environ.get("PYTHONPATH", "")
    manager.start(PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[1]}:{Path(__file__).parents[2]}:{here}")
    assert box.process.wait(30) == 78
    assert "pip install 'edged[service]'" in box.log.read_text()


def test_the_daemon_stays_small_and_the_worker_gets_no_socket(box: Daemon, manager: Manager) -> None:
    manager.start()
    box.wait_ready()
    assert box.rss_kb() < 40_000
    worker = box.worker_pid()
    links = [os.readlink(f"/proc/{worker}/fd/{fd}") for fd in os.listdir(f"/proc/{worker}/fd")]
    ours = {f"socket:[{os.fstat(sock.fileno()).st_ino}]" for sock in manager.sockets}
    assert not ours & set(links)
    environment = Path(f"/proc/{worker}/environ").read_bytes()
    assert b"LISTEN_FDS=" not in environment
