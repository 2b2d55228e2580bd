"""Requests of an earlier daemon, in the broker of the next one."""

from __future__ import annotations

import msgspec

from edged.broker.instructions import Ask, Instruction
from edged.broker.ledger import image
from edged.broker.recovery import SILENCE_S
from edged.broker.story import Story
from edged.broker.transcript import Fetch, Fetched, Look, Looked, Opened, Stored
from edged.messages import Start
from unit.rig import A, Rig, answer, emits, events, kinds, told

SAID = {"role": "user", "content": "x"}


def rig(**limits: int) -> Rig:
    one = Rig(sequences=1, **limits)
    one.lives.ledger.on = True
    one.broker.recalled(Opened([]), 0.0)
    return one


def next_daemon(old: Rig, ready: bool = True) -> tuple[Rig, list[Instruction]]:
    """A new broker from what the old one wrote; what it says first."""
    new = Rig(sequences=0)
    new.now = old.now
    new.broker.recalled(Opened([]), new.now)
    out = new.checked(new.broker.recovered(Story().feed(old.lives.ledger.take()).found, new.now))
    if ready:
        out += new.ready(1)
    return new, out


def asked(out: list[Instruction], kind: type) -> list[int]:
    return [i.question.number for i in out if isinstance(i, Ask) and isinstance(i.question, kind)]


def starts(out: list[Instruction]) -> list[Start]:
    return [m for m in told(out) if isinstance(m, Start)]


def test_what_ran_is_carried_on_and_goes_first():
    old = rig()
    old.generate("a", stream="reply", prompt="one")
    old.generate("b", stream="pub", prompt="two")
    old.run(old.rid("a"), "hello")
    name, topic, seq = old.request("a").name, old.topic("a"), old.request("a").stream.seq
    new, out = next_daemon(old)
    first, second = starts(out)
    assert (first.prompt, first.name, first.carried.ids) == ("one", name, b"\1\0\0\0")
    assert (second.prompt, second.carried) == ("two", None)
    assert [(e["type"], e["id"], e["seq"], e["reason"]) for e in events(out)] == [("restart", "a", seq + 1, "daemon")]
    assert new.topic("a") == topic
    out = new.generate("a", stream="reply", prompt="one")
    assert events(out)[0] == {"id": "a", "type": "snapshot", "seq": seq + 1, "text": "hello", "state": "running"}
    new.sample(first.rid, " world")
    end = events(new.done(first.rid))[0]
    assert (end["text"], end["restarts"], end["seq"]) == ("hello world", 1, seq + 3)


def test_clients_have_time_to_notice():
    old = rig()
    old.generate("a", stream="pub")
    old.run(old.rid("a"))
    old.now += 100.0
    new, _ = next_daemon(old)
    assert "end" not in kinds(new.wait(SILENCE_S + 4.9))
    assert [e["finish_reason"] for e in events(new.wait(0.2)) if e["type"] == "end"] == ["cancelled"]


def test_the_deadline_runs_on():
    old = rig()
    old.generate("a", deadline_ms=5000)
    old.generate("b", deadline_ms=5000, stream="pub", detach=True)
    old.run(old.rid("a"), "some")
    old.now += 6.0
    new, _ = next_daemon(old, ready=False)
    new.wait(0.0)
    assert answer(new.result("a"))["finish_reason"] == "deadline"
    assert answer(new.result("b"))["error"]["code"] == "deadline_exceeded"


def test_requests_wait_while_the_model_loads_and_new_ones_are_refused():
    old = rig()
    old.generate("a")
    new, out = next_daemon(old, ready=False)
    assert starts(out) == []
    assert answer(new.generate("b"))["error"]["code"] == "loading"
    assert new.generate("a") == []
    assert len(starts(new.ready(1))) == 1


def test_another_model():
    old = rig()
    old.generate("text")
    old.run(old.rid("text"), "some")
    new, _ = next_daemon(old, ready=False)
    new.ready(1, model="other")
    ended = answer(new.result("text"))
    assert (ended["finish_reason"], ended["text"], ended["model"]) == ("length", "some", "tiny")


def test_a_turn_that_was_stored_is_not_stored_again():
    """The daemon went between the commit and the end: the transcript has the answer, the text was told already."""
    old = rig()
    out = old.generate("a", stream="pub", session="s", messages=[SAID])
    (number,) = asked(out, Look)
    out = old.broker.recalled(Looked(number), old.now)
    (number,) = asked(out, Fetch)
    (start,) = starts(old.broker.recalled(Fetched(number, [], [], 0, 0), old.now))
    old.run(start.rid, "hello")
    digest = old.request("a").digest
    old.done(start.rid)
    new, out = next_daemon(old)
    assert starts(out) == [], "it is looked for first"
    (number,) = asked(out, Look)
    reply = {"text": "hello", "finish_reason": "stop", "usage": {"completion_tokens": 1}}
    out = new.checked(new.broker.recalled(Looked(number, digest, reply), new.now))
    assert kinds(out) == ["end"]
    assert events(out)[0]["text"] == "hello"
    assert answer(new.result("a"))["text"] == "hello"


def test_a_turn_that_was_not_stored_goes_on_without_its_transcript():
    old = rig()
    out = old.generate(None, session="s", messages=[SAID])
    (number,) = asked(out, Fetch)
    (start,) = starts(old.broker.recalled(Fetched(number, [], [], 0, 0), old.now))
    old.run(start.rid, "hello")
    new, out = next_daemon(old)
    (number,) = asked(out, Look)
    (start,) = starts(new.checked(new.broker.recalled(Looked(number), new.now)))
    assert start.carried is not None
    new.sample(start.rid, "!")
    out = new.done(start.rid)
    turn = next(i.question.turn for i in out if isinstance(i, Ask))
    assert msgspec.json.decode(turn.messages)[-1]["content"] == "hello!"
    assert turn.window == 0
    assert len([i for i in out if isinstance(i, Ask)]) == 1
    stored = Stored(next(i.question.number for i in out if isinstance(i, Ask)), A, "s")
    new.checked(new.broker.recalled(stored, new.now))
    assert len(new.lives.table) == 0


def test_two_restarts_count_twice():
    old = rig()
    old.generate("a", stream="pub", detach=True)
    old.run(old.rid("a"), "x")
    new, _ = next_daemon(old)
    new.lives.ledger.on = True

    records = image(list(new.lives.table), [], "tiny")
    last = Rig(sequences=0)
    out = last.checked(last.broker.recovered(Story().feed(records).found, 0.0))
    assert [e.fields["type"] for e in emits(out)] == ["restart"]
    assert last.request("a").restarts == 2
