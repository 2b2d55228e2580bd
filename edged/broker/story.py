"""Records become what they tell of (ADR 17): the journal's story of each request. Pure.

`Story` is fed records in the order of the file. Whatever the file was cut to, what is left is the state at some moment:
what has ended is not alive, text and ids are those told up to then, the number of the last event is the one told.

`merged` puts two files together (RAM and disk) by topic: what ended in one has ended; of what is alive, the story
with more events counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from edged.broker.record import Accepted, Ended, Progressed, Prompted, Record, Standing
from edged.broker.results import Kept


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
    def key(self) -> tuple[str, str]:
        return self.accepted.identity, self.accepted.id

    @property
    def weight(self) -> tuple[int, int]:
        return self.seq, len(self.ids)

    @property
    def began(self) -> bool:
        """A worker had read or said something of it, and it can be resumed."""
        read = self.standing is not None and self.standing.read > 0
        return self.prompted is not None and bool(self.prompted.prompt) and (read or bool(self.ids))


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
        for topic in [t for t, life in lives.items() if life.key == (identity, request_id)]:
            del lives[topic]

    def _seen(self, at: float) -> None:
        self.found.last = max(self.found.last, at)


def merged(one: Found, other: Found) -> Found:
    """Of what both know equally well, `one` counts."""
    kept = {**one.kept, **other.kept}
    lives: dict[str, Life] = {}
    ids: dict[tuple[str, str], str] = {}
    for life in sorted([*one.lives.values(), *other.lives.values()], key=lambda life: life.accepted.received):
        topic, key = life.accepted.topic, life.key
        known = lives.get(topic)
        if topic in kept or (known is not None and known.weight >= life.weight):
            continue
        lives.pop(ids.get(key, ""), None)
        lives[topic], ids[key] = life, topic
    kept = {topic: k for topic, k in kept.items() if k.key not in ids}
    ordered = dict(sorted(kept.items(), key=lambda pair: pair[1].ended))
    return Found(lives, ordered, max(one.last, other.last))
