"""Records become what they tell of (ADR 17): the journal's story of each request, and the requests themselves. Pure.

`Story` is fed records in the order of the file. Whatever the file was cut to, what is left is the state at some moment:
what has ended is not alive, text and ids are those told up to then, the number of the last event is the one told.

`merged` puts two files together (RAM and disk) by topic: what ended in one has ended; of what is alive, the story
with more events counts.

`restore` brings it into the broker of a new daemon. What had begun is `carried`, gets one `restart` event and goes
before what had not; turns of a session stand in their line again and are looked for in the transcript, which may have
been committed. The orphan rule counts from now on, the deadline from the receipt. A request whose tokens were lost
with the RAM is begun anew by its seed; its events are numbered from LEAP on, so that no number that was told
is told again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Raw

from edged.broker.instructions import Instruction, Note
from edged.broker.lives import Lives
from edged.broker.record import Accepted, Ended, Progressed, Prompted, Record, Standing
from edged.broker.results import Kept
from edged.broker.streams import Stream
from edged.broker.table import Request
from edged.broker.verbs import shape
from edged.errors import Code, WireError

LEAP: Final = 1 << 20
"""More events than a request can have: 4096 tokens, and one a second of a day's deadline."""


@dataclass(slots=True)
class Life:
    """One request that has not ended."""

    accepted: Accepted
    prompted: Prompted | None = None
    standing: Standing | None = None
    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    logprobs: list[bytes] = field(default_factory=list)
    tokens_since: int = 0
    seq: int = -1
    first: float | None = None
    last: float | None = None
    lost: bool = False  # where it stood is not known any more

    def progressed(self, record: Progressed) -> None:
        self.ids += record.ids
        self.logprobs += record.logprobs
        self.tokens_since = 0 if record.text else self.tokens_since + len(record.ids)
        if record.text:
            self.pieces.append(record.text)
        self.seq = record.seq
        if record.ids:
            self.first, self.last = record.at if self.first is None else self.first, record.at

    def begun_afresh(self, record: Prompted) -> None:
        self.prompted, self.tokens_since = record, 0
        self.ids, self.logprobs, self.first, self.last = [], [], None, None

    def stood(self, record: Standing) -> None:
        self.standing, self.seq = record, record.seq
        self.first, self.last = record.first_token, record.last_token

    @property
    def weight(self) -> tuple[int, int]:
        return self.seq, len(self.ids)

    @property
    def began(self) -> bool:
        """A worker had read or said something of it, and it can be resumed."""
        read = self.standing is not None and self.standing.read > 0
        return self.prompted is not None and (read or bool(self.ids))


@dataclass(slots=True)
class Found:
    """`lives` and `kept` by topic, in order of acceptance and of the end. `last`: the newest time in any record."""

    lives: dict[str, Life] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)
    last: float = 0.0

    def lose(self) -> Found:
        """A file of acceptances and ends only: where the living stood is not known."""
        for life in self.lives.values():
            life.lost = True
        return self

    def shifted(self, seconds: float) -> Found:
        """The same with all times later by that: the clock began anew."""

        def later(at: float | None) -> float | None:
            return None if at is None else at + seconds

        for life in self.lives.values():
            life.accepted = msgspec.structs.replace(life.accepted, received=life.accepted.received + seconds)
            life.first, life.last = later(life.first), later(life.last)
            if life.standing is not None:
                life.standing = msgspec.structs.replace(life.standing, started=later(life.standing.started))
        kept = {t: msgspec.structs.replace(k, ended=k.ended + seconds) for t, k in self.kept.items()}
        return Found(self.lives, kept, self.last + seconds)


class Story:
    def __init__(self) -> None:
        self.found = Found()
        self._topics: dict[int, str] = {}

    def feed(self, records: Iterable[Record]) -> Story:
        for record in records:
            self._one(record)
        return self

    def _one(self, record: Record) -> None:
        match record:
            case Accepted():
                self._forget(record.identity, record.id)
                self._topics[record.rid] = record.topic
                self.found.lives[record.topic] = Life(record, seq=record.seq)
                self._seen(record.received)
            case Ended(kept=kept):
                self.found.lives.pop(kept.topic, None)
                self.found.kept[kept.topic] = kept
                self._seen(kept.ended)
            case _:
                life = self.found.lives.get(self._topics.get(record.rid, ""))
                if life is not None:
                    self._more(life, record)

    def _more(self, life: Life, record: Prompted | Progressed | Standing) -> None:
        match record:
            case Prompted():
                life.begun_afresh(record)
            case Progressed():
                life.progressed(record)
                self._seen(record.at)
            case Standing():
                life.stood(record)

    def _forget(self, identity: str, request_id: str) -> None:
        """An id that is accepted again was free."""
        kept, lives = self.found.kept, self.found.lives
        for topic in [t for t, k in kept.items() if k.key == (identity, request_id)]:
            del kept[topic]
        for topic in [t for t, one in lives.items() if (one.accepted.identity, one.accepted.id) == (identity, request_id)]:
            del lives[topic]

    def _seen(self, at: float) -> None:
        self.found.last = max(self.found.last, at)


def merged(one: Found, other: Found) -> Found:
    """Of what both know equally well, `one` counts."""
    kept = {**one.kept, **other.kept}
    lives: dict[str, Life] = {}
    ids: dict[tuple[str, str], str] = {}
    for life in sorted([*one.lives.values(), *other.lives.values()], key=lambda life: life.accepted.received):
        topic, key = life.accepted.topic, (life.accepted.identity, life.accepted.id)
        known = lives.get(topic)
        if topic in kept or (known is not None and known.weight >= life.weight):
            continue
        lives.pop(ids.get(key, ""), None)
        lives[topic], ids[key] = life, topic
    kept = {topic: k for topic, k in kept.items() if k.key not in ids}
    ordered = dict(sorted(kept.items(), key=lambda pair: pair[1].ended))
    return Found(lives, ordered, max(one.last, other.last))


def restore(lives: Lives, found: Found, now: float) -> list[Instruction]:
    limits = lives.config.limits
    for kept in found.kept.values():
        lives.results.keep(kept, limits.results_kept_bytes)
    lives.results.expire(now, limits.result_ttl_s)
    requests = [_request(lives.new_rid(), life) for life in found.lives.values()]
    requests.sort(key=lambda request: not request.carried)
    for request in requests:
        lives.table.add(request)
        lives.results.drop(request.identity, request.id)
        if not request.carried:
            lives.queue.push(request)
    for request in reversed([request for request in requests if request.carried]):
        lives.queue.push_head(request)
    out: list[Instruction] = []
    for request in requests:
        out += lives.sessions.join(request, None, again=True)
        _remember(lives, request, found.lives[request.stream.topic])
    for request in requests:
        if request.carried:
            request.restarts += 1
            if request.stream.mode is not False:
                out.append(lives.emit(request, request.stream.event("restart", now, reason="daemon")))
        if request.ids and not request.carried:
            error = WireError(Code.WORKER_LOST, "the service ended; ask again with the same id", 1000)
            out += lives.fail(request, now, error)
        else:
            lives.watch(request, now)
    if requests or found.kept:
        lives.pace.counters["recovered"] += len(requests)
        out.append(Note("recovered", {"requests": len(requests), "results": len(lives.results)}))
    return out


def _remember(lives: Lives, request: Request, life: Life) -> None:
    """What its first worker made of it, beside the tokens."""
    if not request.carried or life.prompted is None:
        return
    lives.model = lives.model or life.prompted.model
    if request.talk is not None:
        request.talk.first, request.talk.begins = life.prompted.first, life.prompted.begins
        request.talk.left_out = 0 if life.standing is None else life.standing.left_out


def _request(rid: int, life: Life) -> Request:
    accepted, prompted, standing = life.accepted, life.prompted, life.standing
    logprobs = [Raw(entry) for entry in life.logprobs]
    stream = Stream(
        id=accepted.id,
        topic=accepted.topic,
        mode=accepted.mode,
        seq=life.seq + LEAP if life.lost else life.seq,
        tokens_since=life.tokens_since,
        logprobs_since=list(logprobs[len(logprobs) - life.tokens_since :]) if logprobs else [],
        pieces=list(life.pieces),
        lagged=standing is not None and standing.lagged,
    )
    request = Request(
        rid=rid,
        identity=accepted.identity,
        id=accepted.id,
        digest=accepted.digest,
        body=accepted.body,
        sampling=accepted.sampling,
        shape=shape(accepted.body),
        max_tokens=accepted.max_tokens,
        received=accepted.received,
        deadline_ms=accepted.deadline_ms,
        stream=stream,
        ids=array("I", life.ids),
        logprobs=logprobs,
        first_token=life.first,
        last_token=life.last,
        carried=life.began,
    )
    if prompted is not None and request.carried:
        request.prompt_ids, request.public, request.cuts = prompted.prompt, prompted.public, prompted.cuts
        request.fingerprint, request.prompt_tokens = prompted.fingerprint, len(prompted.prompt) // 4
    if standing is not None:
        request.restarts, request.started = standing.restarts, standing.started
        request.blamed, request.blamed_at = standing.blamed, standing.blamed_at
        request.cached_tokens, request.read = standing.cached, standing.read
    return request
