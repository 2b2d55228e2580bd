"""The life cycle of requests, as a table of transitions. Pure.

    queued ──give──► given ──first_chunk──► running ──store──► storing ──end──► ended
       ▲               │                       │
       └──take_back────┴───────take_back───────┘    `end` is possible from every state but `ended`: exactly once.

* queued: in the daemon's queue.
* given: the worker has it: preparing, or waiting for cells; shown to clients as queued, position 0.
* running: its first prompt chunk is decoded. (Set aside for want of cells is the worker's own affair: still running.)
* storing: a turn of a session; the worker is done with it, it is being committed (`edged.broker.sessions`).
* ended: a result or an error is fixed; what is kept of it lies in `edged.broker.results`.

`take_back` is the worker's end, whatever the reason: both return to the head of their queue. What was running is
*carried* from then on: it is resumed by the next worker, and clients see it as running in every state until it ends.
A turn whose text is whole may be stored out of the queue: another model cannot go on with it.
An event that the table does not know in that state is a bug and raises `InvalidTransition` with the story so far.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec import Raw

from edged.broker.instructions import Address
from edged.broker.streams import Stream
from edged.broker.talk import Talk
from edged.messages import Generate, Sampling, Shape, ToolCall


class State(StrEnum):
    QUEUED = "queued"
    GIVEN = "given"
    RUNNING = "running"
    STORING = "storing"
    ENDED = "ended"


class Move(StrEnum):
    GIVE = "give"
    TAKE_BACK = "take_back"
    FIRST_CHUNK = "first_chunk"
    STORE = "store"
    END = "end"


TRANSITIONS: Final[dict[tuple[State, Move], State]] = {
    (State.QUEUED, Move.GIVE): State.GIVEN,
    (State.QUEUED, Move.END): State.ENDED,
    (State.GIVEN, Move.TAKE_BACK): State.QUEUED,
    (State.GIVEN, Move.FIRST_CHUNK): State.RUNNING,
    (State.GIVEN, Move.END): State.ENDED,
    (State.RUNNING, Move.TAKE_BACK): State.QUEUED,
    (State.RUNNING, Move.END): State.ENDED,
    (State.QUEUED, Move.STORE): State.STORING,
    (State.GIVEN, Move.STORE): State.STORING,
    (State.RUNNING, Move.STORE): State.STORING,
    (State.STORING, Move.END): State.ENDED,
}


class InvalidTransitionError(Exception):
    """A bug of the broker: the message has the request's number, state and history."""


@dataclass(slots=True)
class Waiter:
    """A connection that waits for the end: of `generate` without a stream (`until` None), or of `result`."""

    to: Address
    until: float | None


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """An accepted request. Times are monotonic seconds; everything needed to carry it on is here."""

    rid: int
    identity: str
    id: str
    digest: bytes
    body: Generate
    sampling: Sampling
    max_tokens: int
    received: float
    deadline_ms: int
    stream: Stream
    shape: Shape = field(default_factory=Shape)
    state: State = State.QUEUED
    history: list[Move] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    ids: array[int] = field(default_factory=lambda: array("I"))
    logprobs: list[Raw] = field(default_factory=list)  # one JSON object per token, when asked for
    tool_calls: list[ToolCall] | None = None
    reasoning: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    restarts: int = 0
    given: int = 0  # order of giving, so that what is taken back keeps it
    talk: Talk | None = None  # on a session
    held: bool = False  # by its session: passed over in the queue
    unwritten: bool = False  # its acceptance is not on the disk yet: passed over too
    name: str = ""  # of its checkpoint; made of the topic, so that every daemon makes the same
    prompt_ids: bytes = b""  # of the prompt as the worker read it: uint32, little endian
    public: int = 0  # `public` and `cuts` of `Prompted`
    cuts: list[int] = field(default_factory=list)
    fingerprint: str = ""  # of the model whose token ids these are
    carried: bool = False  # it has run: to be resumed, not started
    read: int = 0  # tokens of the prompt, the most that any worker got to
    reached: int = 0  # of the prompt, in the cache of the worker that has it
    blamed: int = 0  # deaths in a row that it is to blame for, without progress between
    blamed_at: int = 0  # `progress` at the last of them
    revived: int = 0  # daemons in a row that brought it back and got nowhere (`edged.broker.revival`)

    def __post_init__(self) -> None:
        if not self.name:
            self.name = hashlib.blake2b(self.stream.topic.encode(), digest_size=16).hexdigest()

    @property
    def deadline(self) -> float:
        return self.received + self.deadline_ms / 1000

    @property
    def passed_over(self) -> bool:
        """In the queue, and not to be given."""
        return self.held or self.unwritten

    @property
    def waits(self) -> bool:
        """Not yet running: shown as queued."""
        return self.state in (State.QUEUED, State.GIVEN) and not self.carried

    @property
    def ran(self) -> bool:
        """It was running once, with this worker or an earlier one."""
        return self.carried or Move.FIRST_CHUNK in self.history

    @property
    def with_worker(self) -> bool:
        return self.state in (State.GIVEN, State.RUNNING)

    @property
    def progress(self) -> int:
        """Tokens read and sampled; what another worker reads or replays again does not count twice."""
        return self.read + len(self.ids)

    @property
    def shown(self) -> str:
        """The state as clients see it."""
        if self.state is State.ENDED:
            return str(self.state)
        return "queued" if self.waits else "running"

    def move(self, event: Move) -> None:
        """Raises InvalidTransitionError for what the table does not know."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            story = " → ".join(self.history) or "(new)"
            raise InvalidTransitionError(f"request {self.rid}: {event} in state {self.state} after {story}")
        self.history.append(event)
        self.state = after


class Table:
    """The accepted requests that have not ended, by number, by (identity, id) and by topic."""

    def __init__(self) -> None:
        self._by_rid: dict[int, Request] = {}
        self._by_id: dict[tuple[str, str], Request] = {}
        self._by_topic: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._by_rid)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._by_rid.values()))

    def add(self, request: Request) -> None:
        self._by_rid[request.rid] = request
        self._by_id[request.identity, request.id] = request
        self._by_topic[request.stream.topic] = request

    def remove(self, request: Request) -> None:
        del self._by_rid[request.rid]
        del self._by_id[request.identity, request.id]
        del self._by_topic[request.stream.topic]

    def get(self, rid: int) -> Request | None:
        return self._by_rid.get(rid)

    def find(self, identity: str, request_id: str) -> Request | None:
        return self._by_id.get((identity, request_id))

    def on_topic(self, topic: str) -> Request | None:
        return self._by_topic.get(topic)

    def check(self) -> None:
        """Invariants: the three indexes agree and nothing ended is left. For tests and idle times."""
        assert len(self._by_rid) == len(self._by_id) == len(self._by_topic)
        for rid, request in self._by_rid.items():
            assert request.rid == rid
            assert request.state is not State.ENDED
            assert self._by_id[request.identity, request.id] is request
            assert self._by_topic[request.stream.topic] is request
