"""`journal: disk`: nothing is told before it is on the disk, nothing waits longer than a second."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.broker.instructions import Instruction
from edged.broker.ledger import COMMIT_S
from edged.broker.record import Accepted, Ended
from unit.rig import A, Rig, address, answer, answers, code, emits, ended, kinds, started, told


class Disk(Rig):
    """What has been handed over is `number`."""

    def __init__(self, sequences: int = 1, **limits: int) -> None:
        super().__init__(sequences, **limits)
        self.ledger = self.lives.ledger
        self.ledger.on = self.ledger.durable = True

    def written(self, number: int | None = None) -> list[Instruction]:
        number = self.ledger.number if number is None else number
        return self.checked(self.broker.written(number, self.now))

    def failed(self) -> list[Instruction]:
        return self.checked(self.broker.unwritten(self.ledger.number, self.now))


def test_a_ticket_waits_for_the_disk():
    rig = Disk()
    assert rig.generate("a", stream="reply") == []
    assert rig.request("a").unwritten
    out = rig.written()
    assert answer(out)["topic"]
    assert started(out) == [1]


def test_others_go_on_meanwhile():
    rig = Disk()
    rig.generate("a", stream="reply")
    rig.written()
    rig.generate("b", stream="reply")
    assert kinds(rig.run(rig.rid("a"))) == ["prefill", "token"]


def test_an_attach_and_a_result_do_not_tell_it_either():
    rig = Disk()
    rig.generate("a", stream="reply")
    assert rig.generate("a", stream="reply") == []
    assert rig.result("a") == []
    out = rig.written()
    assert len([one for one in answers(out) if "topic" in one]) == 2
    assert answer(rig.wait(1.1))["state"] == "queued"


def test_one_without_a_stream_is_given_when_it_is_written():
    rig = Disk()
    assert started(rig.generate("a")) == []
    assert started(rig.written()) == [1]


def test_a_disk_that_fails_refuses_without_a_trace():
    rig = Disk()
    rig.generate("a", stream="reply")
    rig.generate("b")
    out = rig.failed()
    assert [one["error"]["code"] for one in answers(out)] == ["unavailable"] * 2
    assert all(emit.topic is None and emit.to is None for emit in emits(out))
    assert len(rig.lives.table) == 0
    assert code(rig.result("a")) == "not_found"
    assert [type(r) for r in rig.ledger.take()] == [Accepted, Accepted, Ended, Ended]


def test_a_disk_that_hangs_is_waited_for_a_second():
    rig = Disk()
    rig.generate("a", stream="reply")
    assert answers(rig.wait(0.9)) == []
    assert code(rig.wait(0.2)) == "unavailable"


def test_an_end_waits_and_a_late_one_is_told():
    rig = Disk()
    to = address("peer")
    rig.generate("a", to=to)
    rig.written()
    rig.run(1)
    out = rig.done(1)
    assert answers(out) == []
    assert len(ended(out)) == 1
    assert rig.result("a") == []
    assert rig.generate("a") == []
    out = rig.written()
    assert len(answers(out, to)) == 1
    assert len(answers(out)) == 3
    assert len(answers(rig.result("a"))) == 1

    rig.generate("b", to=to)
    rig.written()
    rig.run(2)
    rig.done(2)
    assert answers(rig.wait(0.9), to) == []
    assert answer(rig.wait(0.2), to)["finish_reason"] == "stop"
    assert rig.lives.pace.counters["journal_late"] == 1


def test_one_that_ends_before_it_is_written_is_told_both_at_once():
    rig = Disk()
    rig.generate("a", stream="reply", deadline_ms=100)
    assert answers(rig.wait(0.2)) == []
    out = rig.written()
    assert "topic" in answers(out)[0]
    assert kinds(out) == ["end"]
    assert told(out) == []


def test_a_cancel_is_told_with_the_end():
    rig = Disk()
    rig.generate("a", stream="reply")
    rig.written()
    assert answers(rig.cancel("a")) == []
    assert answer(rig.written())["state"] == "cancelled"


def test_a_late_subscriber_hears_the_end_when_it_is_written():
    rig = Disk()
    rig.generate("a", stream="pub")
    rig.written()
    rig.run(1)
    topic = rig.topic("a")
    rig.done(1)
    approved, out = rig.subscribe(topic, A)
    assert approved
    assert out == []
    assert kinds(rig.written()) == ["end", "snapshot", "end"]


def test_nothing_is_accepted_while_the_disk_takes_nothing():
    rig = Disk()
    rig.generate("a")
    rig.written()
    rig.run(1)
    rig.ledger.why = "No space left on device"
    assert code(rig.generate("b")) == "unavailable"
    rig.done(1)
    assert len(answers(rig.wait(0.0))) == 1, "an end is told at once"


def test_a_superseding_request_waits_too():
    rig = Disk()
    rig.generate("a", stream="reply")
    rig.written()
    rig.generate("b", supersedes="a", stream="reply")
    out = rig.written()
    assert [one["id"] for one in answers(out)] == ["b"] or {one["id"] for one in answers(out)} == {"b"}
    assert started(out) == [2]


DOINGS = ("ask", "ask", "again", "result", "cancel", "say", "done", "written", "part", "fail", "wait", "listen")


class Watched:
    """Numbers the durable records as the daemon does, and sees that nothing is told before its number was written."""

    def __init__(self) -> None:
        self.rig = Disk(sequences=2)
        self.number = self.acknowledged = 0
        self.accepted: dict[str, int] = {}
        self.ended: dict[str, tuple[int, float]] = {}

    def see(self, out: list[Instruction]) -> None:
        for record in self.rig.ledger.take():
            if isinstance(record, Accepted):
                self.number += 1
                self.accepted[record.id] = self.number
                self.ended.pop(record.id, None)
            elif isinstance(record, Ended) and not record.kept.aside:
                self.number += 1
                self.ended[record.kept.id] = (self.number, record.kept.ended)
        assert self.number == self.rig.ledger.number
        for one in answers(out) + [e.fields for e in emits(out) if e.to or e.topic]:
            if one.get("ok") and ("topic" in one or one.get("state") in ("queued", "running")):
                late = one["id"] in self.ended and self.rig.now >= self.ended[one["id"]][1] + COMMIT_S
                assert late or self.accepted[one["id"]] <= self.acknowledged, one
            if "finish_reason" in one or one.get("state") in ("cancelled", "finished"):
                number, at = self.ended[one["id"]]
                assert number <= self.acknowledged or self.rig.now >= at + COMMIT_S, one

    def step(self, what: str, number: int) -> None:
        rig, one = self.rig, f"id{number % 4}"
        mode = (False, "pub", "reply")[number % 3]
        running = [r for r in rig.lives.table if r.with_worker]
        assert all(not r.unwritten for r in running), "nothing runs that may be refused"
        match what:
            case "ask" | "again":
                self.see(rig.generate(one, stream=(False, "pub", "reply", "pub")[number % 4], detach=bool(number % 5)))
            case "result":
                self.see(rig.result(one, wait_ms=number * 100))
            case "cancel":
                self.see(rig.cancel(one))
            case "wait":
                self.see(rig.wait(number * 0.1))
            case "written" | "part":
                self.acknowledged = self.number if what == "written" else max(self.acknowledged, self.number - 1)
                self.see(rig.written(self.acknowledged))
            case "fail":
                self.see(rig.checked(rig.broker.unwritten(self.acknowledged, rig.now)))
            case "listen":
                found = rig.lives.table.find(A, one) or rig.lives.results.find(A, one)
                topic = None if found is None else found.stream.topic if hasattr(found, "stream") else found.topic
                if topic is not None and self.accepted.get(one, 0) <= self.acknowledged:
                    self.see(rig.subscribe(topic.encode(), A, str(number))[1])
            case "say" if running:
                self.see(rig.run(running[number % len(running)].rid, f"{mode}"))
            case "done" if running:
                self.see(rig.done(running[number % len(running)].rid))


@given(st.lists(st.tuples(st.sampled_from(DOINGS), st.integers(0, 20)), min_size=5, max_size=60))
@settings(max_examples=80)
def test_nothing_is_told_before_it_is_written(steps: list[tuple[str, int]]):
    watched = Watched()
    for step in steps:
        watched.step(*step)
    watched.see(watched.rig.wait(COMMIT_S + 0.1))
    now = watched.rig.now
    assert all(now < held.until <= now + COMMIT_S for held in watched.rig.ledger.held.values()), "held for longer"
