"""Results kept for retries, `result` and late subscribers (protocol 5). Pure.

Bounds: `limits.result_ttl_s` after the end, and `limits.results_kept_bytes` over all identities: when that is
exceeded, the oldest result of the identity that holds the most bytes goes first, so that one caller's long answers
cost only that caller's. The newest result is kept even when it alone is over the limit for the moment of its end:
its waiters have been answered already, so it simply goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from edged.broker.streams import snapshot

OVERHEAD_BYTES: Final = 1024
"""What an entry costs beside its texts: Python objects and three index entries, measured at 0.9 kB (CPython 3.11)."""


Time = Annotated[float, Meta(ge=-1e12, le=1e12)]
"""Of the monotonic clock, as it is read from a journal: no NaN, no infinity; negative for what another boot wrote."""


class Kept(Struct, frozen=True):
    """An ended request. `body` is the encoded reply; `seq` is the `end` event's number."""

    identity: str
    id: str
    digest: bytes
    topic: str
    seq: int
    body: bytes
    text: str | None  # what token events carried, where `body` is an error
    retryable: bool  # ended in a retryable error: a retry runs it anew
    cancelled: bool
    deadline_ms: int
    ended: Time
    aside: int = 0  # a request that left no trace: found by its topic only, for who subscribes after the ticket

    @property
    def key(self) -> tuple[str, str]:
        """An id has no space in it."""
        return self.identity, f"{self.id} {self.aside}" if self.aside else self.id

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES + len(self.body) + len(self.text or "") * 4

    def story(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The ended stream made whole: the fields of its snapshot and of its `end` event."""
        result: dict[str, Any] = msgspec.json.decode(self.body)
        text = result["text"] if self.text is None else self.text
        end = {"id": self.id, "type": "end", "seq": self.seq} | {k: v for k, v in result.items() if k != "id"}
        return snapshot(self.id, self.seq - 1, text, "finished"), end


class Results:
    """Kept results by (identity, id) and by topic, oldest first."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._by_topic: dict[str, tuple[str, str]] = {}
        self._of: dict[str, OrderedDict[str, None]] = {}
        self._bytes: dict[str, int] = {}
        self.total_bytes = 0
        self.gone = 0  # how many were kept once and are not now

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Kept]:
        return iter(list(self._by_id.values()))

    def find(self, identity: str, request_id: str) -> Kept | None:
        return self._by_id.get((identity, request_id))

    def on_topic(self, topic: str) -> Kept | None:
        key = self._by_topic.get(topic)
        return None if key is None else self._by_id[key]

    def keep(self, kept: Kept, limit_bytes: int) -> None:
        self.drop(*kept.key)
        self._by_id[kept.key] = kept
        self._by_topic[kept.topic] = kept.key
        self._of.setdefault(kept.identity, OrderedDict())[kept.key[1]] = None
        self._bytes[kept.identity] = self._bytes.get(kept.identity, 0) + kept.size
        self.total_bytes += kept.size
        while self.total_bytes > limit_bytes:
            heaviest = max(self._bytes, key=self._bytes.__getitem__)
            self.drop(heaviest, next(iter(self._of[heaviest])))

    def drop(self, identity: str, request_id: str) -> None:
        kept = self._by_id.pop((identity, request_id), None)
        if kept is None:
            return
        self.gone += 1
        del self._by_topic[kept.topic]
        del self._of[identity][request_id]
        self._bytes[identity] -= kept.size
        self.total_bytes -= kept.size
        if not self._of[identity]:
            del self._of[identity], self._bytes[identity]

    def expire(self, now: float, ttl_s: float) -> None:
        while self._by_id:
            kept = next(iter(self._by_id.values()))
            if kept.ended + ttl_s > now:
                return
            self.drop(*kept.key)

    def next_expiry(self, ttl_s: float) -> float:
        """When the oldest goes, in the clock of `Kept.ended`; inf when there is none."""
        return next(iter(self._by_id.values())).ended + ttl_s if self._by_id else float("inf")

    def stats(self) -> dict[str, Any]:
        return {"kept": len(self._by_id), "kept_bytes": self.total_bytes}

    def check(self) -> None:
        """Invariants, for tests and idle times."""
        assert len(self._by_id) == len(self._by_topic) == sum(len(ids) for ids in self._of.values())
        assert self.total_bytes == sum(self._bytes.values()) == sum(k.size for k in self._by_id.values())
