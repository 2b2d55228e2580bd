"""`session` and `sessions` (protocol 7, 8): asked of the store, answered within a deadline of their own. Pure.

Bounded: at most MAX_PENDING at a time and MAX_PER_IDENTITY of one caller; over it `busy`. A session with a turn that
waits or runs is not deleted: `busy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from edged.broker.instructions import Ask, Caller, Instruction, Refuse, Reply, Tell
from edged.broker.lives import Lives
from edged.broker.start import scope_of
from edged.broker.transcript import Answer, Delete, Deleted, Enumerate, Enumerated, Failed, Get, Got, Opened
from edged.errors import Code, WireError
from edged.messages import Forget, SessionRequest, SessionsRequest

DEADLINE_S: Final = 10.0
MAX_PENDING: Final = 16
MAX_PER_IDENTITY: Final = 4
SHOWN_BYTES: Final = 96 << 10
"""Of turns in a reply: a peer that asks and never reads holds as many of these as its line takes."""
LISTED: Final = 500
"""Sessions in a reply, some 80 kB."""


@dataclass(slots=True)
class _Pending:
    caller: Caller
    id: str | None
    session: str | None
    until: float


class Lookups:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._pending: dict[int, _Pending] = {}

    def ask(self, caller: Caller, body: SessionRequest | SessionsRequest, now: float) -> list[Instruction]:
        owner = caller.identity
        if isinstance(body, SessionsRequest):
            owner = body.identity or caller.identity
        error = self._refusal(caller.identity)
        if error is None and body.action == "delete" and self._lives.sessions.busy((owner, body.session or "")):
            error = WireError(Code.BUSY, "a turn of this session waits or runs; cancel it, or ask again", 1000)
        if error is not None:
            return [Refuse(caller.to, body.id, error)]
        number = self._lives.sessions.ask_number()
        self._pending[number] = _Pending(caller, body.id, body.session, now + DEADLINE_S)
        if body.action == "list" or body.session is None:
            everybody = body.identity if isinstance(body, SessionsRequest) else owner
            return [Ask(Enumerate(number, everybody, LISTED))]
        if body.action == "delete":
            return [Ask(Delete(number, owner, body.session))]
        return [Ask(Get(number, owner, body.session, SHOWN_BYTES))]

    def _refusal(self, identity: str) -> WireError | None:
        own = sum(1 for p in self._pending.values() if p.caller.identity == identity)
        if len(self._pending) >= MAX_PENDING or own >= MAX_PER_IDENTITY:
            return WireError(Code.BUSY, "too many questions about sessions at once", 100)
        return self._lives.sessions.unavailable()

    def heard(self, answer: Answer) -> list[Instruction]:
        """The answer to a verb, if it is one."""
        if isinstance(answer, Opened):
            return []
        out: list[Instruction] = []
        if isinstance(answer, Deleted):
            self._lives.sessions.gone((answer.identity, answer.session))
            self._lives.ledger.session_deleted((answer.identity, answer.session))
            if answer.found:
                out.append(Tell(Forget(scope_of(answer.identity))))  # its state holds the same text as tokens
        pending = self._pending.pop(answer.number, None)
        if pending is None:
            return out
        told = self._told(pending, answer)
        if isinstance(told, WireError):
            return [*out, Refuse(pending.caller.to, pending.id, told)]
        return [*out, Reply(pending.caller.to, pending.id, told)]

    @staticmethod
    def _told(pending: _Pending, answer: Answer) -> dict[str, Any] | WireError:
        match answer:
            case Got(fields=dict() as fields):
                return {"session": pending.session, **fields}
            case Deleted(found=True):
                return {"session": pending.session, "deleted": True}
            case Enumerated():
                omitted = {"omitted": answer.omitted} if answer.omitted else {}
                return {"sessions": answer.rows, **omitted}
            case Failed():
                return WireError(Code.UNAVAILABLE, f"the transcripts cannot be used ({answer.why})", 2000)
        return WireError(Code.NOT_FOUND, "there is no such session")

    def end_all(self, error: WireError) -> list[Instruction]:
        out: list[Instruction] = [Refuse(p.caller.to, p.id, error) for p in self._pending.values()]
        self._pending.clear()
        return out

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for number in [number for number, p in self._pending.items() if p.until <= now]:
            pending = self._pending.pop(number)
            error = WireError(Code.DEADLINE_EXCEEDED, f"the disk did not answer within {DEADLINE_S:.0f} s")
            out.append(Refuse(pending.caller.to, pending.id, error))
        return out

    def next_wake(self) -> float:
        return min((p.until for p in self._pending.values()), default=float("inf"))
