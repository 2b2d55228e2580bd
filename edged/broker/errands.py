"""What the worker is asked beside running requests (protocol 7): `tokenize`, `embed`, `warm`. Pure.

Each is asked once and answered once: by the worker, or by an error when it dies, takes too long or the service stops.
An errand that is given up is aborted in the worker too. Nothing is kept of it: no text, no result, no repetition.

None is begun beside a request that is on trial, or while something waits because of a trial: a suspect would bear the
errand's blame, or wait for ever (`edged.broker.blame`).

Bounded, by kind: so many at a time, so many of one caller; and all of them together by the bytes of their texts, which
lie in the link and in the worker until they are done. Over it: `busy`. `tokenize` is cheap and answered also while an
operator drains; `embed` and `warm` are work and refused as `generate` is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct

from edged.broker.gate import Phase
from edged.broker.instructions import Caller, Instruction, Refuse, Reply, Tell
from edged.broker.lives import Lives
from edged.broker.start import scope_of
from edged.errors import Code, WireError
from edged.messages import (
    Abort,
    Down,
    Embed,
    Embedded,
    EmbedRequest,
    Message,
    Refused,
    Tokenize,
    Tokenized,
    TokenizeRequest,
    Warm,
    Warmed,
    WarmRequest,
)

Errand = TokenizeRequest | EmbedRequest | WarmRequest
Answer = Tokenized | Embedded | Warmed | Refused

TOKENIZE_S: Final = 10.0
MAX_TOKENS: Final = 16_384
"""Listed in a reply, some 100 kB: a peer that asks and never reads holds as many of these as its line takes."""
MAX_REPLY: Final = 1 << 20
"""Bytes of vectors in a reply, for the same reason. The worker refuses before it computes; this is the second look."""
MAX_HELD: Final = 1 << 20
"""Characters of all texts pending: four requests of the largest size."""


class Kind(Struct, frozen=True):
    """`most` at a time, `share` of them of one caller. `deadline_s` None: `defaults.deadline_ms`. `work`: it is refused
    while the service drains.
    """

    name: str
    most: int
    share: int
    deadline_s: float | None = None
    work: bool = True


TOKENIZE: Final = Kind("tokenize", 16, 4, TOKENIZE_S, work=False)
EMBED: Final = Kind("embed", 16, 4)
WARM: Final = Kind("warm", 16, 4)
KIND_OF: Final[dict[type[Errand], Kind]] = {TokenizeRequest: TOKENIZE, EmbedRequest: EMBED, WarmRequest: WARM}

PASSED_ON: Final = frozenset(
    {Code.BAD_REQUEST, Code.CONTEXT_OVERFLOW, Code.TOO_LARGE, Code.LOW_MEMORY, Code.UNAVAILABLE, Code.BUSY}
)
"""Codes that the worker may give a refusal; any other is a bug of ours."""


@dataclass(frozen=True, slots=True)
class _Pending:
    kind: Kind
    caller: Caller
    id: str | None
    size: int
    until: float
    within_s: float


class Errands:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._pending: dict[int, _Pending] = {}

    def __len__(self) -> int:
        """How many are pending."""
        return len(self._pending)

    # ---- asking ----------------------------------------------------------------------------------------------

    def ask(self, caller: Caller, body: Errand, now: float) -> list[Instruction]:
        kind, size = KIND_OF[type(body)], _size(body)
        error = self._refusal(kind, caller.identity, size, now)
        if error is not None:
            return [Refuse(caller.to, body.id, error)]
        rid = self._lives.new_rid()
        within_s = kind.deadline_s or self._lives.config.defaults.deadline_ms / 1000
        self._lives.errands.add(rid)
        self._pending[rid] = _Pending(kind, caller, body.id, size, now + within_s, within_s)
        return [Tell(_down(rid, body, caller.identity))]

    def _refusal(self, kind: Kind, identity: str, size: int, now: float) -> WireError | None:
        gate = self._lives.gate
        error = gate.refusal(now) if kind.work or gate.phase is not Phase.READY else None
        if error is not None:
            return error
        if gate.phase is not Phase.READY:
            return WireError(Code.UNAVAILABLE, "the worker is being replaced", 1000)
        alike = [p for p in self._pending.values() if p.kind is kind]
        own = sum(1 for p in alike if p.caller.identity == identity)
        held = sum(p.size for p in self._pending.values())
        full = len(alike) >= kind.most or own >= kind.share or (held > 0 and held + size > MAX_HELD)
        if gate.clogged or full or self._lives.trial or self._lives.on_trial:
            return WireError(Code.BUSY, f"too many `{kind.name}` at once", 1000 if kind.work else 100)
        return None

    # ---- answers ---------------------------------------------------------------------------------------------

    def heard(self, message: Answer) -> list[Instruction]:
        """Nothing when it answers no errand that is pending."""
        pending = self._pending.pop(message.rid, None)
        return [] if pending is None else [self._answer(pending, message), *self._lives.gone(message.rid)]

    def _answer(self, pending: _Pending, message: Answer) -> Instruction:
        to = pending.caller.to
        match pending.kind.name, message:
            case _, Refused(code=code, message=why):
                known = Code(code) if code in PASSED_ON else Code.INTERNAL
                return Refuse(to, pending.id, WireError(known, why))
            case "tokenize", Tokenized(tokens=tokens, fits=fits):
                if len(tokens) > MAX_TOKENS:
                    error = WireError(Code.TOO_LARGE, f"{len(tokens)} tokens; at most {MAX_TOKENS} are listed")
                    return Refuse(to, pending.id, error)
                return Reply(to, pending.id, {"tokens": tokens, "count": len(tokens), "fits": fits})
            case "embed", Embedded():
                return self._embedded(pending, message)
            case "warm", Warmed(tokens=count, cached=cached):
                return Reply(to, pending.id, {"tokens": count, "cached_tokens": cached})
        return Refuse(to, pending.id, WireError(Code.INTERNAL, "the worker answered something else"))

    def _embedded(self, pending: _Pending, message: Embedded) -> Instruction:
        size = sum(len(vector) for vector in message.vectors)
        if size > MAX_REPLY:
            error = WireError(Code.TOO_LARGE, f"the vectors would be {size} bytes, {MAX_REPLY} at most: send fewer")
            return Refuse(pending.caller.to, pending.id, error)
        fields = {
            "embeddings": [msgspec.Raw(vector) for vector in message.vectors],
            "model": self._lives.model,
            "usage": {"prompt_tokens": message.tokens, "total_tokens": message.tokens},
        }
        return Reply(pending.caller.to, pending.id, fields)

    # ---- ends ------------------------------------------------------------------------------------------------

    def lost(self) -> list[Instruction]:
        """The worker died."""
        return self.end_all(WireError(Code.WORKER_LOST, "the worker ended; ask again", 1000))

    def end_all(self, error: WireError) -> list[Instruction]:
        out: list[Instruction] = [Refuse(p.caller.to, p.id, error) for p in self._pending.values()]
        self._pending.clear()
        return out

    def expel(self, knows: Callable[[str], bool]) -> list[Instruction]:
        """Those of callers that are not known any more are given up; their connections are cut."""
        gone = [rid for rid, p in self._pending.items() if not knows(p.caller.identity)]
        for rid in gone:
            del self._pending[rid]
        return [Tell(Abort(rid)) for rid in gone]

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for rid in [rid for rid, p in self._pending.items() if p.until <= now]:
            pending = self._pending.pop(rid)
            why = f"`{pending.kind.name}` was not done within {pending.within_s:g} s"
            error = WireError(Code.DEADLINE_EXCEEDED, why)
            out += [Tell(Abort(rid)), Refuse(pending.caller.to, pending.id, error)]
        return out

    def next_wake(self) -> float:
        return min((p.until for p in self._pending.values()), default=float("inf"))


def _size(body: Errand) -> int:
    """Characters of its texts."""
    match body:
        case EmbedRequest(input=texts):
            return sum(map(len, texts))
        case WarmRequest(messages=turns):
            return _length(turns)
        case TokenizeRequest(text=text, messages=turns):
            return len(text or "") + _length(turns or [])


def _length(turns: list[Message]) -> int:
    return sum(len(turn.content) for turn in turns)


def _down(rid: int, body: Errand, identity: str) -> Down:
    match body:
        case EmbedRequest(input=texts):
            return Embed(rid, texts)
        case WarmRequest(messages=turns):
            return Warm(rid, turns, scope_of(identity))
        case TokenizeRequest(text=text, messages=turns):
            return Tokenize(rid, text, turns)
