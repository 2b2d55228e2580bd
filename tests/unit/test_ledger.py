"""`journal: disk`: nothing is told before it is on the disk, nothing waits longer than a second."""

from __future__ import annotations

from edged.broker.instructions import Instruction
from edged.broker.record import Accepted, Ended
from unit.rig import A, Rig, address, answer, answers, code, emits, ended, kinds, started, told


class Disk(Rig):
    """What has been handed over is `number`."""

    def __init__(self, **limits: int) -> None:
        super().__init__(sequences=1, **limits)
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
