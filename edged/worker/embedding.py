"""`embed`: texts → vectors, beside the answers and never before them.

A text is read in chunks, as a prompt is, in a context of its own. Its tokens' vectors (of the model's last layer) are
pooled here, chunk by chunk, as the model says (see `vectors.Facts`), and the sum is made a unit vector. So memory is
that of a chunk and of the longest text's KV, and the vector of a text depends on that text alone: not on its
neighbours, its place among them or the load.

Who is first: a turn of the loop does the step of running requests, then at most one chunk. A chunk takes as long as a
piece of a prompt, much longer than a token: so while requests run, `PAUSE` times as long must pass after a chunk as it
took, and a stream keeps some two thirds of its speed. Pending requests take turns, text by text: a short one does not
wait for a long.

The context is made when it is wanted, as large as the text in hand needs (powers of two), and freed when it was idle
for `IDLE_S`; `rest_ms` tells the loop when to look again. Before it is made there must be memory for it: `low_memory`
else. Nothing that goes wrong here costs the worker.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from edged.errors import Code, EngineError
from edged.messages import Embedded, Refused, Up
from edged.system.memory import available_bytes
from edged.system.trim import Trimmer
from edged.worker.engine import Engine
from edged.worker.vectors import Facts, Pooling, Reader, facts, rounded

IDLE_S: Final = 30.0
PAUSE: Final = 2.0
DECIMALS: Final = 7
"""Of a number in a unit vector: what a 32-bit float knows of it. Ten characters with the comma."""
_NUMBER: Final = 11  # characters at most: -0.1234567 and a comma
MAX_REPLY: Final = 1 << 20
"""Bytes of vectors in a reply, as in the daemon: 64 vectors of 1,489 numbers."""

Texts = list["array[int]"]


class _RefusedError(Exception):
    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Pool:
    """The vector of one text, from those of its tokens as they come."""

    def __init__(self, pooling: Pooling, dimension: int) -> None:
        self._pooling = pooling
        self._sum = np.zeros(dimension, np.float64)
        self._empty = True

    def add(self, rows: NDArray[np.float32]) -> None:
        if self._pooling == "mean":
            self._sum += rows.sum(axis=0, dtype=np.float64)
        elif self._pooling == "last" or self._empty:
            self._sum[:] = rows[-1 if self._pooling == "last" else 0]
        self._empty = False

    def json(self) -> bytes:
        """The unit vector. Raises EngineError for one without a direction."""
        length = float(np.linalg.norm(self._sum))
        if not math.isfinite(length) or length == 0:
            raise EngineError("the model gave a vector without a direction")
        unit = np.round(self._sum / length, DECIMALS) + 0.0  # no -0.0
        return msgspec.json.encode(unit.tolist())


@dataclass(slots=True)
class _Job:
    rid: int
    texts: Texts
    vectors: list[bytes] = field(default_factory=list)
    position: int = 0
    pool: Pool | None = None

    @property
    def text(self) -> array[int]:
        return self.texts[len(self.vectors)]


class Embedding:
    """`clock` is monotonic seconds, `room` how many bytes may be taken (None: not known)."""

    def __init__(
        self,
        engine: Engine,
        *,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
        room: Callable[[], int | None] = available_bytes,
        reader: Callable[[Engine, Facts, int], Reader] = Reader,
        about: Callable[[Engine], Facts] = facts,
    ) -> None:
        self._engine, self._idle_s, self._clock, self._room = engine, idle_s, clock, room
        self._make, self._about = reader, about
        self._facts: Facts | None = None
        self._reader: Reader | None = None
        self._trimmer = Trimmer()
        self._expected: set[int] = set()
        self._jobs: deque[_Job] = deque()
        self._not_before = 0.0
        self._free_at = 0.0
        self.tokens = 0
        """Read since the start."""

    # ---- what comes

    def expect(self, rid: int) -> None:
        """It is being tokenized."""
        self._expected.add(rid)

    def prepared(self, rid: int, result: Texts | Refused) -> list[Up]:
        """What is to be said at once."""
        if rid not in self._expected:
            return []
        self._expected.remove(rid)
        if isinstance(result, Refused):
            return [result]
        try:
            self._check(result)
        except _RefusedError as error:
            return [Refused(rid, error.code, str(error))]
        self._jobs.append(_Job(rid, result))
        return []

    def abort(self, rid: int) -> None:
        """Nothing more is said about it. Unknown numbers are ignored."""
        self._expected.discard(rid)
        if self._jobs and self._jobs[0].rid == rid and self._reader is not None:
            self._reader.clear()
        self._jobs = deque(job for job in self._jobs if job.rid != rid)
        self._free_at = self._clock() + self._idle_s

    def _check(self, texts: Sequence[Sequence[int]]) -> None:
        facts = self._know()
        if facts.pooling == "rank" or not facts.causal:
            why = "ranks texts" if facts.pooling == "rank" else "reads a text as a whole, not in chunks"
            raise _RefusedError(Code.BAD_REQUEST, f"this model gives no embeddings here: it {why}")
        size = len(texts) * facts.dimension * _NUMBER
        if size > MAX_REPLY:
            most = MAX_REPLY // (facts.dimension * _NUMBER)
            raise _RefusedError(
                Code.TOO_LARGE, f"{len(texts)} vectors of {facts.dimension} numbers; send {most} texts at most"
            )
        for index, text in enumerate(texts):
            if not text:
                raise _RefusedError(Code.BAD_REQUEST, f"field `input[{index}]` has no tokens")
            if len(text) > self._engine.cells:
                why = f"field `input[{index}]` has {len(text)} tokens, the context holds {self._engine.cells}"
                raise _RefusedError(Code.CONTEXT_OVERFLOW, why)

    def _know(self) -> Facts:
        if self._facts is None:
            self._facts = self._about(self._engine)
        return self._facts

    # ---- turns of the loop

    @property
    def runnable(self) -> bool:
        """Is there anything to read?"""
        return bool(self._jobs)

    def turn(self, *, busy: bool) -> list[Up]:
        """One chunk at most; `busy`: there are requests to be served meanwhile."""
        now = self._clock()
        if not self._jobs:
            if self._reader is not None and now >= self._free_at:
                self._free()
            return []
        if busy and now < self._not_before:
            return []
        job = self._jobs[0]
        try:
            said = self._read(job)
        except _RefusedError as error:
            said = self._give_up(job, error.code, str(error))
        except EngineError as error:
            self._free()
            said = self._give_up(job, Code.INTERNAL, f"computing the embeddings failed ({type(error).__name__})")
        done = self._clock()
        self._not_before = done + PAUSE * (done - now)
        self._free_at = done + self._idle_s
        return said

    def shed(self) -> None:
        """Memory is short."""
        if not self._jobs:
            self._free()

    def rest_ms(self) -> int | None:
        """How long the loop may sleep; None: until something comes."""
        if self._reader is None:
            return None
        return max(0, math.ceil((self._free_at - self._clock()) * 1000))

    def _read(self, job: _Job) -> list[Up]:
        facts, text = self._know(), job.text
        reader = self._reader_for(len(text))
        if job.pool is None:
            job.pool, job.position = Pool(facts.pooling, facts.dimension), 0
            reader.clear()
        piece = text[job.position : job.position + facts.chunk]
        job.pool.add(reader.read(piece, job.position))
        job.position += len(piece)
        self.tokens += len(piece)
        if job.position < len(text):
            return []
        job.vectors.append(job.pool.json())
        job.pool = None
        self._jobs.rotate(-1)
        if len(job.vectors) < len(job.texts):
            return []
        self._jobs.remove(job)
        return [Embedded(job.rid, job.vectors, sum(map(len, job.texts)))]

    def _give_up(self, job: _Job, code: Code, why: str) -> list[Up]:
        self._jobs.remove(job)
        return [Refused(job.rid, code, why)]

    def _reader_for(self, tokens: int) -> Reader:
        if self._reader is not None and self._reader.cells >= tokens:
            return self._reader
        self._free()
        facts, cells = self._know(), rounded(tokens, self._engine.cells)
        need, have = facts.need(cells), self._room()
        if have is not None and need > have:
            why = f"embedding takes about {need >> 20} MB, {have >> 20} MB are available"
            raise _RefusedError(Code.LOW_MEMORY, why)
        try:
            self._reader = self._make(self._engine, facts, cells)
        except EngineError as error:
            raise _RefusedError(Code.UNAVAILABLE, str(error)) from None
        return self._reader

    def _free(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
            self._trimmer.trim()
