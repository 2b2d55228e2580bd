"""Nothing that one peer does harms another (protocol 11): short sieges; long ones are in tests/chaos/test_peers.py."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from attacker import GOOD, message, shake
from harness import Client, running, until
from siege import Castle, Good, attack, castle

root = pytest.mark.skipif(os.geteuid() != 0, reason="an attacker of another uid takes root")

SPARE = {"drain_s": 0.2, "spare_memory_bytes": 40 << 20}


@pytest.mark.parametrize("wall", ["ipc", "tcp"])
def test_messages_without_end_cost_their_sender_the_connection_and_nobody_the_service(
    tmp_path: Path, wall: str
) -> None:
    with castle(tmp_path, wall, limits=SPARE) as box, Good(box) as good:
        until(lambda: good.streams, "the good client's first stream")
        before = box.rss_kb()
        with attack(box, "more"):
            until(lambda: box.counters().get("connections_banned"), "the ban")
            streams = good.streams
            until(lambda: good.streams > streams, "another stream")
        until(lambda: box.rss_kb() < before * 1.1 + 1000, f"{before} kB again")
        assert good.faults == []
        assert "memory_rebinds" not in box.counters(), "it was known who it was"


def test_a_message_of_a_million_frames_is_thrown_away_as_it_is_read(tmp_path: Path) -> None:
    with castle(tmp_path) as box, Good(box) as good:
        with attack(box, "wide", count=300_000):
            until(lambda: box.counters().get("connections_banned"), "the ban")
            streams = good.streams
            until(lambda: good.streams > streams, "another stream")
        assert good.faults == []
        assert "endless message" in box.log.read_text()


@pytest.mark.parametrize("wall", ["ipc", "tcp"])
@pytest.mark.parametrize("socket", ["DEALER", "SUB"])
def test_a_peer_that_is_gone_before_its_messages_are_read_does_not_end_the_process(
    tmp_path: Path, wall: str, socket: str
) -> None:
    """libzmq 4.3.5 with RCVHWM: `Assertion failed: !_io_error`, within a tenth of a second."""
    with castle(tmp_path, wall) as box, Good(box) as good, attack(box, "hangup", socket=socket):
        until(lambda: len(good.times) > 60, "answers")
        assert good.faults == []
        assert box.process.poll() is None


def test_a_connection_that_is_there_outlives_a_flood_of_handshakes_from_its_own_address(tmp_path: Path) -> None:
    """New ones are kept out with their neighbour (docs/security.md); who speaks already is not cut for it."""
    with castle(tmp_path, "tcp") as box, contextlib.closing(Client(box.context, box.tcp["request"])) as client:
        stream = client.stream(id="mine", prompt="n=300 delay=0.01", max_tokens=400)
        next(stream)
        with attack(box, "halfopen", count=150, source="127.0.0.1"):
            until(lambda: box.counters().get("peers_barred"), "the address is barred")
            *_, end = stream
        assert (end["finish_reason"], end["usage"]["completion_tokens"]) == ("stop", 300)


@root
def test_half_read_frames_are_found_without_a_trace_of_who_sent_them(tmp_path: Path) -> None:
    """Nothing waits in the kernel: callers are cut in turn, and the good one comes back by itself."""
    with castle(tmp_path, limits=SPARE) as box, Good(box) as good:
        until(lambda: good.streams, "the good client's first stream")
        with attack(box, "halves", count=60, bytes=1_000_000):
            until(lambda: box.counters().get("memory_hunts"), "the hunt")
            until(lambda: "memory_back" in box.log.read_text() or box.rss_kb() < 60_000, "the memory again")
            streams = good.streams
            until(lambda: good.streams > streams, "another stream")
        assert good.faults == []


@root
def test_a_user_who_taints_the_stream_socket_with_ever_new_processes_is_banned_as_a_whole(tmp_path: Path) -> None:
    with castle(tmp_path) as box, Good(box) as good, attack(box, "taint"):
        until(lambda: box.counters().get("connections_banned", 0) > 20, "the ban")
        streams = good.streams
        until(lambda: good.streams > streams + 1, "streams")
        assert box.counters()["tainted"] <= 3
        assert good.faults == []


@root
def test_a_crowd_that_connects_and_says_nothing_is_kept_out_by_the_kernel(tmp_path: Path) -> None:
    with castle(tmp_path) as box, Good(box) as good:
        until(lambda: good.streams, "the good client's first stream")
        with attack(box, "halfopen", count=2000):
            until(lambda: box.counters().get("peers_barred"), "the bar")
            until(lambda: box.descriptors() < 200, "the descriptors again")
            streams = good.streams
            until(lambda: good.streams > streams, "another stream")
        assert good.faults == []


@root
@pytest.mark.parametrize("descriptors", [64, 300])
def test_however_few_descriptors_there_are_the_service_stays_up(tmp_path: Path, descriptors: int) -> None:
    """accept() without a free descriptor would end the process inside of libzmq."""
    box = Castle(tmp_path, "ipc")
    try:
        box.open(before=("prlimit", f"--nofile={descriptors}:{descriptors}"))
        pid = box.pid
        with attack(box, "halfopen", count=1000):
            worker = box.worker_pid()
            os.kill(worker, signal.SIGKILL)
            until(lambda: box.worker_pid() not in (None, worker), "another worker")
            with Good(box) as good:
                until(lambda: len(good.times) > 20, "answers")
            with box.operator() as operator:
                status = operator.call(op="status")
        assert good.faults == []
        assert status["connections"]["limit"] < 256
        assert any("file descriptors" in warning for warning in status["warnings"])
        assert box.process.poll() is None
        assert box.pid == pid
        box.context.destroy(linger=0)
        assert box.stop() == 0
    finally:
        box.close()


@root
def test_in_a_full_house_the_caller_with_most_gives_way_and_operators_always_get_in(tmp_path: Path) -> None:
    limits = {"drain_s": 0.2, "connections": 12, "connections_per_identity": 12}
    with castle(tmp_path, limits=limits) as box:
        many = [box.client() for _ in range(12)]
        assert all(client.call(op="ping")["ok"] for client in many)
        late = box.client()
        late.ask(op="ping")
        assert late.silent(0.5)
        operators = [box.operator() for _ in range(5)]
        assert all(operator.call(op="ping")["ok"] for operator in operators)
        told = operators[0].call(op="status")
        assert told["connections"]["request"] >= 12
        assert told["counters"]["connections_refused"]
        with attack(box, "halves", count=4, bytes=100) as begun:
            assert begun["open"] == 4, "another user gets in"
        counters = box.counters()
        assert counters["connections_evicted"] == 4
        many[0].close()  # and once there is room again, who waited comes in by itself
        assert not late.silent(30)
        for client in (*many, late, *operators):
            client.close()


def test_a_caller_who_asks_and_does_not_read_is_owed_no_more_than_a_little(tmp_path: Path) -> None:
    with running(tmp_path, limits={"drain_s": 0.2}) as box, box.client() as client:
        client.call(op="generate", id="u", prompt="n=1 word=" + "y" * 200_000)
        before = box.rss_kb()
        with shake(box.request_endpoint) as lazy:
            for _ in range(300):
                lazy.sendall(message(b"", b'{"op":"result","id":"u"}'))
            counters = box.wait_status(lambda s: s["counters"].get("replies_undeliverable", 0) > 200, "refusals")
            assert counters["ready"]
            assert box.rss_kb() < before + 12_000, "60 MB were asked for"
            lazy.settimeout(10)
            got = 0
            while got < 200_000:
                got += len(lazy.recv(1 << 20))
        with box.client() as again:
            assert again.call(op="ping")["ok"]


def test_a_slow_reader_gets_all_of_it(tmp_path: Path) -> None:
    """Ten replies of 200 kB, read one by one: no bound is in the way of who reads."""
    with running(tmp_path, limits={"drain_s": 0.2}) as box, box.client() as client:
        client.call(op="generate", id="u", prompt="n=1 word=" + "y" * 200_000)
        for _ in range(40):
            assert len(client.call(op="result", id="u")["text"]) == 200_000


def test_an_odd_socket_type_and_an_announced_giant_do_no_harm(tmp_path: Path) -> None:
    with castle(tmp_path) as box, Good(box) as good:
        for kind in ("announce", "commands", "noise"):
            with attack(box, kind):
                mark = len(good.times)
                until(lambda mark=mark: len(good.times) > mark + 20, f"answers beside {kind}")
        assert good.faults == []
        assert box.rss_kb() < 60_000


def test_the_raw_peer_of_these_tests_is_understood(tmp_path: Path) -> None:
    with running(tmp_path, limits={"drain_s": 0.2}) as box, shake(box.request_endpoint) as sock:
        sock.sendall(message(b"", GOOD))
        assert b'"ok":true' in sock.recv(4096)
