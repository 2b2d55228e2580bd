"""What the scheduler wants done: moves of sequences, in order, then one decode."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

State = ctypes.Array[ctypes.c_uint8] | bytearray | memoryview
"""Of one sequence, as llama.cpp copied it out."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Request `rid` has `seq`, in which its first `cached` tokens lie already (of its prompt; or, carried, all)."""

    rid: int
    seq: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Trim:
    """Keep the first `length` tokens of `seq`."""

    seq: int
    length: int


@dataclass(frozen=True, slots=True)
class Copy:
    """`seq` shares the first `length` cells of `source`."""

    source: int
    seq: int
    length: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Empty the idle `seq`. `tokens`, `scope`, `public`, `keep`: what a snapshot of it would have to say."""

    seq: int
    tokens: list[int]
    scope: str
    public: int
    keep: bool


@dataclass(frozen=True, slots=True)
class Remember:
    """As `Evict`, but the sequence stays."""

    seq: int
    tokens: list[int]
    scope: str
    public: int
    keep: bool


@dataclass(frozen=True, slots=True)
class Pack:
    """Copy the state of `seq`, which has the cache to itself, out and in: it then has the first cells."""

    seq: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`seq` holds the first `length` tokens of the prompt of `rid`, a place where other prompts will branch off."""

    rid: int
    seq: int
    length: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Get the snapshot `key` ready for `rid`, which waits for it: `Scheduler.fetched` then."""

    rid: int
    key: str


@dataclass(frozen=True, slots=True)
class Unpack:
    """Copy the snapshot fetched for `rid` (`cells` tokens) into `seq` and keep the first `length`."""

    rid: int
    seq: int
    cells: int
    length: int


@dataclass(frozen=True, slots=True)
class Recall:
    """Get the checkpoint of `rid` ready, which waits for it: `Scheduler.recalled` then."""

    rid: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Copy the first `length` cells of the checkpoint of `rid` into `seq`, which is empty."""

    rid: int
    seq: int
    length: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Copy the state of `seq` (`cells` tokens) out for `rid`, then empty the sequence."""

    rid: int
    seq: int
    cells: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Copy the state of `rid` (`cells` tokens) into `seq`."""

    rid: int
    seq: int
    cells: int


Move = (
    Assign | Trim | Copy | Evict | Remember | Pack | Checkpoint | Fetch | Unpack | Recall | Resume | SetAside | Restore
)


@dataclass(frozen=True, slots=True)
class Row:
    """One token of a running answer at `position`. `sample`: the next one is to be sampled, it is not known yet."""

    rid: int
    seq: int
    position: int
    token: int
    sample: bool = True


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt tokens start…stop; `last`: the prompt is complete with it, its last token has an output.

    `sample`: and the first token of the answer is to be sampled from it.
    """

    rid: int
    seq: int
    start: int
    stop: int
    last: bool
    sample: bool


@dataclass(frozen=True, slots=True)
class Plan:
    moves: tuple[Move, ...] = ()
    rows: tuple[Row, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.rows) + sum(c.stop - c.start for c in self.chunks)
