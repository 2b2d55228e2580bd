"""`tokenize` (protocol 7): asked of the worker, answered within a deadline of its own. Pure.

Bounded: at most `MAX_PENDING` at a time and `MAX_PER_IDENTITY` of one caller; over it `busy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edged.broker.gate import Phase
from edged.broker.instructions import Caller, Instruction, Refuse, Reply, Tell
from edged.broker.lives import Lives
from edged.errors import Code, WireError
from edged.messages import Abort, Refused, Tokenize, Tokenized, TokenizeRequest

DEADLINE_S: Final = 10.0
MAX_PENDING: Final = 16
MAX_PER_IDENTITY: Final = 4
MAX_TOKENS: Final = 16_384
"""Listed in a reply, some 100 kB: a peer that asks and never reads holds as many of these as its line takes."""


@dataclass(slots=True)
class _Pending:
    caller: Caller
    id: str | None
    until: float


class Tokenizing:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._pending: dict[int, _Pending] = {}

    def ask(self, caller: Caller, body: TokenizeRequest, now: float) -> list[Instruction]:
        error = self._refusal(caller.identity, now)
        if error is not None:
            return [Refuse(caller.to, body.id, error)]
        rid = self._lives.new_rid()
        self._pending[rid] = _Pending(caller, body.id, now + DEADLINE_S)
        return [Tell(Tokenize(rid, body.text, body.messages))]

    def _refusal(self, identity: str, now: float) -> WireError | None:
        if self._lives.gate.phase is not Phase.READY:
            error = self._lives.gate.refusal(now)
            return error or WireError(Code.UNAVAILABLE, "the worker is being replaced", 1000)
        own = sum(1 for p in self._pending.values() if p.caller.identity == identity)
        if self._lives.gate.clogged or len(self._pending) >= MAX_PENDING or own >= MAX_PER_IDENTITY:
            return WireError(Code.BUSY, "too many `tokenize` at once", 100)
        return None

    def heard(self, message: Tokenized | Refused) -> list[Instruction]:
        pending = self._pending.pop(message.rid, None)
        if pending is None:
            return []
        if isinstance(message, Refused):
            code = Code.BAD_REQUEST if message.code == Code.BAD_REQUEST else Code.INTERNAL
            return [Refuse(pending.caller.to, pending.id, WireError(code, message.message))]
        if len(message.tokens) > MAX_TOKENS:
            error = WireError(Code.TOO_LARGE, f"{len(message.tokens)} tokens; at most {MAX_TOKENS} are listed")
            return [Refuse(pending.caller.to, pending.id, error)]
        fields = {"tokens": message.tokens, "count": len(message.tokens), "fits": message.fits}
        return [Reply(pending.caller.to, pending.id, fields)]

    def lost(self) -> list[Instruction]:
        """The worker died."""
        return self.end_all(WireError(Code.WORKER_LOST, "the worker ended; ask again", 1000))

    def end_all(self, error: WireError) -> list[Instruction]:
        out: list[Instruction] = [Refuse(p.caller.to, p.id, error) for p in self._pending.values()]
        self._pending.clear()
        return out

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for rid in [rid for rid, p in self._pending.items() if p.until <= now]:
            pending = self._pending.pop(rid)
            error = WireError(Code.DEADLINE_EXCEEDED, f"not tokenized within {DEADLINE_S:.0f} s")
            out += [Tell(Abort(rid)), Refuse(pending.caller.to, pending.id, error)]
        return out

    def next_wake(self) -> float:
        return min((p.until for p in self._pending.values()), default=float("inf"))
