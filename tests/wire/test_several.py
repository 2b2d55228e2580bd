"""One client and several real daemons: spread, refusals, boxes that die, drain, hang and come back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, running, until

from edged.client import AsyncClient, Busy, Client, NoAnswer, NotFound, Pace, Unavailable
from edged.client.choice import ordered

LIMITS = {"drain_s": 0.2}
QUICK = Pace(first_try_s=0.3, silence_s=0.5, stay_s=1.5, avoid_s=0.5)
"""The rules are the same."""


@contextlib.contextmanager
def boxes(directory: Path, count: int, **keys: Any) -> Iterator[list[Daemon]]:
    """A test may leave some of them dead."""
    found = [Daemon(directory / name, limits=LIMITS, **keys) for name in "abc"[:count]]
    try:
        yield [box.start() for box in found]
        for box in found:
            box.context.destroy(linger=0)
            assert box.process is None or box.process.poll() == -signal.SIGKILL or box.stop() == 0
    finally:
        for box in found:
            box.close()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    """Where tests leave no traces."""
    with boxes(tmp_path_factory.mktemp("boxes"), 3) as found:
        yield found


def endpoints(found: list[Daemon]) -> list[str]:
    return [box.request_endpoint for box in found]


def instances(found: list[Daemon]) -> dict[str, Daemon]:
    return {Client(box.request_endpoint).ping().instance: box for box in found}


def at(found: list[Daemon], endpoint: str) -> Daemon:
    return next(box for box in found if box.request_endpoint == endpoint)


# ---- spread ----------------------------------------------------------------------------------------------------


def test_one_after_the_other_they_take_turns(three: list[Daemon]) -> None:
    edged = Client(endpoints(three))
    asked = Counter(edged.generate("n=1").instance for _ in range(12))
    assert sorted(asked.values()) == [4, 4, 4]
    assert all(box.outstanding == 0 for box in edged.boxes())


def test_many_at_once_from_threads_are_spread(three: list[Daemon]) -> None:
    edged = Client(endpoints(three))
    with ThreadPoolExecutor(30) as pool:
        results = list(pool.map(lambda n: edged.generate(f"tag=x{n}. n=20 delay=0.01"), range(30)))
    assert all(result.text.split(".")[0] == f"x{n}" for n, result in enumerate(results))
    assert all(7 <= count <= 13 for count in Counter(result.instance for result in results).values())


def test_many_at_once_on_a_loop_are_spread(three: list[Daemon]) -> None:
    async def ask() -> list[str]:
        edged = AsyncClient(endpoints(three))
        return [r.instance for r in await asyncio.gather(*(edged.generate("n=5 delay=0.01") for _ in range(30)))]

    assert sorted(Counter(asyncio.run(ask())).values()) == [10, 10, 10]


def test_a_box_with_less_to_do_gets_the_next(three: list[Daemon]) -> None:
    edged = Client(endpoints(three))
    with edged.stream("n=4000 delay=0.01", max_tokens=4000) as one, edged.stream("n=4000 delay=0.01") as two:
        next(one), next(two)
        busy = {box.endpoint for box in edged.boxes() if box.outstanding}
        assert len(busy) == 2
        known = instances(three)
        assert {known[edged.generate("n=1").instance].request_endpoint for _ in range(4)}.isdisjoint(busy)


def test_sessions_and_ids_stick_whatever_the_order(three: list[Daemon]) -> None:
    one, two = Client(endpoints(three)), Client(endpoints(three)[::-1])
    places = {n: one.generate("n=1", affinity=f"s{n}").instance for n in range(12)}
    assert len(set(places.values())) == 3
    assert places == {n: two.generate("n=1", affinity=f"s{n}").instance for n in places}
    mine = one.generate("n=3", id="sensor7-1")
    assert two.generate("n=3", id="sensor7-1") == mine
    assert two.result("sensor7-1") == mine


def test_the_environment_names_several(three: list[Daemon], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGED_ENDPOINT", ",".join(endpoints(three)))
    edged = Client()
    assert len({edged.generate("n=1").instance for _ in range(3)}) == 3


def test_a_verb_for_one_box_goes_to_that_box(three: list[Daemon]) -> None:
    edged = Client([box.control_endpoint for box in three])
    known = instances(three)
    for box in three:
        assert known[edged.call("requests", at=box.control_endpoint)["instance"]] is box
        assert known[edged.status(at=box.control_endpoint).instance] is box


# ---- refusals --------------------------------------------------------------------------------------------------


def test_a_drained_box_is_passed_over_and_comes_back(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as found:
        known = instances(found)
        edged = Client(endpoints(found), pace=QUICK)
        control = Client([box.control_endpoint for box in found])
        a, b = found
        with edged.stream("n=60 delay=0.02", max_tokens=60) as stream:
            next(stream)
            mine = known[stream._exchange._instance]
            control.call("drain", at=mine.control_endpoint)
            other = b if mine is a else a
            for _ in range(6):
                assert known[edged.generate("n=1", deadline_s=5).instance] is other
            assert stream.result.finish_reason == "length" or stream.result.text
            assert known[stream.result.instance] is mine
            assert stream.run == 1
        control.call("resume", at=mine.control_endpoint)
        until(lambda: len({edged.generate("n=1").instance for _ in range(4)}) == 2, "both again", 10)


def test_when_all_refuse_each_says_why(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as found:
        a, b = found
        edged = Client(endpoints(found), pace=QUICK)
        Client(a.control_endpoint).call("drain")
        b.stop(signal.SIGKILL)
        with pytest.raises(Unavailable) as caught:
            edged.generate("n=1", retry=False)
        assert "an operator is draining" in caught.value.boxes[a.request_endpoint]
        assert caught.value.boxes[b.request_endpoint] == "nobody listens there"
        assert all(endpoint in str(caught.value) for endpoint in edged.endpoints)
        a.stop(signal.SIGKILL)
        with pytest.raises(NoAnswer) as nobody:
            edged.generate("n=1", deadline_s=1)
        assert set(nobody.value.boxes.values()) == {"nobody listens there"}


def test_a_full_box_is_passed_over(tmp_path: Path) -> None:
    """One takes a single request and no queue; the other everything."""
    few = running(tmp_path / "a", limits={**LIMITS, "queue": 1}, script="sequences=1")
    many = running(tmp_path / "b", limits=LIMITS)
    with few as a, many as b:
        edged = Client(endpoints([a, b]))
        with ThreadPoolExecutor(12) as pool:
            done = list(pool.map(lambda _: edged.generate("n=20 delay=0.02", retry=False), range(12)))
        assert len(done) == 12
        assert Counter(r.instance for r in done)[Client(b.request_endpoint).ping().instance] > 6
        one = Client(a.request_endpoint)
        with ThreadPoolExecutor(12) as pool, pytest.raises(Busy):
            list(pool.map(lambda _: one.generate("n=20 delay=0.02", retry=False), range(12)))


# ---- boxes that die --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_text_that_was_shown_stays_with_its_box_over_a_restart(tmp_path: Path, mode: str) -> None:
    with boxes(tmp_path, 2) as found:
        edged = Client(endpoints(found), pace=QUICK)
        with edged.stream("n=100 delay=0.02", max_tokens=100, mode=mode, deadline_s=60) as stream:
            shown = next(stream)
            mine = at(found, stream._exchange.endpoint)
            mine.stop(signal.SIGKILL)
            later = threading.Timer(QUICK.stay_s + 1, mine.start)
            later.start()
            assert all(edged.generate("n=1").text for _ in range(4))
            shown += "".join(stream)
            later.join()
            assert shown == stream.result.text == "".join(f"t{n} " for n in range(100))
            assert stream.run == 1
            assert Client(mine.request_endpoint).ping().instance == stream.result.instance


def test_without_text_it_moves_once_the_box_is_given_up(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as found:
        known = instances(found)
        edged = Client(endpoints(found), pace=QUICK)
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(edged.generate("n=5 delay=0.5", deadline_s=30)))
        asking.start()
        (mine,) = until(lambda: [b.endpoint for b in edged.boxes() if b.outstanding], "the request is somewhere")
        until(lambda: Client(at(found, mine).control_endpoint).call("requests")["requests"], "it is accepted")
        at(found, mine).stop(signal.SIGKILL)
        asking.join(30)
        assert answers[0].text == "t0 t1 t2 t3 t4 "
        assert known[answers[0].instance] is not at(found, mine)


def test_a_box_that_hangs_is_left_alone_and_taken_back(tmp_path: Path) -> None:
    """Stopped, not dead: the kernel still takes its connections."""
    with boxes(tmp_path, 2) as found:
        known = instances(found)
        edged = Client(endpoints(found), pace=QUICK)
        a, b = found
        os.kill(a.pid, signal.SIGSTOP)
        try:
            for _ in range(8):
                assert known[edged.generate("n=1", deadline_s=20).instance] is b
            (told,) = [box for box in edged.boxes() if box.endpoint == a.request_endpoint]
            assert told.why
        finally:
            os.kill(a.pid, signal.SIGCONT)
        until(lambda: known[edged.generate("n=1").instance] is a, "a is asked again", 20)


def test_a_session_never_moves(tmp_path: Path) -> None:
    """An answer of another box would know nothing of what was said."""
    with boxes(tmp_path, 3) as found:
        known = instances(found)
        edged = Client(endpoints(found), pace=QUICK)
        home = at(found, ordered(edged.endpoints, "kitchen")[0])
        assert known[edged.generate("n=1", session="kitchen").instance] is home
        home.stop(signal.SIGKILL)
        with pytest.raises(NoAnswer, match=f"no answer from {home.request_endpoint} within"):
            edged.generate("n=1", session="kitchen", deadline_s=1)
        later = threading.Timer(0.5, home.start)
        later.start()
        edged.generate("n=1", session="kitchen", deadline_s=30)
        later.join()
        assert edged.session("kitchen").turns_total == 2
        with pytest.raises(NotFound):
            edged.session("hall")


def test_the_last_of_three_still_answers_a_crowd(tmp_path: Path) -> None:
    """Two are killed while 24 callers ask; nobody gets an error, no text is another's."""
    with boxes(tmp_path, 3) as found:
        edged = Client(endpoints(found), pace=QUICK)

        def ask(n: int) -> bool:
            text = edged.generate(f"tag=c{n}. n=10 delay=0.02", deadline_s=60).text
            return text == "".join(f"c{n}.{m} " for m in range(10))

        with ThreadPoolExecutor(12) as pool:
            right = [pool.submit(ask, n) for n in range(24)]
            until(lambda: sum(one.done() for one in right) > 3, "some are answered")
            found[0].stop(signal.SIGKILL)
            until(lambda: sum(one.done() for one in right) > 8, "some more are answered")
            found[1].stop(signal.SIGKILL)
            assert all(one.result() for one in right)


# ---- from the command line -------------------------------------------------------------------------------------


def edgectl(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EDGED_")}
    command = [sys.executable, "-m", "edged.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_edgectl_asks_any_of_several(three: list[Daemon]) -> None:
    nobody = "ipc:///nowhere/request.sock"
    done = edgectl("--endpoint", nobody, "--endpoint", ",".join(endpoints(three)), "ask", "n=3")
    assert (done.returncode, done.stdout.strip()) == (0, "t0 t1 t2")
    done = edgectl("--endpoint", f"{nobody},ipc:///nowhere2/request.sock", "--timeout", "1", "ask", "n=3")
    assert done.returncode == 3
    assert done.stderr.count("nobody listens there") == 2
    done = edgectl("--endpoint", ",".join(endpoints(three)), "status")
    assert (done.returncode, done.stderr) == (2, "edgectl: this verb asks one box: give one --endpoint\n")
