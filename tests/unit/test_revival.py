"""A request that ends the daemon at once, each time, ends; any other that comes back as often does not."""

from __future__ import annotations

import pytest

from edged.broker.instructions import Instruction
from edged.broker.ledger import image
from edged.broker.record import Record
from edged.broker.revival import LIVED_S
from edged.broker.story import Story
from unit.rig import A, Rig, answer, code, events


class Lives:
    """One daemon after the other, each killed; `log` is what it would have in its file."""

    def __init__(self) -> None:
        self.rig = Rig(sequences=1)
        self.rig.lives.ledger.on = True
        self.log: list[Record] = []
        self.count = 0
        self.out: list[Instruction] = []

    def next(self, *, lost: bool = False) -> Rig:
        self.log += self.rig.lives.ledger.take()
        self.count += 1
        new = Rig(sequences=0, topics_from=100 * self.count)
        new.now = self.rig.now + 1
        new.lives.ledger.on = True
        found = Story().feed(self.log).found
        self.out = new.checked(new.broker.recovered(found.lose() if lost else found, new.now))
        new.lives.ledger.take()
        self.log = list(image(list(new.lives.table), list(new.lives.results), new.lives.model))
        self.rig = new
        return new


def begun() -> Lives:
    lives = Lives()
    lives.rig.generate("poison", stream="reply")
    lives.rig.generate("other", stream="pub")
    return lives


def test_four_daemons_that_got_nowhere_are_enough():
    lives = begun()
    for _ in range(3):
        rig = lives.next()
        rig.ready(1)
        assert len(rig.lives.table) == 2
    rig = lives.next()
    assert len(rig.lives.table) == 0
    error = answer(rig.result("poison"))["error"]
    assert (error["code"], error["retryable"]) == ("worker_lost", False)
    assert "3 times" in error["message"]
    assert [e["type"] for e in events(lives.out) if e["type"] == "end"]
    assert code(rig.generate("poison", stream=False)) in ("worker_lost", "id_conflict")
    assert code(lives.next().result("poison", A)) == "worker_lost", "the next one knows it too"


@pytest.mark.parametrize("what", ["read", "sampled", "ended", "lived"])
def test_one_that_got_somewhere_ends_nothing(what: str):
    lives = begun()
    for number in range(12):
        rig = lives.next()
        rig.ready(1)
        rid = rig.rid("poison")
        match what if number % 3 == 2 else "":
            case "read":
                if rig.request("poison").prompt_ids == b"":
                    rig.prompted(rid, 4)
                rig.prefill(rid)
            case "sampled":
                rig.run(rid, "x")
            case "ended":
                rig.generate(f"third{number}", deadline_ms=1)
                rig.wait(0.1)
            case "lived":
                rig.wait(LIVED_S)
    assert rig.lives.table.find(A, "poison") is not None
    assert rig.lives.table.find(A, "other") is not None


def test_power_cuts_are_not_counted():
    lives = begun()
    for _ in range(9):
        lives.next(lost=True).ready(1)
    assert len(lives.rig.lives.table) == 2


def test_one_that_came_later_is_tried_again():
    lives = begun()
    for _ in range(2):
        lives.next().ready(1)
    lives.rig.generate("later", stream="pub")
    lives.next().ready(1)
    rig = lives.next()
    assert [request.id for request in rig.lives.table] == ["later"]
    rig.ready(1)
    for _ in range(3):
        lives.next().ready(1)
    assert len(lives.rig.lives.table) == 0
