"""A request outlives its worker: kill -9 at any token or in its prompt, and the text is as if nothing had been."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from carry_rig import NAME, Life, packed, settings
from harness import until
from tiny_models import KINDS, VOCABULARY, tiny
from worker_rig import PATIENCE_S, Worker

from edged.messages import (
    Abort,
    CacheSettings,
    Carried,
    Discard,
    Message,
    Pace,
    Prefilled,
    Prompted,
    Quit,
    Refused,
    Sampled,
    Sampling,
    Shape,
    Shrink,
    Start,
)
from edged.worker.checkformat import _RECORD as RECORD
from edged.worker.checkformat import _RECORD_MAGIC as RECORD_MAGIC
from edged.worker.checkformat import DIGEST

Make = Callable[..., Worker]
SCHEMA = (
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "tags": {"type": "array", '
    '"items": {"type": "string", "maxLength": 12}, "minItems": 6, "maxItems": 8}}, "required": ["name", "tags"]}'
)
LONG = " ".join(f"Room {n} is {n + 15} degrees warm." for n in range(60))
ENDLESS = [(0, -100.0), (2, -100.0)]
TINY_ENDLESS = [(VOCABULARY - 3, -100.0), (VOCABULARY - 1, -100.0)]
"""No token ends the answer."""


def greedy(**more: object) -> Sampling:
    return Sampling(**{"temperature": 0, "logit_bias": TINY_ENDLESS, **more})


def seeded(**more: object) -> Sampling:
    return greedy(temperature=1.0, seed=11, **more)


def request(content: str, *, chat: bool = False, **more: object) -> Start:
    keys = {
        "rid": 1,
        "prompt": None if chat else content,
        "messages": [Message("user", content)] if chat else None,
        "max_tokens": 60,
        "stop": [],
        "sampling": greedy(),
        "name": NAME,
    }
    return Start(**keys | more)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("models"))


@pytest.fixture
def make(spawn: Make, small: Path, tmp_path: Path) -> Make:
    """A worker with checkpoints; every new one knows of the request."""

    def run(path: Path = small, **keys: object) -> Worker:
        return spawn(path, **{"checkpoints": settings(tmp_path, NAME), **keys})

    return run


def undisturbed(spawn: Make, path: Path, start: Start, **keys: object) -> Life:
    """On a worker that keeps nothing."""
    life = Life(start)
    life.live(spawn(path, cache=CacheSettings(reuse=False), **keys))
    return life


@pytest.fixture
def kept(tmp_path: Path) -> Callable[[], list[int]]:
    """Where the records of the checkpoint end, in tokens: how soon a copy is made depends on the time that the last one
    took, so tests wait for copies and not for tokens."""

    def stops() -> list[int]:
        try:
            data = (tmp_path / "ck" / f"{NAME}.ck").read_bytes()
        except FileNotFoundError:
            return []
        out: list[int] = []
        at = data.find(struct.pack("<2I", RECORD_MAGIC, 0))
        while 0 < at <= len(data) - RECORD.size:
            _, start, stop, size = RECORD.unpack_from(data, at)
            at += RECORD.size + 4 * (stop - start) + size + DIGEST
            if at <= len(data):
                out.append(stop)
        return out

    return stops


@pytest.fixture
def same(spawn: Make, small: Path) -> Callable[..., None]:
    def check(life: Life, path: Path = small, **keys: object) -> None:
        other = undisturbed(spawn, path, life.start, **keys)
        assert life.ids == other.ids
        assert life.text == other.text
        assert life.end == other.end
        assert life.logprobs == other.logprobs

    return check


# ---- real weights


def test_an_answer_goes_on_after_two_deaths(make, same, kept, model: Path) -> None:
    life = Life(request("Tell me of the sea.", chat=True, sampling=seeded(logit_bias=ENDLESS), max_tokens=160))
    life.live(make(model), lambda life: len(life.ids) >= 7)
    total = life.prefilled[0].total
    life.live(make(model), lambda life: len(life.ids) >= 66 and max(kept(), default=0) >= total + 32)
    life.live(make(model))
    assert life.restored == life.prefilled[0].total, "the prompt was not read again"
    assert life.beat <= 160 - 32, "nor was more replayed than had come since"
    same(life, model)


def done(life: Life) -> float:
    return life.prefilled[-1].done / life.prefilled[-1].total


def test_death_late_in_a_long_prompt_does_not_read_it_again(make, same, kept, model: Path) -> None:
    """More than 512 cells, where the place of each of them matters."""
    life = Life(request(LONG, max_tokens=12, sampling=greedy(logit_bias=ENDLESS)))
    life.live(make(model), lambda life: bool(life.prefilled) and done(life) >= 0.9)
    total = life.prefilled[-1].total
    assert total > 600
    assert not life.ids
    kept_by_then = kept()
    life.live(make(model))
    assert max(kept_by_then, default=0) <= life.restored < total
    assert life.restored > 0
    same(life, model)


# ---- random weights: they load quickly

CASES = {
    "penalties": (request("Count.", max_tokens=150, sampling=seeded(repeat_penalty=1.3, presence_penalty=0.5)), 33),
    "grammar": (request("A dog.", chat=True, sampling=seeded(), shape=Shape(json_schema=SCHEMA), max_tokens=200), 41),
    "stop": (request("the rain", stop=["zzzz"], sampling=seeded(), max_tokens=200), 57),
    "logprobs": (request("Name a bird.", chat=True, shape=Shape(logprobs=2), max_tokens=100), 1),
    "characters": (request("🐢🐇👩‍🔧, 🎛️ and 日本語: ", sampling=seeded(), max_tokens=150), 20),
}


@pytest.mark.parametrize("name", CASES)
def test_everything_about_an_answer_goes_on(make, same, name: str) -> None:
    start, at = CASES[name]
    life = Life(start)
    life.live(make(), lambda life: len(life.ids) >= at)
    assert life.end is None
    life.live(make())
    same(life)


def test_without_checkpoints_everything_is_read_and_replayed(spawn, same, small: Path) -> None:
    life = Life(request("Tell me of the sea.", sampling=seeded()))
    life.live(spawn(small), lambda life: len(life.ids) >= 30)
    life.live(spawn(small))
    assert life.restored == 0
    same(life)


@pytest.mark.parametrize("harm", ["cut", "flip", "head", "gone", "directory"])
def test_a_damaged_checkpoint_costs_time_only(make, same, kept, tmp_path: Path, harm: str) -> None:
    life = Life(request("Tell me of the sea.", max_tokens=1000))
    life.live(make(), lambda _: len(kept()) >= 2)
    path = tmp_path / "ck" / f"{NAME}.ck"
    data = bytearray(path.read_bytes())
    assert path.stat().st_mode & 0o777 == 0o600
    match harm:
        case "cut":
            path.write_bytes(data[:-1000])
        case "flip":
            data[len(data) - 5000] ^= 4
            path.write_bytes(data)
        case "head":
            data[12] ^= 1
            path.write_bytes(data)
        case "gone":
            path.unlink()
        case "directory":
            path.unlink()
            path.mkdir()
    life.live(make())
    total = life.prefilled[0].total
    assert life.restored == (total if harm in ("cut", "flip") else 0)
    same(life)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_memory_goes_on(make, same, kept, small: Path, kind: str) -> None:
    path = tiny(kind, small.parent)
    life = Life(request("the rain in the north " * 8, max_tokens=1000, sampling=seeded()))
    keys = {"prefill_chunk": 16}  # the window of `gemma3`
    life.live(make(path, **keys), lambda life: len(life.ids) >= 70 and bool(kept()))
    life.live(make(path, **keys), lambda life: len(life.ids) >= 150 and max(kept()) > life.prefilled[0].total)
    assert life.restored > 0
    life.live(make(path, **keys))
    assert life.restored > life.prefilled[0].total / 2  # where the last copy cannot be used in part, the one before
    same(life, path, **keys)


def test_what_is_left_over_goes_and_what_ended_goes(make, tmp_path: Path) -> None:
    directory = tmp_path / "ck"
    directory.mkdir()
    for name in ("other.ck", "another.ck.partial", f"{NAME}.ck", "unrelated"):
        (directory / name).write_bytes(b"x")
    worker = make()
    worker.ready()
    assert sorted(os.listdir(directory)) == [f"{NAME}.ck", "unrelated"]
    rid = worker.start("Hi", max_tokens=40, name=NAME, sampling=greedy())
    assert len(worker.finish(rid)[rid].ids) == 40
    other = worker.start("Hi", max_tokens=1000, name="b", sampling=greedy())
    third = worker.start("Hi", max_tokens=1000, name="../c", sampling=greedy())
    worker.until(Sampled, rid=other)
    worker.send(Abort(other), Abort(third), Discard("../unrelated"), Quit(carry=True))
    assert worker.process.wait(PATIENCE_S) == 0
    assert os.listdir(directory) == ["unrelated"]


def test_an_answer_that_was_complete_ends_at_once(make, spawn, small: Path) -> None:
    worker = make()
    for start in (
        request("1, 2, 3,", max_tokens=9),
        request("A dog.", sampling=seeded(), shape=Shape(grammar='root ::= "yes" | "no"')),
    ):
        whole = undisturbed(spawn, small, start)
        life = Life(start)
        life.prompted, life.ids = whole.prompted, whole.ids
        life.live(worker)
        assert life.end == whole.end
        assert life.text == ""
        assert life.prefilled == []


def test_what_cannot_be_is_refused_and_the_worker_lives(make) -> None:
    worker = make()
    vocab = worker.ready().vocab
    good = packed([5, 6, 7])
    for carried, code in (
        (Carried(good, 0, [], packed([vocab])), "internal"),
        (Carried(packed([4_000_000_000]), 0, [], b""), "internal"),
        (Carried(good[:-1], 0, [], b""), "internal"),
        (Carried(good, 4, [], b""), "internal"),
        (Carried(good, 0, [3], b""), "internal"),
        (Carried(b"", 0, [], good), "bad_request"),
        (Carried(packed([5] * 2000), 0, [], packed([6] * 49)), "context_overflow"),
    ):
        worker.send(request("x", carried=carried, max_tokens=4000))
        refused = worker.until(Refused, Prefilled)
        assert isinstance(refused, Refused), carried
        assert refused.code == code, refused
    assert len(worker.ask("Hi", max_tokens=3, sampling=greedy()).ids) == 3


def test_quit_and_carry_leaves_everything_for_the_next(make, spawn, small: Path, tmp_path: Path) -> None:
    """Two run; the next worker goes on with both and has next to nothing to replay."""
    old = make(cache=CacheSettings(ram_dir=str(tmp_path / "ram"), ram_bytes=8 << 20))
    old.ready()
    keys = {"max_tokens": 300, "session": True}
    pair = Pair([Life(request("Tell me of the sea.", rid=rid, name=name, **keys)) for rid, name in PAIR])
    pair.begin(old)
    pair.hear(old, lambda: min(len(life.ids) for life in pair.lives) >= 100)
    old.send(Quit(1.0, carry=True))
    pair.hear(old, lambda: False)
    assert old.process.wait(PATIENCE_S) == 0
    assert all(life.end is None for life in pair.lives)
    assert list((tmp_path / "ram").iterdir())
    new = make(checkpoints=settings(tmp_path, *[name for _, name in PAIR]))
    assert len(new.ready().fingerprint) == 32
    before = sum(len(life.ids) for life in pair.lives)
    pair.begin(new)
    pair.hear(new, lambda: all(life.end for life in pair.lives))
    assert all(life.restored == life.prefilled[0].total for life in pair.lives)
    assert [len(life.ids) for life in pair.lives] == [300, 300]
    assert pair.lives[0].beat <= 600 - before + 4


PAIR = ((1, NAME), (2, "b"))


class Pair:
    def __init__(self, lives: list[Life]) -> None:
        self.lives = lives

    def begin(self, worker: Worker) -> None:
        for life in self.lives:
            life.prefilled, life.beat = [], 0
            worker.send(life.message())

    def hear(self, worker: Worker, done: Callable[[], bool]) -> None:
        """Until the worker leaves, or that."""
        while not done():
            try:
                message = worker.next()
            except EOFError:
                return
            for life in self.lives:
                if getattr(message, "rid", life.start.rid) == life.start.rid:
                    life.hear(message)


def test_a_budget_that_is_used_up_leaves_what_is_there(make, same, kept, tmp_path: Path) -> None:
    """More tokens than the budget holds, and more than one copy; the next might be larger than what is left."""
    file = tmp_path / "ck" / f"{NAME}.ck"
    life = Life(request("Tell me of the sea.", max_tokens=1500))
    budget = settings(tmp_path, NAME, size=120_000)
    life.live(make(checkpoints=budget), lambda life: len(life.ids) >= 300 and len(kept()) >= 2)
    assert life.end is None
    assert len(kept()) >= 2
    assert file.stat().st_size <= 120_000 < file.stat().st_size / max(kept()) * 300
    life.live(make(checkpoints=budget))
    assert life.restored == life.prefilled[0].total
    same(life)


def test_shrink_drops_what_only_saves_time(make, tmp_path: Path) -> None:
    worker = make(cache=CacheSettings(ram_dir=str(tmp_path / "ram"), ram_bytes=64 << 20))
    worker.ready()
    for text in ("the rain in the north " * 5, "the sea in the south " * 5):
        worker.ask(prompt=text, max_tokens=2, sampling=greedy())
    until(lambda: list((tmp_path / "ram").iterdir()), "a snapshot: a thread of its own writes it")
    rid = worker.start(prompt="the rain", max_tokens=1000, name=NAME, sampling=greedy())
    while not (tmp_path / "ck" / f"{NAME}.ck").exists():
        worker.until(Sampled, rid=rid)
    worker.send(Shrink())
    assert worker.finish(rid)[rid].end.reason == "length"
    worker.send(Quit(carry=True))
    assert worker.process.wait(PATIENCE_S) == 0
    assert list((tmp_path / "ck").iterdir()) == []
    assert not [path for path in (tmp_path / "ram").iterdir() if path.stat().st_size > 200_000]


def test_pace_changes_no_text_and_an_abort_ends_a_pause(make) -> None:
    worker = make()
    worker.ready()
    whole = worker.ask(prompt="the rain", max_tokens=50, sampling=greedy())
    worker.send(Pace(duty=0.5))
    assert worker.ask(prompt="the rain", max_tokens=50, sampling=greedy()).ids == whole.ids
    worker.send(Pace(duty=0.02, threads=1))
    rid = worker.start(prompt="the rain " * 100, max_tokens=50)
    worker.until(Prefilled, rid=rid)
    worker.send(Abort(rid), Pace())
    assert worker.ask(prompt="the rain", max_tokens=50, sampling=greedy()).ids == whole.ids


def test_prompted_tells_what_was_read(make) -> None:
    worker = make()
    worker.ready()
    text = "the rain in the north"
    tokens = worker.tokens(text).tokens
    rid = worker.start(prompt=text, max_tokens=2)
    told = worker.until(Prompted, Prefilled, rid=rid)
    assert told == Prompted(rid, packed(tokens), 0, [])
    worker.finish(rid)
