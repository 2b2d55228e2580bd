"""Prompts given to the scheduler, and where each of them stands. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edged.worker.prefix import Wanted
from edged.worker.residency import Found

GROWTH = 128
"""Cells reserved at a time for the answer (design 3)."""


CHECKPOINT = "checkpoint"
"""Stands for a snapshot's key."""


class Exhausted(Exception):  # noqa: N818 - the worker's end, not a caller's error
    """One token of one request finds no slot in a cache it has to itself."""


class ContextOverflowError(Exception):
    """A prompt and one token do not fit the context."""

    def __init__(self, prompt: int, context: int) -> None:
        super().__init__(
            f"the prompt has {prompt} tokens and needs room for one more, the context holds {context}: "
            f"{prompt + 1} > {context}"
        )
        self.prompt, self.context = prompt, context


@dataclass(frozen=True, slots=True)
class Job:
    """A prepared prompt. `public`: tokens of its leading system message; `keep`: the conversation goes on later.

    Of a request that is carried on, `ids` is what was sampled of its answer; `recall`: a checkpoint may be there.
    """

    rid: int
    tokens: list[int]
    max_tokens: int = 0
    scope: str = ""
    public: int = 0
    keep: bool = False
    warm: bool = False
    cuts: tuple[int, ...] = ()
    ids: Sequence[int] = ()
    recall: bool = False

    @property
    def known(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.tokens) + len(self.ids)

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.tokens, self.scope, self.public)


@dataclass(slots=True)
class Request:
    """What the scheduler knows of one job."""

    job: Job
    age: int
    limit: int
    seq: int | None = None
    filled: int = 0  # cells decoded = the next position
    aside: bool = False
    passed: int = 0
    sampled: int = 0
    last: int = -1
    held: list[int] = field(default_factory=list)  # decoded tokens while set aside
    floor: int = 0  # of its sequence when it was set aside
    fetching: str | None = None  # the snapshot it waits for
    fetched: Found | None = None  # what was asked for; in memory when `fetching` is None
    refused: str | None = None  # a snapshot that could not be read
    cut: int = 0  # up to here checkpoints were taken
    recall: bool = False  # its checkpoint was not looked at yet

    @property
    def rid(self) -> int:
        return self.job.rid

    @property
    def prompt(self) -> int:
        return len(self.job.tokens)

    @property
    def most(self) -> int:
        return self.prompt + self.limit

    @property
    def need(self) -> int:
        """Cells wanted to start or to come back."""
        return min(max(self.filled, self.job.known) + GROWTH, self.most)

    @property
    def sample(self) -> bool:
        """The next token of the answer is not known."""
        return self.sampled >= len(self.job.ids)

    def begin(self, length: int) -> None:
        """The first `length` cells are there."""
        self.filled, self.sampled, self.last = length, 0, -1
        if length >= self.prompt:
            self.replayed(length - self.prompt)

    def replayed(self, index: int) -> None:
        """The answer's token number `index` is the next one to be decoded."""
        self.sampled, self.last = index + 1, self.job.ids[index]

    @property
    def order(self) -> tuple[bool, int]:
        """Warm-ups last, then by arrival."""
        return self.job.warm, self.age
