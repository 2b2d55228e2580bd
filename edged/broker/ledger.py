"""What is to be written down before it is told, and what waits until it is on the disk (ADR 17). Pure.

Every change of a request leaves a record here; the daemon takes them (`take`) and writes them before it carries out
what the broker says next. With that much, nothing that was told is unknown to the next daemon.

`durable` (`journal: disk`): acceptance and end are on the disk before anybody learns of them. What would tell it is
*held* by topic, under the number of the last durable record of that request:

* an accepted request stays in the queue, passed over (`Request.unwritten`); when written, its ticket goes out and it
  may run; when that fails or takes longer than COMMIT_S, it is refused with `unavailable`, as if it had never been;
* an end is told when written, or after COMMIT_S: the answer is there, and is worth more than the promise that it is
  not made a second time after a power cut. It is counted (`journal_late`).

While the disk takes nothing (`why`), new requests are refused at once, and ends are told at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from edged.broker.instructions import Instruction
from edged.broker.record import Accepted, Ended, Progressed, Prompted, Record, Standing
from edged.broker.results import Kept
from edged.broker.table import Request
from edged.broker.talk import Key
from edged.errors import Code, WireError

COMMIT_S: Final = 1.0
"""That a ticket or an end waits for the disk, at most: protocol 10 allows an end a second after its deadline."""
_RETRY_MS: Final = 2000


@dataclass(slots=True)
class Held:
    number: int
    until: float
    rid: int
    ended: bool = False
    out: list[Instruction] = field(default_factory=list)


class Ledger:
    """`on`: there is a journal."""

    def __init__(self) -> None:
        self.on = False
        self.durable = False
        self.why = ""
        self.number = 0
        self.held: dict[str, Held] = {}
        self.deleted: set[Key] = set()  # sessions whose turns are to be written down no more
        self._records: list[Record] = []

    def take(self) -> list[Record]:
        taken, self._records = self._records, []
        return taken

    def refusal(self) -> WireError | None:
        """Why nothing new can be accepted."""
        if not self.durable or not self.why:
            return None
        return WireError(Code.UNAVAILABLE, f"`journal: disk`, and nothing can be recorded: {self.why}", _RETRY_MS)

    # ---- what happens to a request -----------------------------------------------------------------------------

    def accepted(self, request: Request, now: float) -> None:
        if not self.on:
            return
        self._records.append(accepted(request))
        if self.durable:
            self.number += 1
            request.unwritten = True
            self.held[request.stream.topic] = Held(self.number, now + COMMIT_S, request.rid)

    def prompted(self, request: Request, model: str) -> None:
        if self.on:
            self._records.append(prompted(request, model))

    def sampled(self, request: Request, ids: list[int], text: str, logprobs: list[Any], now: float) -> None:
        if self.on:
            told = [bytes(entry) for entry in logprobs]
            self._records.append(Progressed(request.rid, ids, text, request.stream.seq, now, told))

    def standing(self, request: Request) -> None:
        if self.on:
            self._records.append(standing(request))

    def ended(self, request: Request, kept: Kept, out: list[Instruction], now: float) -> list[Instruction]:
        """What of `out`, which tells the end, may be told now. A refusal (`aside`) makes no promise."""
        if not self.on:
            return out
        self._records.append(Ended(request.rid, kept))
        if not self.durable or kept.aside:
            return out
        self.number += 1
        held = self.held.setdefault(kept.topic, Held(0, 0.0, request.rid))
        held.number, held.until, held.ended = self.number, now + (0.0 if self.why else COMMIT_S), True
        held.out += out
        return []

    def session_deleted(self, key: Key) -> None:
        if self.on:
            self.deleted.add(key)

    def behind(self, topic: str, out: list[Instruction]) -> list[Instruction]:
        """`out` tells of a request that may still be unwritten: then it waits with the rest."""
        held = self.held.get(topic)
        if held is None:
            return out
        held.out += out
        return []


def accepted(request: Request) -> Accepted:
    return Accepted(
        rid=request.rid,
        identity=request.identity,
        id=request.id,
        digest=request.digest,
        body=request.body,
        sampling=request.sampling,
        max_tokens=request.max_tokens,
        received=request.received,
        deadline_ms=request.deadline_ms,
        topic=request.stream.topic,
        mode=request.stream.mode,
        seq=request.stream.seq,
    )


def prompted(request: Request, model: str) -> Prompted:
    talk = request.talk
    return Prompted(
        rid=request.rid,
        prompt=request.prompt_ids,
        public=request.public,
        cuts=request.cuts,
        fingerprint=request.fingerprint,
        model=model,
        first=0 if talk is None else talk.first,
        begins=talk is not None and talk.begins,
    )


def standing(request: Request) -> Standing:
    return Standing(
        rid=request.rid,
        seq=request.stream.seq,
        restarts=request.restarts,
        blamed=request.blamed,
        blamed_at=request.blamed_at,
        read=request.read,
        cached=request.cached_tokens,
        left_out=0 if request.talk is None else request.talk.left_out,
        started=request.started,
        first_token=request.first_token,
        last_token=request.last_token,
        lagged=request.stream.lagged,
        revived=request.revived,
    )


def image(requests: list[Request], kept: list[Kept], model: str) -> list[Record]:
    """Records that say all there is to say now: for a file begun afresh."""
    out: list[Record] = [Ended(0, one) for one in kept]
    for request in requests:
        out.append(accepted(request))
        if request.prompt_ids:
            out.append(prompted(request, model))
        stream, now = request.stream, request.last_token or request.received
        told = max(0, len(request.ids) - stream.tokens_since)
        logprobs = [bytes(entry) for entry in request.logprobs]
        if told or stream.text:
            out.append(Progressed(request.rid, list(request.ids[:told]), stream.text, stream.seq, now, logprobs[:told]))
        if stream.tokens_since:
            out.append(Progressed(request.rid, list(request.ids[told:]), "", stream.seq, now, logprobs[told:]))
        out.append(standing(request))
    return out
