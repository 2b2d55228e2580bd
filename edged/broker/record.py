"""What the journal holds of a request, from its acceptance to its end (ADR 17). Only data.

Times are those of CLOCK_MONOTONIC, in seconds. `rid` ties the records of one request together within one file; the
topic is the same over all files and daemons, and no two requests share one.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from edged.broker.results import Kept
from edged.messages import Generate, Sampling


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
    max_tokens: int
    received: float
    deadline_ms: int
    topic: str
    mode: Literal[False, "pub", "reply"]
    seq: int  # of the last event when this was written


class Prompted(_Record, frozen=True):
    """The prompt as token ids of a model, and of a turn which part of its session it holds. What was sampled before it
    counts no more: it began afresh."""

    rid: int
    prompt: bytes
    public: int
    cuts: list[int]
    fingerprint: str
    model: str  # its name
    first: int
    begins: bool


class Progressed(_Record, frozen=True):
    """Sampled tokens, and the text that is told because of them. Written before it is told."""

    rid: int
    ids: list[int]
    text: str
    seq: int
    at: float
    logprobs: list[bytes] = []


class Standing(_Record, frozen=True):
    """What else changes, with the number of the last event; whole each time."""

    rid: int
    seq: int
    restarts: int
    blamed: int
    blamed_at: int
    read: int
    cached: int
    left_out: int
    started: float | None
    first_token: float | None
    last_token: float | None
    lagged: bool
    revived: int = 0


class Ended(_Record, frozen=True):
    """`rid` 0: it ended under an earlier daemon."""

    rid: int
    kept: Kept


Record = Accepted | Prompted | Progressed | Standing | Ended
DURABLE = (Accepted, Ended)
"""What `journal: disk` has on the disk before it is told."""
