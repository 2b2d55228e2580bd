"""The embedding machine with a model made of rules: who is first, what is freed, what is refused."""

from __future__ import annotations

import json
import math
from array import array

import pytest

pytest.importorskip("llama_cpp")

import numpy as np

from edged.errors import EngineError
from edged.messages import Embedded, Refused
from edged.worker.embedding import MAX_REPLY, Embedding, Pool
from edged.worker.vectors import Facts, rounded

CHUNK = 4


class Engine:
    cells = 600


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A token's vector is (token, position); each chunk takes a second."""

    def __init__(self, room: int | None = None, fail: str = "", **facts: object) -> None:
        self.clock, self.fail = Clock(), fail
        self.made: list[int] = []
        self.open = 0
        self.reads: list[tuple[int, int]] = []
        base = {"dimension": 2, "pooling": "mean", "named": False, "causal": True, "chunk": CHUNK}
        self.facts = Facts(**{**base, "fixed": 1 << 20, "cell": 1 << 10, **facts})
        self.machine = Embedding(
            Engine(),
            idle_s=30,
            clock=self.clock,
            room=lambda: room,
            reader=self.reader,
            about=lambda _: self.facts,
        )

    def reader(self, _engine: object, _facts: Facts, cells: int) -> Reader:
        if self.fail == "make":
            raise EngineError("no context")
        self.made.append(cells)
        self.open += 1
        return Reader(self, cells)

    def give(self, rid: int, *texts: list[int]) -> list:
        self.machine.expect(rid)
        return self.machine.prepared(rid, [array("i", text) for text in texts])

    def turn(self, *, busy: bool = False) -> list:
        return self.machine.turn(busy=busy)

    def run(self) -> list:
        said = []
        while self.machine.runnable:
            said += self.turn()
        return said

    def one(self, *texts: list[int]) -> object:
        (said,) = self.give(1, *texts) or self.run()
        return said


class Reader:
    def __init__(self, rig: Rig, cells: int) -> None:
        self.rig, self.cells, self.at = rig, cells, None

    def read(self, tokens, position: int):
        assert len(tokens) <= CHUNK
        assert position + len(tokens) <= self.cells
        assert position == self.at
        self.at += len(tokens)
        self.rig.clock.now += 1
        self.rig.reads.append((tokens[0], len(tokens)))
        if self.rig.fail == "read":
            raise EngineError("a decode failed")
        if self.rig.fail == "nan":
            return np.full((len(tokens), 2), np.nan, np.float32)
        return np.array([(t, position + n) for n, t in enumerate(tokens)], np.float32)

    def clear(self) -> None:
        self.at = 0

    def close(self) -> None:
        self.rig.open -= 1


def vector(said: object, index: int = 0) -> list[float]:
    assert isinstance(said, Embedded), said
    return json.loads(said.vectors[index])


def unit(x: float, y: float) -> list[float]:
    length = math.hypot(x, y)
    return pytest.approx([x / length, y / length], abs=1e-7)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 9, 23])
def test_the_mean_over_all_chunks(size: int) -> None:
    said = Rig().one([3] * size)
    assert vector(said) == unit(3, (size - 1) / 2)
    assert said.tokens == size


@pytest.mark.parametrize(("pooling", "expected"), [("cls", (7, 0)), ("last", (9, 5)), ("mean", (8, 2.5))])
def test_the_models_own_pooling(pooling: str, expected: tuple[float, float]) -> None:
    assert vector(Rig(pooling=pooling).one([7, 8, 8, 8, 8, 9])) == unit(*expected)


def test_numbers_are_short_and_none_is_minus_zero() -> None:
    pool = Pool("mean", 3)
    pool.add(np.array([[1.0, -1e-12, 2.0]], np.float32))
    assert pool.json() == b"[0.4472136,0.0,0.8944272]"


def test_a_vector_does_not_depend_on_its_neighbours() -> None:
    texts = [[5] * 9, [2], [8] * 4]
    together, back = Rig().one(*texts), Rig().one(*texts[::-1])
    alone = [Rig().one(text).vectors[0] for text in texts]
    assert together.vectors == back.vectors[::-1] == alone


def test_one_chunk_a_turn_and_requests_take_turns() -> None:
    rig = Rig()
    rig.give(1, [1] * 9, [1] * 9, [1] * 9)
    rig.give(2, [2])
    said = [rig.turn() for _ in range(4)]
    assert said[:3] == [[], [], []]
    assert [m.rid for m in said[3]] == [2]
    assert [m.rid for m in rig.run()] == [1]


def test_running_requests_get_two_thirds_of_the_time() -> None:
    rig = Rig()
    rig.give(1, [1] * 40)
    rig.turn(busy=True)
    read = len(rig.reads)
    for _ in range(19):
        rig.clock.now += 0.1
        rig.turn(busy=True)
    assert len(rig.reads) == read
    rig.clock.now += 0.11
    rig.turn(busy=True)
    assert len(rig.reads) == read + 1
    rig.turn(busy=False)
    assert len(rig.reads) == read + 2


def test_the_context_is_made_as_large_as_needed_and_freed_when_idle() -> None:
    rig = Rig()
    assert rig.machine.rest_ms() is None
    rig.one([1] * 5)
    rig.one([1] * 256)
    assert rig.made == [256]
    rig.one([1] * 257)
    rig.one([1] * 3)
    assert (rig.made, rig.open) == ([256, 512], 1)
    rig.one([1] * 600)
    assert (rig.made, rig.open) == ([256, 512, 600], 1)
    assert rig.machine.rest_ms() == 30_000
    rig.clock.now += 29.9
    rig.turn()
    assert rig.open == 1
    rig.clock.now += 0.2
    assert rig.machine.rest_ms() == 0
    rig.turn(busy=True)
    assert (rig.open, rig.machine.rest_ms()) == (0, None)


def test_sizes_of_contexts() -> None:
    assert [rounded(n, 4096) for n in (1, 256, 257, 512, 4000, 4096)] == [256, 256, 512, 512, 4096, 4096]
    assert rounded(1, 100) == 100


@pytest.mark.parametrize(
    ("facts", "texts", "code"),
    [
        ({}, [[1] * 601], "context_overflow"),
        ({}, [[1], []], "bad_request"),
        ({"pooling": "rank"}, [[1]], "bad_request"),
        ({"causal": False}, [[1]], "bad_request"),
        ({"dimension": MAX_REPLY // 11}, [[1], [1]], "too_large"),
    ],
)
def test_what_is_refused_before_anything_is_read(facts: dict, texts: list, code: str) -> None:
    rig = Rig(**facts)
    (said,) = rig.give(1, *texts)
    assert (said.code, rig.made, rig.machine.runnable) == (code, [], False)
    if code == "context_overflow":
        assert "601" in said.message
        assert "600" in said.message


def test_without_memory_it_is_refused_and_the_next_may_go() -> None:
    rig = Rig(room=1 << 20)
    assert rig.one([1]).code == "low_memory"
    assert (rig.open, rig.machine.runnable) == (0, False)
    assert isinstance(Rig(room=1 << 30).one([1]), Embedded)


@pytest.mark.parametrize(("fail", "code"), [("make", "unavailable"), ("read", "internal"), ("nan", "internal")])
def test_trouble_is_that_requests_own(fail: str, code: str) -> None:
    rig = Rig(fail=fail)
    said = rig.one([1])
    assert isinstance(said, Refused)
    assert (said.code, rig.open, rig.machine.runnable) == (code, 0, False)
    rig.fail = ""
    assert isinstance(rig.one([1]), Embedded)


def test_a_zero_vector_is_internal() -> None:
    assert Rig().one([0]).code == "internal"


def test_an_abort_stops_the_work_wherever_it_is() -> None:
    rig = Rig()
    rig.machine.expect(1)
    rig.machine.abort(1)
    assert rig.machine.prepared(1, [array("i", [1])]) == []
    assert not rig.machine.runnable
    rig.give(2, [2] * 9)
    rig.give(3, [3] * 9)
    rig.turn()
    rig.machine.abort(2)
    rig.machine.abort(99)
    read = len(rig.reads)
    (said,) = rig.run()
    assert said.rid == 3
    assert vector(said) == unit(3, 4)
    assert all(token == 3 for token, _ in rig.reads[read:])


def test_an_abort_of_one_in_between_leaves_the_others_as_they_are() -> None:
    rig = Rig()
    rig.give(1, [1] * 9, [1] * 9)
    rig.give(2, [2] * 9, [2] * 9)
    rig.give(3, [3] * 9)
    for _ in range(5):
        rig.turn()
    rig.machine.abort(3)
    rig.machine.abort(1)
    (said,) = rig.run()
    assert [vector(said, n) for n in range(2)] == [unit(2, 4)] * 2


def test_a_refusal_of_the_preparation_is_passed_on_once() -> None:
    rig = Rig()
    rig.machine.expect(1)
    refused = Refused(1, "internal", "x")
    assert rig.machine.prepared(1, refused) == [refused]
    assert rig.machine.prepared(1, refused) == []
