"""Peers and misfortunes that once took more than their own: each test is a finding that was mended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zmq
from harness import WAIT_S, Daemon, open_to_others, running, tiny_gguf, until

from wire.conftest import Stranger

QUICK = {"restart": {"max": 100, "backoff_s": 0.01, "backoff_max_s": 0.02}}


def test_a_routing_id_of_ones_own_is_refused_for_whoever_takes_it_next_would_get_the_answers(daemon: Daemon) -> None:
    first = daemon.socket(zmq.DEALER, routing_id=b"sensor7")
    body = {"op": "generate", "prompt": "n=100 delay=0.01 word=secret", "stream": "reply", "id": "s"}
    first.send_multipart([b"", json.dumps(body).encode()])
    assert first.poll(WAIT_S * 1000)
    error = json.loads(first.recv_multipart()[-1])["error"]
    assert error["code"] == "bad_request"
    assert "routing id" in error["message"]
    first.close()
    second = daemon.socket(zmq.DEALER, routing_id=b"sensor7")
    assert not second.poll(300)
    with daemon.client() as client:
        assert client.call(op="result", id="s")["error"]["code"] == "not_found"


def test_a_hundred_thousand_subscriptions_cost_their_peer_the_connection_and_nobody_memory(tmp_path: Path) -> None:
    code = (
        "import sys, zmq\n"
        "sock = zmq.Context().socket(zmq.XSUB)\n"
        "sock.sndhwm, sock.linger = 0, 2000\n"
        "sock.connect(sys.argv[1])\n"
        "for n in range(100_000):\n"
        "    sock.send(b'\\1sys/%d' % n + b'x' * 500)\n"
    )
    with running(tmp_path, limits={"drain_s": 0.2}, health_interval_s=0.5) as daemon:
        before = daemon.rss_kb()
        flood = subprocess.Popen([sys.executable, "-c", code, daemon.stream_endpoint])
        with daemon.client() as client, daemon.subscriber("sys/") as sub:
            until(lambda: {"subscribers_cut", "tainted"} & client.call(op="status")["counters"].keys(), "the limit")
            ticket = client.call(op="generate", prompt="n=20 delay=0.005", stream=True)
            sub.subscribe(ticket["topic"])
            text, end, gaps = sub.whole()
            assert (text, gaps) == (end["text"], 0)
        assert flood.wait(WAIT_S) == 0
        until(lambda: daemon.rss_kb() < before + 12_000, "the memory again")


def test_one_subscriber_for_a_thousand_streams_is_no_flood(daemon: Daemon) -> None:
    with daemon.client() as client, daemon.subscriber() as sub:
        for number in range(1000):
            sub.subscribe(client.call(op="generate", prompt="n=1", stream=True, id=f"s{number}")["topic"])
            sub.whole()
        assert "subscribers_cut" not in client.call(op="status")["counters"]


def test_when_descriptors_are_short_newcomers_are_refused_and_the_others_served(tmp_path: Path) -> None:
    box = Daemon(tmp_path, limits={"drain_s": 0.2})
    box.start(before=("sh", "-c", 'ulimit -n 256; exec "$0" "$@"'))
    try:
        with box.client() as client:
            assert client.call(op="ping")["ok"]
            refused = 0
            for _ in range(230):
                one = box.socket(zmq.DEALER)
                one.send_multipart([b"", b'{"op":"ping"}'])
                refused += not one.poll(100 if refused else 2000)
                if refused > 3:
                    break
            assert refused > 3
            assert client.call(op="generate", prompt="n=2")["text"] == "t0 t1 "
            assert any("descriptors" in warning for warning in client.call(op="status")["warnings"])
        box.context.destroy(linger=0)
        assert box.stop() == 0
    finally:
        box.close()


def test_prompts_for_a_worker_that_does_not_read_do_not_pile_up(tmp_path: Path) -> None:
    with running(tmp_path, watchdog=QUICK, limits={"drain_s": 0.2}) as box, box.client() as client:
        before = box.rss_kb()
        worker = box.worker_pid()
        os.kill(worker, signal.SIGSTOP)
        for number in range(300):
            client.ask(op="generate", prompt="x" * 200_000, id=f"p{number}", stream=True)
            client.call(op="cancel", id=f"p{number}")
        assert box.rss_kb() < before + 30_000
        os.kill(worker, signal.SIGCONT)
        assert client.call(op="generate", prompt="n=2")["text"] == "t0 t1 "


@pytest.mark.parametrize("line", ["health_interval_s: .inf", "limits: {drain_s: .inf}", "health_interval_s: 1.0e+12"])
def test_a_time_without_end_is_refused_at_sighup_and_the_service_goes_on(daemon: Daemon, line: str) -> None:
    daemon.config.write_text(line)
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: "configuration_refused" in daemon.log.read_text(), "the refusal")
    with daemon.client() as client:
        assert client.call(op="generate", prompt="n=1")["ok"]


def test_the_longest_time_allowed_is_borne(daemon: Daemon) -> None:
    daemon.settings |= {"health_interval_s": 31_536_000, "limits": {"result_ttl_s": 31_536_000, "drain_s": 0.2}}
    daemon.write_config()
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_status(lambda s: s["limits"]["result_ttl_s"] > 1e6, "the new limits")
    with daemon.client() as client:
        assert client.call(op="generate", prompt="n=1")["ok"]


def test_an_empty_file_at_sighup_is_one_being_written(daemon: Daemon) -> None:
    daemon.config.write_text("")
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: "configuration_refused" in daemon.log.read_text(), "the refusal")
    with daemon.client() as client:
        assert client.call(op="status")["limits"]["drain_s"] == 0.2


def test_status_names_what_runs_and_what_is_wanted(tmp_path: Path) -> None:
    with running(
        tmp_path, limits={"drain_s": 0.2}, model=tiny_gguf(tmp_path / "tiny load=1.gguf"), worker="named_worker"
    ) as box:
        box.settings["profiles"] = [{"name": "small", "context": 512}]
        box.write_config()
        box.process.send_signal(signal.SIGHUP)
        status = box.wait_status(lambda s: s["watchdog"]["reload"], "the replacement")
        assert (status["profile"], status["model"]["context"], status["ready"]) == ("default", 4096, True)
        assert status["watchdog"]["profile"]["wanted"] == "small"
        status = box.wait_status(lambda s: s["profile"] == "small" and s["ready"], "the next worker")
        assert (status["model"]["context"], status["watchdog"]["reload"]) == (512, None)


def test_a_state_directory_that_cannot_be_had_costs_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with running(tmp_path / "box", state_dir=str(tmp_path / "file/state")) as box, box.client() as client:
        assert client.call(op="generate", prompt="n=1")["ok"]
        assert any("remembered" in warning for warning in client.call(op="status")["warnings"])


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
def test_cancelled_prompts_of_one_user_do_not_hold_up_another(tmp_path: Path) -> None:
    with running(open_to_others(tmp_path) / "box", limits={"drain_s": 0.2}) as box, box.client() as client:
        other = Stranger(box, uid=54321)
        try:
            for number in range(100):
                client.ask(op="generate", prompt="n=4000 delay=0.05", id=f"c{number}", stream=True)
                client.ask(op="cancel", id=f"c{number}")
            assert other.do(call={"op": "generate", "prompt": "n=2"})["text"] == "t0 t1 "
        finally:
            other.close()
