"""The synchronous client against real daemons: everything that can get lost does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, running, until
from proxy import Proxy

from edged.client import (
    Accepted,
    Anew,
    Busy,
    Client,
    Loading,
    MissingFeature,
    NoAnswer,
    NotFound,
    Pace,
    Piece,
    Progress,
    Replaced,
    Result,
    WorkerLost,
)
from wire.test_tcp import free_port

LIMITS = {"drain_s": 0.2, "orphan_grace_ms": 300}
QUICK = Pace(first_try_s=0.2, silence_s=0.3)
"""Retries and silence after a moment: the rules are the same."""
TEN = "".join(f"t{n} " for n in range(10))


@pytest.fixture
def edged(shared: Daemon) -> Client:
    return Client(shared.request_endpoint)


@pytest.fixture
def through(shared: Daemon, tmp_path: Path) -> Iterator[Callable[..., tuple[Proxy, Client]]]:
    """A client that reaches the daemon through a proxy."""
    started = []

    def make(**pace: float) -> tuple[Proxy, Client]:
        proxy = Proxy(shared.context, f"ipc://{tmp_path}/request.sock", shared.request_endpoint)
        proxy.start()
        started.append(proxy)
        streams = {proxy.endpoint: shared.stream_endpoint}
        return proxy, Client(
            proxy.endpoint, streams=streams, pace=Pace(**{"first_try_s": 0.2, "silence_s": 0.3} | pace)
        )

    yield make
    for proxy in started:
        proxy.stop()


class Losing:
    """Loses the first messages that `which` says, `times` of them."""

    def __init__(self, which: Callable[[dict[str, Any]], bool], times: int = 1) -> None:
        self.which, self.left = which, times

    def __call__(self, message: dict[str, Any]) -> bool:
        if self.left and self.which(message):
            self.left -= 1
            return False
        return True


# ---- without trouble -------------------------------------------------------------------------------------------


def test_the_verbs(edged: Client) -> None:
    pong = edged.ping()
    assert {"stream_reply", "stream_pub"} <= set(pong.features)
    assert edged.status().ready
    assert edged.tokenize("four").count == 4
    assert edged.tokenize(messages="four").fits
    result = edged.generate("n=3", id="verbs", seed=7)
    assert (result.text, result.finish_reason, result.seed) == ("t0 t1 t2 ", "stop", 7)
    assert result.usage.completion_tokens == 3
    assert edged.result("verbs") == result
    assert edged.cancel("verbs") == "finished"
    with pytest.raises(NotFound):
        edged.cancel("nobody")
    with pytest.raises(NotFound):
        edged.result("nobody")
    assert edged.generate(prompt="n=2", max_tokens=1).finish_reason == "length"
    found = edged.embed(["one two", "three"])
    assert found.embeddings == ((0.5,) * 4,) * 2
    assert (found.usage.prompt_tokens, found.usage.total_tokens) == (3, 3)
    assert found.model
    assert (edged.warm("one two").tokens, edged.warm([{"role": "system", "content": "x"}]).cached_tokens) == (2, 1)
    edged.require("embed", "warm", "stop")
    with pytest.raises(MissingFeature, match="no feature `telepathy`") as caught:
        edged.require("warm", "telepathy")
    assert caught.value.feature == "telepathy"


def test_an_embed_that_takes_long_is_asked_once(tmp_path: Path) -> None:
    with running(tmp_path, limits=LIMITS) as box:
        edged = Client(box.request_endpoint, pace=QUICK)
        with pytest.raises(NoAnswer):
            edged.embed(["stall=1"], deadline_s=1.0)
        with pytest.raises(NoAnswer):
            edged.embed(["stall=1"], deadline_s=0.1)
        assert edged.embed(["one"]).embeddings  # two of a share of four are taken


def test_a_worker_lost_over_an_embed_is_tried_again(tmp_path: Path) -> None:
    with running(tmp_path, limits=LIMITS) as box:
        with pytest.raises(WorkerLost):
            Client(box.request_endpoint).embed(["die=KILL"], deadline_s=0.9)
        assert Client(box.request_endpoint).embed(["one"], deadline_s=20).embeddings


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_a_stream_in_pieces(edged: Client, mode: str) -> None:
    with edged.stream("n=10 delay=0.002 chunks=2", mode=mode) as stream:
        pieces = list(stream)
    assert "".join(pieces) == stream.text == stream.result.text == TEN
    assert len(pieces) > 1
    assert (stream.run, stream.result.id) == (1, stream.id)


def test_result_waits(edged: Client) -> None:
    with edged.stream("n=4000 delay=0.01", max_tokens=4000, id="slow"):
        early = edged.result("slow")
        assert isinstance(early, Progress)
        assert early.state in ("queued", "running")
    late = edged.result("slow", wait_s=30)
    assert isinstance(late, Result)
    assert late.finish_reason == "cancelled"


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_leaving_early_cancels(edged: Client, mode: str) -> None:
    with edged.stream("n=4000 delay=0.005", max_tokens=4000, mode=mode, deadline_s=600) as stream:
        next(stream)
    kept = edged.result(stream.id)
    assert isinstance(kept, Result)
    assert kept.finish_reason == stream.result.finish_reason == "cancelled"
    assert edged.generate("n=1").text == "t0 "


def test_a_detached_stream_is_left_running(edged: Client) -> None:
    with edged.stream("n=20 delay=0.01", detach=True) as stream:
        next(stream)
    with pytest.raises(RuntimeError, match="closed"):
        assert stream.result
    kept = edged.result(stream.id, wait_s=30)
    assert isinstance(kept, Result)
    assert kept.usage.completion_tokens == 20


def test_cancel_from_another_thread(edged: Client) -> None:
    with edged.stream("n=4000 delay=0.005", max_tokens=4000, deadline_s=600) as stream:
        next(stream)
        thread = threading.Thread(target=stream.cancel)
        thread.start()
        assert stream.result.finish_reason == "cancelled"
        thread.join()
    assert stream.result.usage.completion_tokens > 0


def test_one_client_many_threads(edged: Client) -> None:
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        with edged.stream(f"n=10 word=w{number}") as stream:
            texts[number] = "".join(stream)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {n: f"w{n}" * 10 for n in range(16)}


def test_a_client_made_before_a_fork_works_after_it(shared: Daemon) -> None:
    code = f"""
        import os
        from edged.client import Client
        edged = Client({shared.request_endpoint!r})
        assert edged.generate("n=1").text == "t0 "
        child = os.fork()
        assert edged.generate("n=2").text == "t0 t1 "
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


# ---- lost messages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, "reply", "pub"])
def test_a_lost_request_is_sent_again_and_runs_once(through: Any, mode: str | None) -> None:
    proxy, edged = through()
    proxy.up = Losing(lambda m: m["op"] == "generate", times=2)
    before = edged.status().raw["counters"].get("accepted", 0)
    if mode is None:
        assert edged.generate("n=10", deadline_s=30).text == TEN
    else:
        assert "".join(edged.stream("n=10", mode=mode, deadline_s=30)) == TEN
    assert proxy.lost == 2
    assert edged.status().raw["counters"].get("accepted", 0) == before + 1


def test_a_lost_answer_is_asked_for_again(through: Any) -> None:
    proxy, edged = through()
    proxy.down = Losing(lambda m: "text" in m)
    before = edged.status().raw["counters"].get("accepted", 0)
    assert edged.generate("n=10", deadline_s=30).text == TEN
    assert (proxy.lost, edged.status().raw["counters"].get("accepted", 0)) == (1, before + 1)


def test_a_lost_ticket(through: Any) -> None:
    proxy, edged = through()
    proxy.down = Losing(lambda m: "topic" in m)
    with edged.stream("n=10 delay=0.01", deadline_s=30) as stream:
        assert "".join(stream) == TEN
    assert stream.run == 1


@pytest.mark.parametrize("seq", [0, 3, 7])
def test_lost_events_are_made_up_for(through: Any, seq: int) -> None:
    proxy, edged = through()
    proxy.down = Losing(lambda m: m.get("seq") == seq and m["type"] != "snapshot")
    with edged.stream("n=10 delay=0.005", deadline_s=30) as stream:
        events = list(stream.events())
    assert proxy.lost == 1
    assert "".join(e.text for e in events if isinstance(e, Piece)) == TEN
    assert stream.run == 1
    assert len([e for e in events if isinstance(e, Accepted)]) == 2


@pytest.mark.parametrize("kinds", [("end",), ("token", "end")])
def test_a_lost_end_is_found_by_the_silence_rule(through: Any, kinds: tuple[str, ...]) -> None:
    proxy, edged = through()
    proxy.down = Losing(lambda m: m.get("type") in kinds, times=100)
    with edged.stream("n=10", deadline_s=30) as stream:
        assert "".join(stream) == TEN


def test_a_third_of_everything_is_lost(through: Any) -> None:
    proxy, edged = through(first_try_s=0.1, silence_s=0.1)
    count = [0]

    def every_third(message: dict[str, Any]) -> bool:
        count[0] += 1
        return count[0] % 3 != 0

    proxy.up = proxy.down = every_third
    with edged.stream("n=30 delay=0.003", deadline_s=60) as stream:
        assert "".join(stream) == stream.result.text == "".join(f"t{n} " for n in range(30))
    assert stream.run == 1


def test_nothing_gets_through(through: Any) -> None:
    proxy, edged = through(grace_s=0.1)
    proxy.up = lambda message: False
    for ask in (
        lambda: edged.generate("n=1", deadline_s=0.5),
        lambda: edged.generate("n=1", deadline_s=60, answer_s=0.4),
        lambda: list(edged.stream("n=1", deadline_s=0.5)),
        lambda: edged.ping(deadline_s=0.3),
        lambda: edged.result("x", wait_s=0.1, deadline_s=0.2),
    ):
        with pytest.raises(NoAnswer, match="no answer from ipc://"):
            ask()


# ---- busy, loading, dying --------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Daemon]:
    limits = {**LIMITS, "queue": 1, "queue_per_identity": 1}
    quick = {"restart": {"max": 100, "backoff_s": 0.01, "backoff_max_s": 0.02}}
    with running(tmp_path / "small", script="sequences=1", limits=limits, watchdog=quick) as box:
        yield box


def test_busy_is_waited_out(small: Daemon) -> None:
    """Slot, two prepared ones and the queue are full; when they are gone the refused one gets its turn."""
    edged = Client(small.request_endpoint)
    full = [edged.stream("n=4000 delay=0.02", max_tokens=4000, deadline_s=600, retry=False) for _ in range(4)]
    for stream in full:
        assert isinstance(next(stream.events()), Accepted)
    with pytest.raises(Busy) as caught:
        edged.generate("n=1", retry=False)
    assert caught.value.retryable
    assert caught.value.retry_after > 0
    with pytest.raises(Busy):
        edged.generate("n=1", deadline_s=0.01)
    refused = edged.status().raw["counters"]["refused_busy"]
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(edged.generate("n=3", deadline_s=60).text))
    thread.start()
    small.wait_status(lambda s: s["counters"]["refused_busy"] > refused, "the refusal")
    for stream in full:
        stream.close()
    thread.join()
    assert texts == ["t0 t1 t2 "]


def test_backing_off_costs_no_cpu(small: Daemon) -> None:
    """A ratio in one run: processor time over wall time, while a refused request waits for its turn."""
    edged = Client(small.request_endpoint)
    full = [edged.stream("n=4000 delay=0.02", max_tokens=4000, deadline_s=600, retry=False) for _ in range(4)]
    for stream in full:
        assert isinstance(next(stream.events()), Accepted)
    wall, cpu = time.monotonic(), time.thread_time()
    with pytest.raises((Busy, NoAnswer)):
        edged.generate("n=1", deadline_s=1)
    assert (time.thread_time() - cpu) / (time.monotonic() - wall) < 0.5
    for stream in full:
        stream.close()


def test_loading_is_waited_out(tmp_path: Path) -> None:
    box = Daemon(tmp_path, script="load=0.5", limits=LIMITS)
    try:
        box.start(ready=False)
        edged = Client(box.request_endpoint)
        with pytest.raises(Loading):
            edged.generate("n=1", retry=False)
        with edged.stream("n=10", deadline_s=60) as stream:
            assert "".join(stream) == TEN
        assert stream.run == 1
    finally:
        box.close()


def test_a_client_may_be_there_before_the_daemon(tmp_path: Path) -> None:
    box = Daemon(tmp_path, limits=LIMITS)
    edged = Client(box.request_endpoint)
    stream = edged.stream("n=10", deadline_s=60)
    try:
        box.start(ready=False)
        assert "".join(stream) == TEN
    finally:
        stream.close()
        box.close()


def test_a_lost_worker_is_told_and_the_text_goes_on(small: Daemon) -> None:
    edged = Client(small.request_endpoint)
    with edged.stream("n=4000 delay=0.01", max_tokens=60, deadline_s=60) as stream:
        for _ in range(3):
            next(stream)
        os.kill(small.worker_pid(), signal.SIGKILL)
        events = list(stream.events())
    assert [e.reason for e in events if isinstance(e, Replaced)] == ["SIGKILL"]
    assert not any(isinstance(e, Anew) for e in events)
    assert stream.result.text == stream.text == "".join(f"t{n} " for n in range(60))
    assert (stream.result.usage.completion_tokens, stream.run) == (60, 1)


def test_a_prompt_that_kills_workers_is_not_repeated_for_ever(small: Daemon) -> None:
    edged = Client(small.request_endpoint)
    with pytest.raises(WorkerLost):
        edged.generate("n=10 die=ABRT@2", deadline_s=60)
    assert small.wait_status(lambda s: s["ready"], "ready")["watchdog"]["worker_deaths"] == 3


@pytest.mark.parametrize("journal", ["ram", "off"])
@pytest.mark.parametrize("mode", ["reply", "pub", None])
def test_a_daemon_killed_in_mid_stream(tmp_path: Path, mode: str | None, journal: str) -> None:
    """kill -9 and started again: the stream goes on; without a journal the whole text of the new run arrives, told as
    anew. Neither waits for silence."""
    box = Daemon(tmp_path, limits=LIMITS, journal=journal).start()
    edged = Client(box.request_endpoint)
    prompt = "n=4000 delay=0.005"
    try:
        if mode is None:
            results: list[Result] = []
            ask = lambda: results.append(edged.generate(prompt, max_tokens=50, deadline_s=60, id="whole"))  # noqa: E731
            thread = threading.Thread(target=ask)
            thread.start()
            box.wait_status(lambda s: s["slots"]["busy"], "work")
            box.stop(signal.SIGKILL)
            box.start(ready=False)
            thread.join()
            assert results[0].usage.completion_tokens == 50
            return
        with edged.stream(prompt, max_tokens=50, mode=mode, deadline_s=60) as stream:
            pieces = {1: next(stream), 2: ""}  # more than a token, where a snapshot brought it
            first = edged.ping().instance
            box.stop(signal.SIGKILL)
            box.start(ready=False)
            for piece in stream:
                pieces[stream.run] += piece
        last = 2 if journal == "off" else 1
        assert stream.run == last
        assert pieces[last] == stream.result.text == "".join(f"t{n} " for n in range(50))
        assert stream.result.instance != first
    finally:
        box.close()


def test_a_stopped_daemon_is_waited_for(tmp_path: Path) -> None:
    """SIGSTOP: nothing is refused or cut, there is only silence; then it goes on where it was."""
    with running(tmp_path, limits=LIMITS) as box:
        edged = Client(box.request_endpoint, pace=QUICK)
        with edged.stream("n=100 delay=0.005", deadline_s=60) as stream:
            next(stream)
            box.process.send_signal(signal.SIGSTOP)
            with pytest.raises(NoAnswer):
                edged.ping(deadline_s=1.0)
            box.process.send_signal(signal.SIGCONT)
            rest = "".join(stream)
        assert stream.run == 1
        assert "t0 " + rest == stream.result.text
        assert stream.result.usage.completion_tokens == 100


# ---- tcp -------------------------------------------------------------------------------------------------------------


def test_over_tcp(tmp_path: Path) -> None:
    port = free_port()
    places = {"request": [f"tcp://127.0.0.1:{port}"], "stream": [f"tcp://127.0.0.1:{port + 1}"]}
    box = Daemon(tmp_path, listen=places, security={"allow_insecure_tcp": True}, limits=LIMITS)
    try:
        box.start(ready=False)
        edged = Client(f"tcp://127.0.0.1:{port}")
        for mode in ("reply", "pub"):
            assert "".join(edged.stream("n=10", mode=mode, deadline_s=60)) == TEN
    finally:
        box.close()


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------

READER = """
import asyncio, sys
from edged.client import AsyncClient, Client

async def go(id):
    async with AsyncClient(sys.argv[1]) as edged:
        async with edged.stream('n=4000 delay=0.01', max_tokens=4000, id=id) as stream:
            async for piece in stream:
                print(piece, flush=True)

edged = Client(sys.argv[1])
try:
    {what}
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    "what",
    [
        "[print(p, flush=True) for p in edged.stream('n=4000 delay=0.01', max_tokens=4000, id='ctrl-c-0')]",
        "edged.generate('n=4000 delay=0.01', max_tokens=4000, id='ctrl-c-1', deadline_s=600)",
        "[print(p) for p in edged.stream('n=4000 delay=0.01', max_tokens=4000, id='ctrl-c-2', mode='pub')]",
        "asyncio.run(go('ctrl-c-3'))",
    ],
)
def test_ctrl_c_leaves_and_cancels(shared: Daemon, what: str) -> None:
    edged = Client(shared.request_endpoint)
    request_id = what[what.index("ctrl-c") :][:8]
    command = [sys.executable, "-c", READER.format(what=what), shared.request_endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:

        def begun() -> bool:
            try:
                return bool(edged.result(request_id).text)
            except NotFound:
                return False

        until(begun, "the request")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (out.splitlines()[-1], err) == ("interrupted", "")
    kept = edged.result(request_id)
    assert isinstance(kept, Result)
    assert kept.finish_reason == "cancelled"
