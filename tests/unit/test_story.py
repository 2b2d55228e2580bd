"""Whatever happens to requests, and wherever the journal was cut: what is read from it is what the broker knew then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.broker.ledger import image
from edged.broker.record import Accepted, Progressed, Record
from edged.broker.recovery import LEAP
from edged.broker.results import Kept
from edged.broker.story import Found, Story, merged
from edged.broker.table import Request, State
from edged.journal import format as form
from unit.rig import A, B, Rig

USUAL = ("ask", "begin", "say", "hold")
STEPS = (*USUAL * 4, "done", "cancel", "fail", "lost", "other", "wait")


@dataclass
class Moment:
    """What the broker knew when so many records were written."""

    records: int
    live: dict[str, Any]
    kept: dict[str, Kept]
    now: float


def known(request: Request) -> dict[str, Any]:
    resumable = bool(request.prompt_ids) and (request.read > 0 or bool(request.ids))
    return {
        "who": (request.identity, request.id, request.digest),
        "body": (request.body, request.sampling, request.max_tokens, request.shape),
        "text": request.stream.text,
        "seq": request.stream.seq,
        "held": request.stream.tokens_since if resumable else 0,
        "ids": list(request.ids) if resumable else [],
        "logprobs": [bytes(one) for one in request.logprobs] if resumable else [],
        "restarts": request.restarts,
        "carried": resumable,
        "prompt": (request.prompt_ids, request.public, request.cuts, request.fingerprint) if resumable else None,
        "received": request.received,
        "deadline": request.deadline,
        "mode": request.stream.mode,
        "name": request.name,
        "blame": (request.blamed, request.blamed_at),
    }


class Life:
    """A broker with a journal, and what it knew at every moment."""

    def __init__(self) -> None:
        self.rig = Rig(sequences=2, result_ttl_s=50, waiters=2)
        self.ledger = self.rig.lives.ledger
        self.ledger.on = True
        self.records: list[Record] = []
        self.moments: list[Moment] = []
        self.mark()

    def mark(self) -> None:
        self.records += self.ledger.take()
        live = {r.stream.topic: known(r) for r in self.rig.lives.table}
        kept = {k.topic: k for k in self.rig.lives.results}
        self.moments.append(Moment(len(self.records), live, kept, self.rig.now))

    def step(self, what: str, number: int) -> None:
        rig, who = self.rig, (A, B)[number % 2]
        running = sorted((r for r in rig.lives.table if r.with_worker), key=lambda r: r.rid)
        at = running[number % len(running)] if running else None
        match what:
            case "ask":
                modes = (False, "pub", "reply")
                rig.generate(f"id{number % 5}", who, stream=modes[number % 3], logprobs=number % 2, detach=True)
            case "wait":
                rig.wait(number * 2.0)
            case "lost":
                rig.lost()
                rig.ready(2)
            case "other":
                rig.lost("reload")
                rig.ready(2, model=f"model{number % 2}")
            case "cancel":
                rig.cancel(f"id{number % 5}", who)
            case _ if at is None:
                pass
            case "begin":
                if at.state is State.GIVEN and not at.carried:
                    rig.prompted(at.rid, 4 + number % 3)
                rig.prefill(at.rid)
            case "say" | "hold" if at.prompt_ids:
                rig.sample(at.rid, f"<{number}é>" if what == "say" else "", number % 3 + 1)
            case "done" if at.state is State.RUNNING:
                rig.done(at.rid)
            case "fail":
                rig.fail(at.rid)
        self.mark()


def restored(found: Found, now: float) -> tuple[dict[str, Any], dict[str, Kept], Rig]:
    rig = Rig(sequences=0, result_ttl_s=50, waiters=2)
    rig.now = now
    rig.broker.recovered(found, now)
    rig.lives.check()
    return {r.stream.topic: known(r) for r in rig.lives.table}, {k.topic: k for k in rig.lives.results}, rig


def same(moment: Moment, found: Found) -> None:
    live, kept, _ = restored(found, moment.now)
    told = {}
    for topic, one in moment.live.items():
        event = one["carried"] and one["mode"] is not False
        told[topic] = one | {"restarts": one["restarts"] + one["carried"], "seq": one["seq"] + event}
    assert live == told
    assert kept == moment.kept


lives = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 20)), min_size=8, max_size=60)


@given(lives)
@settings(max_examples=60)
def test_every_prefix_is_what_was_known_then(steps: list[tuple[str, int]]):
    life = Life()
    for step in steps:
        life.step(*step)
    for moment in life.moments:
        same(moment, Story().feed(life.records[: moment.records]).found)


@given(lives)
@settings(max_examples=40)
def test_an_image_says_the_same_as_the_log(steps: list[tuple[str, int]]):
    life = Life()
    for step in steps:
        life.step(*step)
    rig = life.rig
    records = image(list(rig.lives.table), list(rig.lives.results), rig.lives.model)
    data = form.head("boot", rig.now) + form.encode(records)
    same(life.moments[-1], Story().feed(form.decode(data).records).found)


@given(lives, st.integers(0, 1 << 16))
@settings(max_examples=60)
def test_any_cut_is_consistent(steps: list[tuple[str, int]], at: int):
    """Also between the records of one moment: nothing is both, ids and text are those of a prefix."""
    life = Life()
    for step in steps:
        life.step(*step)
    data = form.head("boot", 0) + form.encode(life.records)
    contents = form.decode(data[: at % (len(data) + 1)])
    found = Story().feed(contents.records).found
    assert not set(found.lives) & set(found.kept)
    assert not {one.key for one in found.lives.values()} & {k.key for k in found.kept.values()}
    for topic, one in found.lives.items():
        texts = {m.live[topic]["text"] for m in life.moments if topic in m.live} | {""}
        assert any(text.startswith("".join(one.pieces)) for text in texts)
    restored(found, life.rig.now)


@given(lives)
@settings(max_examples=40)
def test_two_files_make_one_story(steps: list[tuple[str, int]]):
    """The disk has acceptances and ends only: with the RAM file it adds nothing, without it nobody is lost."""
    life = Life()
    for step in steps:
        life.step(*step)
    last = life.moments[-1]
    ram = Story().feed(life.records).found
    disk = Story().feed([r for r in life.records if isinstance(r, Accepted) or not hasattr(r, "seq")]).found.lose()
    same(last, merged(ram, disk))
    alone, kept, rig = restored(disk, last.now)
    assert kept == last.kept
    assert set(alone) == set(last.live)
    for request in rig.lives.table:
        assert request.stream.seq >= LEAP - 1
        assert not request.carried


def test_a_clock_that_began_anew():
    """After another boot the deadline counts on from the last record."""
    life = Life()
    life.rig.now = 1000.0
    life.step("ask", 1)
    life.rig.wait(30)
    life.step("ask", 2)
    found = Story().feed(life.records).found
    assert found.last == 1030.0
    _, _, rig = restored(found.shifted(5.0 - found.last), 5.0)
    ages = sorted(5.0 - request.received for request in rig.lives.table)
    assert ages == [0.0, 30.0]


def test_a_record_of_nobody_is_passed_over():
    assert Story().feed([Progressed(9, [1], "x", 1, 0.0)]).found == Found()
