"""What the journal says: so much is on the disk, or will not be (`edged.broker.ledger`). Pure."""

from __future__ import annotations

from edged.broker.instructions import Instruction, Refuse, Reply
from edged.broker.ledger import Held
from edged.broker.lives import Lives
from edged.broker.table import Request, State
from edged.errors import Code, WireError


class Written:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._ledger = lives.ledger

    def written(self, number: int, now: float) -> list[Instruction]:
        """All records up to `number` are where they should be."""
        out: list[Instruction] = []
        for topic in [topic for topic, held in self._ledger.held.items() if held.number <= number]:
            out += self._tell(topic, self._ledger.held.pop(topic), now)
        return out

    def failed(self, number: int, now: float) -> list[Instruction]:
        """Records up to `number` are not on the disk and may never be."""
        out: list[Instruction] = []
        for topic in [topic for topic, held in self._ledger.held.items() if held.number <= number]:
            out += self._give_up(topic, now)
        return out

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for topic in [topic for topic, held in self._ledger.held.items() if held.until <= now]:
            out += self._give_up(topic, now)
        return out

    def next_wake(self) -> float:
        return min((held.until for held in self._ledger.held.values()), default=float("inf"))

    def _tell(self, topic: str, held: Held, now: float) -> list[Instruction]:
        request = self._lives.table.on_topic(topic)
        if request is None or not request.unwritten:
            return held.out
        request.unwritten = False
        out = held.out + self._lives.dispatch()
        if request.state is State.QUEUED and request.stream.mode is not False:
            out.append(self._lives.queued(request, now))
        self._lives.watch(request, now)
        return out

    def _give_up(self, topic: str, now: float) -> list[Instruction]:
        held = self._ledger.held.pop(topic)
        request = self._lives.table.on_topic(topic)
        if held.ended or request is None:
            self._lives.pace.counters["journal_late"] += 1
            return held.out
        return self._refuse(request, held, now)

    def _refuse(self, request: Request, held: Held, now: float) -> list[Instruction]:
        """It was not accepted after all: everybody who would have had a ticket is told so."""
        error = WireError(Code.UNAVAILABLE, "`journal: disk`, and the disk did not take it", 2000)
        out: list[Instruction] = [Refuse(one.to, one.id, error) for one in held.out if isinstance(one, Reply)]
        request.stream.to = None
        request.unwritten = False
        return out + self._lives.fail(request, now, error, aside=True)
