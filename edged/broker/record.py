"""What the journal holds of a request, from its acceptance to its end (ADR 17). Only data.

Times are those of CLOCK_MONOTONIC, in seconds. `rid` ties the records of one request together within one file; the
topic is the same over all files and daemons, and no two requests share one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from edged.broker.results import Kept, Time
from edged.messages import Generate, Sampling

Count = Annotated[int, Meta(ge=0, le=2**53)]
Seq = Annotated[int, Meta(ge=-1, le=2**53)]
Token = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class _Record(Struct, frozen=True, array_like=True, tag=True):
    pass


class Accepted(_Record, frozen=True):
    """All that is needed to run it, draws included (`sampling` has the seed)."""

    rid: int
    identity: str
    id: str
    digest: bytes
    body: Generate
    sampling: Sampling
    max_tokens: Count
    received: Time
    deadline_ms: Count
    topic: str
    mode: Literal[False, "pub", "reply"]
    seq: Seq  # of the last event when this was written


class Prompted(_Record, frozen=True):
    """The prompt as token ids of a model, and of a turn which part of its session it holds. What was sampled before it
    counts no more: it began afresh."""

    rid: int
    prompt: bytes
    public: Count
    cuts: list[Count]
    fingerprint: str
    model: str  # its name
    first: int
    begins: bool


class Progressed(_Record, frozen=True):
    """Sampled tokens, and the text that is told because of them. Written before it is told."""

    rid: int
    ids: list[Token]
    text: str
    seq: Seq
    at: Time
    logprobs: list[bytes] = []


class Standing(_Record, frozen=True):
    """What else changes, with the number of the last event; whole each time."""

    rid: int
    seq: Seq
    restarts: Count
    blamed: Count
    blamed_at: Count
    read: Count
    cached: Count
    left_out: Count
    started: Time | None
    first_token: Time | None
    last_token: Time | None
    lagged: bool
    revived: Count = 0


class Ended(_Record, frozen=True):
    """`rid` 0: it ended under an earlier daemon."""

    rid: int
    kept: Kept


Record = Accepted | Prompted | Progressed | Standing | Ended
DURABLE = (Accepted, Ended)
"""What `journal: disk` has on the disk before it is told."""
