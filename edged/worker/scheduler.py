"""Which tokens go into the next decode. Pure: events in, a plan out; no clock, no I/O, no llama_cpp.

Continuous batching. Each step holds one token of every sequence that is decoding, then prefill in what is left of
`batch`. The prefill of one step is `chunk` tokens in total, first come first served; a prompt is cut at multiples of
`chunk`, always, so that reading it again (after a worker's death) uses the same pieces. A piece goes in only whole:
short prompts share a step, a long one has it to itself.

Admission. A request starts when a sequence is free and prompt + min(limit, GROWTH) cells are; `limit` is max_tokens
clamped to what the context leaves. It grows by GROWTH, or by the cells that are left when these are fewer.
(Reserving prompt + max_tokens was simulated: when clients ask for 2000 and use 100, one slot works and the mean time
to first token is 274 s instead of 3.4.)

When cells run out, the youngest running request is *set aside*: its state is copied out and its sequence freed; it
goes first in the queue and comes back bit-exact. Age is the order of arrival. The oldest running request is never
set aside; since limit is clamped, it fits into an otherwise empty cache: somebody always finishes.

The queue: the set aside by age, then the waiting by arrival. Behind one that does not fit others may start, at most
PASSES of them; then it is next. A request that comes back from being set aside passes nobody anew, so nobody starves.

Return code 1 of llama_decode (no slot, though the sums say otherwise): nothing was decoded. `no_slot` sets the
youngest aside and holds admission until something ends; with one request left it halves the prefill; a single token
that finds no slot in a cache with one request is a broken engine: `Exhausted`.

The caller's turn: `plan()`, carry out `moves` in order, decode rows and chunks, `commit(plan)`, and for each output
`sampled(rid)` or, when the request ends, `remove(rid)`. The token of a decode row is the last one sampled.

Room for prefix reuse: `_start` is the one place where a sequence is given; it will ask the cache for the longest
resident prefix and start with `filled` > 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edged.worker.kvcache import KvCache

GROWTH = 128
"""Cells reserved at a time for the answer (design 3)."""

PASSES = 8
"""How many later requests may start before one that does not fit (design 3)."""


class ContextOverflowError(Exception):
    """A prompt and one token do not fit the context."""

    def __init__(self, prompt: int, context: int) -> None:
        super().__init__(
            f"the prompt has {prompt} tokens and needs room for one more, the context holds {context}: "
            f"{prompt + 1} > {context}"
        )
        self.prompt, self.context = prompt, context


class Exhausted(Exception):  # noqa: N818 - the worker's end, not a caller's error
    """One token of one request finds no slot in a cache it has to itself."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Request `rid` starts on `seq`."""

    rid: int
    seq: int


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


Move = Assign | SetAside | Restore


@dataclass(frozen=True, slots=True)
class Row:
    """One token of a running answer: the last one sampled, at `position`."""

    rid: int
    seq: int
    position: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt tokens start…stop; `last`: the prompt is complete with it, its last token has an output."""

    rid: int
    seq: int
    start: int
    stop: int
    last: bool


@dataclass(frozen=True, slots=True)
class Plan:
    moves: tuple[Move, ...] = ()
    rows: tuple[Row, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.rows) + sum(c.stop - c.start for c in self.chunks)


@dataclass(slots=True)
class _Request:
    rid: int
    age: int
    prompt: int
    limit: int
    seq: int | None = None
    filled: int = 0  # cells decoded = the next position
    aside: bool = False
    passed: int = 0
    sampled: int = 0

    @property
    def most(self) -> int:
        return self.prompt + self.limit

    @property
    def need(self) -> int:
        """Cells wanted to start or to come back."""
        return min(max(self.filled, self.prompt) + GROWTH, self.most)


@dataclass(slots=True)
class Scheduler:
    """State of all requests given to the engine."""

    context: int
    sequences: int
    batch: int
    chunk: int
    set_aside_total: int = 0
    kv: KvCache = field(init=False)
    _requests: dict[int, _Request] = field(default_factory=dict)  # in order of age
    _arrivals: int = 0
    _held: bool = False
    _cap: int = field(init=False)

    def __post_init__(self) -> None:
        assert self.chunk + self.sequences <= self.batch, "a chunk and a token of every sequence fit the batch"
        self.kv = KvCache(self.context, self.sequences)
        self._cap = self.chunk

    # ---- events

    def submit(self, rid: int, prompt: int, max_tokens: int) -> int:
        """A prepared request; returns its limit. Raises ContextOverflowError."""
        assert rid not in self._requests, rid
        assert min(prompt, max_tokens) > 0, (prompt, max_tokens)
        if prompt + 1 > self.context:
            raise ContextOverflowError(prompt, self.context)
        limit = min(max_tokens, self.context - prompt)
        self._requests[rid] = _Request(rid, self._arrivals, prompt, limit)
        self._arrivals += 1
        return limit

    def sampled(self, rid: int) -> None:
        """An output of `rid` was sampled and it goes on."""
        request = self._requests[rid]
        request.sampled += 1
        assert request.sampled < request.limit, f"request {rid} goes on beyond its limit"

    def remove(self, rid: int) -> int | None:
        """The request ended or is aborted: the sequence to empty, if it had one."""
        request = self._requests.pop(rid)
        self._held = False
        if request.seq is not None:
            self.kv.release(request.seq)
        return request.seq

    def commit(self, plan: Plan) -> None:
        """The plan was decoded."""
        for row in plan.rows:
            self._filled(row.rid, 1)
        for chunk in plan.chunks:
            self._filled(chunk.rid, chunk.stop - chunk.start)
        self._cap = self.chunk

    def no_slot(self, plan: Plan) -> tuple[Move, ...]:
        """llama_decode found no slot: moves that make room. Raises Exhausted."""
        running = self._running()
        if len(running) > 1:
            self._held = True
            return (self._set_aside(running[-1]),)
        if plan.tokens <= 1:
            raise Exhausted
        self._cap = max(1, plan.tokens // 2)
        return ()

    # ---- the plan

    def plan(self) -> Plan:
        moves: list[Move] = []
        self._grow(moves)
        self._admit(moves)
        running = self._running()
        rows = tuple(
            Row(r.rid, r.seq, r.filled) for r in running if r.seq is not None and r.filled >= r.prompt
        )  # sampled ≥ 1 here: the step that filled the prompt sampled from it
        return Plan(tuple(moves), rows, self._prefill(running, self.batch - len(rows)))

    def _grow(self, moves: list[Move]) -> None:
        for request in self._running():
            if request.seq is None or request.filled < self.kv.reserved(request.seq):
                continue
            while self.kv.free == 0:
                youngest = self._running()[-1]
                moves.append(self._set_aside(youngest))
                if youngest is request:
                    break
            else:
                growth = min(GROWTH, request.most - request.filled, self.kv.free)
                self.kv.grow(request.seq, growth)

    def _admit(self, moves: list[Move]) -> None:
        if self._held and self.kv.busy:
            return
        stuck: list[_Request] = []
        for request in self._queue():
            if not self.kv.spare_sequences or any(s.passed >= PASSES for s in stuck):
                return
            if request.need > self.kv.free:
                stuck.append(request)
                continue
            for other in stuck:
                other.passed += 1
            moves.append(self._start(request))

    def _start(self, request: _Request) -> Move:
        request.seq = self.kv.assign(request.rid, request.need, request.filled)
        if request.aside:
            request.aside = False
            return Restore(request.rid, request.seq, request.filled)
        return Assign(request.rid, request.seq)

    def _prefill(self, running: list[_Request], room: int) -> tuple[Chunk, ...]:
        budget = min(self._cap, room)
        chunks: list[Chunk] = []
        for request in running:
            if request.seq is None or request.filled >= request.prompt or budget == 0:
                continue
            boundary = (request.filled // self.chunk + 1) * self.chunk
            size = min(boundary, request.prompt) - request.filled
            if self._cap < self.chunk:  # retry after no_slot: less than a whole piece rather than nothing
                size = min(size, budget)
            if size > budget:
                continue
            stop = request.filled + size
            chunks.append(Chunk(request.rid, request.seq, request.filled, stop, stop == request.prompt))
            budget -= size
        return tuple(chunks)

    def _set_aside(self, request: _Request) -> SetAside:
        assert request is not self._running()[0], "the oldest is never set aside"
        assert request.seq is not None
        move = SetAside(request.rid, request.seq, request.filled)
        self.kv.release(request.seq)
        request.seq, request.aside = None, True
        self.set_aside_total += 1
        return move

    def _filled(self, rid: int, cells: int) -> None:
        request = self._requests[rid]
        assert request.seq is not None
        request.filled += cells
        self.kv.fill(request.seq, cells)

    def _running(self) -> list[_Request]:
        return [r for r in self._requests.values() if r.seq is not None]

    def _queue(self) -> list[_Request]:
        return sorted((r for r in self._requests.values() if r.seq is None), key=lambda r: (not r.aside, r.age))

    # ---- what others ask

    @property
    def runnable(self) -> bool:
        """Is there anything to decode?"""
        return bool(self._requests)

    @property
    def set_aside(self) -> int:
        return sum(r.aside for r in self._requests.values())

    @property
    def waiting(self) -> int:
        return sum(r.seq is None and not r.aside for r in self._requests.values())

    def check(self) -> None:
        """The invariants; AssertionError when one is broken. Run in tests and when idle."""
        self.kv.check()
        ages = [r.age for r in self._requests.values()]
        assert ages == sorted(set(ages)), "requests stand in order of arrival"
        running = self._running()
        assert len(running) == self.kv.busy, "every busy sequence has its request"
        assert self.kv.used == sum(r.filled for r in running), "every used cell has its request"
        for request in self._requests.values():
            assert request.passed <= PASSES, request
            assert request.sampled < request.limit, request
            assert request.most <= self.context, request
            if request.filled >= request.prompt:
                assert request.filled == request.prompt + request.sampled - 1, request
        assert not self._requests or running or not self._held, "held with nothing running"
