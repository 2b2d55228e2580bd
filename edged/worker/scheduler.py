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

Return code 1 of llama_decode (no slot, though the sums say otherwise): nothing was decoded. `no_slot` evicts an idle
sequence; with none left it sets the youngest aside and holds admission until something ends; with one request left it
halves the prefill; a single token that finds no slot in a cache with one request is a broken engine: `Exhausted`.

The caller's turn: `plan()`, carry out `moves` in order, decode rows and chunks, `commit(plan)`, and for each output
`sampled(rid, token)` or, when the request ends, `remove(rid)`. The token of a decode row is the last one sampled. A
plan without tokens: whatever runs waits for a snapshot (`Fetch`), or only warm-ups ended.

Prefix reuse (`residency`): a prompt starts with what is resident of it; a request that ends leaves its tokens there.
A prompt that another one, running, is just about to read a good part of waits until it has: four callers with one
system message read it once. It is held up no longer than the other takes to read, and others may start meanwhile.

Memory that cannot be trimmed: `cuts` are the places in a prompt where the next one will branch off; a piece ends there
and a `Checkpoint` follows.

A request that is carried on (`ids`) starts from its checkpoint when there is one (`Recall`, one at a time as with
`Fetch`), or as any other; what is missing of its prompt is read in the same pieces, and what is known of its answer is
decoded one token a step, with nothing sampled, before it goes on. A checkpoint is preferred to what is remembered
unless that is longer; it may reach into the answer, but the last token known is always decoded, for its logits.

A warm-up (`warm`) is a prompt without an answer: it starts when nothing else waits, and is read when nothing else is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edged.worker.jobs import CHECKPOINT, GROWTH, ContextOverflowError, Exhausted, Job, Request
from edged.worker.kvcache import KvCache, Resident
from edged.worker.plan import Assign, Checkpoint, Chunk, Fetch, Move, Plan, Recall, Restore, Row, SetAside, Trim
from edged.worker.prefix import Rules, Wanted, common, usable
from edged.worker.residency import WORTH, Found, Residency

PASSES = 8
"""How many later requests may start before one that does not fit (design 3)."""


@dataclass(slots=True)
class Scheduler:
    """State of all requests given to the engine.

    `residents`: sequence numbers, `sequences` of which may be busy. `alone`: see `residency`.
    """

    context: int
    sequences: int
    batch: int
    chunk: int
    residents: int = 0
    rules: Rules = field(default_factory=Rules)
    reuse: bool = True
    alone: bool = False
    set_aside_total: int = 0
    hits: int = 0
    misses: int = 0
    reused_tokens: int = 0
    kv: KvCache = field(init=False)
    residency: Residency = field(init=False)
    _requests: dict[int, Request] = field(default_factory=dict)  # in order of age
    _arrivals: int = 0
    _held: bool = False
    _cap: int = field(init=False)

    def __post_init__(self) -> None:
        assert self.chunk + self.sequences <= self.batch, "a chunk and a token of every sequence fit the batch"
        self.residents = max(self.residents, self.sequences)
        self.kv = KvCache(self.context, self.sequences, self.residents)
        self.residency = Residency(self.kv, self.rules, reuse=self.reuse, alone=self.alone)
        self._cap = self.chunk

    # ---- events

    def submit(self, job: Job) -> int:
        """A prepared request; returns its limit: max_tokens, clamped. Raises ContextOverflowError."""
        assert job.rid not in self._requests, job.rid
        prompt = len(job.tokens)
        assert min(prompt, job.max_tokens + job.warm) > 0, (prompt, job.max_tokens)
        if job.known + (not job.warm) > self.context:
            raise ContextOverflowError(job.known, self.context)
        limit = min(job.max_tokens, self.context - prompt)
        assert len(job.ids) < limit or job.warm, "there is more to be sampled"
        self._requests[job.rid] = Request(job, self._arrivals, limit, recall=job.recall)
        self._arrivals += 1
        return limit

    def fetched(self, rid: int, *, found: bool) -> bool:
        """The snapshot that `rid` waits for is in memory, or cannot be read. False: nobody waits for it any more."""
        request = self._requests.get(rid)
        if request is None or request.fetching is None:
            return False
        if not found:
            request.refused, request.fetched = request.fetching, None
        request.fetching = None
        return True

    def recalled(self, rid: int, length: int) -> bool:
        """So many cells of the checkpoint of `rid` are of use, perhaps none. False: nobody waits for it any more."""
        request = self._requests.get(rid)
        if request is None or request.fetching is None or not request.recall:
            return False
        assert length < request.job.known, "the last token is always decoded"
        request.recall, request.fetching = False, None
        request.fetched = Found(length, key=CHECKPOINT, cells=length, recalled=True) if length else None
        return length > 0

    def unpack_failed(self, rid: int) -> None:
        """What was copied in for `rid` was no good: its sequence is empty, and it reads its prompt. Before `commit`."""
        request = self._requests[rid]
        assert request.seq is not None
        self.kv.trim(request.seq, 0)
        self.kv[request.seq].floor = 0
        request.cut = 0
        request.begin(0)

    def sampled(self, rid: int, token: int) -> None:
        """An output of `rid` was sampled and it goes on."""
        request = self._requests[rid]
        request.sampled += 1
        request.last = token
        assert request.sampled < request.limit, f"request {rid} goes on beyond its limit"

    def remove(self, rid: int) -> int | None:
        """The request ended or is aborted: the sequence to empty, if there is one."""
        request = self._requests.pop(rid)
        self._held = False
        return None if request.seq is None else self.residency.leave(request.seq)

    def commit(self, plan: Plan) -> list[int]:
        """The plan was decoded; returns the warm-ups that are done."""
        for row in plan.rows:
            request = self._requests[row.rid]
            self._filled(request, [row.token])
            if not row.sample:
                request.replayed(request.sampled)
        for chunk in plan.chunks:
            request = self._requests[chunk.rid]
            self._filled(request, request.job.tokens[chunk.start : chunk.stop])
            if chunk.last and request.job.ids:
                request.replayed(0)
        self._cap = self.chunk
        return [c.rid for c in plan.chunks if c.last and self._requests[c.rid].job.warm]

    def no_slot(self, plan: Plan) -> tuple[Move, ...]:
        """llama_decode found no slot: moves that make room. Raises Exhausted."""
        moves: list[Move] = []
        if self.residency.evict_one(moves):
            return tuple(moves)
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
        self._checkpoints(moves)
        self._grow(moves)
        self._admit(moves)
        running = self._running()
        rows = tuple(
            Row(r.rid, r.seq, r.filled, r.last, r.sample)
            for r in running
            if r.seq is not None and r.filled >= r.prompt and not r.job.warm
        )  # sampled ≥ 1 here: the step that filled the prompt sampled from it, or its first token was known
        return Plan(tuple(moves), rows, self._prefill(running, self.batch - len(rows)))

    def _checkpoints(self, moves: list[Move]) -> None:
        for request in self._running():
            if request.seq is not None and request.filled in request.job.cuts and request.filled > request.cut:
                request.cut = request.filled
                moves.append(Checkpoint(request.rid, request.seq, request.filled))

    def _grow(self, moves: list[Move]) -> None:
        for request in self._running():
            if request.seq is None or request.job.warm or request.filled < self.kv[request.seq].reserved:
                continue
            while self.kv.free == 0:
                youngest = self._running()[-1]
                moves.append(self._set_aside(youngest))
                if youngest is request:
                    break
            else:
                growth = min(GROWTH, request.most - request.filled, self.kv.free)
                self.kv.grow(request.seq, growth)
                self.residency.make_room(moves)

    def _admit(self, moves: list[Move]) -> None:
        if self._held and self.kv.busy:
            return
        stuck: list[Request] = []
        for request in self._queue():
            if request.job.warm and any(not r.job.warm for r in self._requests.values() if r.seq is None):
                return
            if any(s.passed >= PASSES for s in stuck) or not self._slot_for(request, moves):
                return
            if request.fetching is not None:
                continue
            found = self._find(request)
            if self._is_coming(request, found.length):
                continue
            if found.key is not None and not found.recalled and self.residency.cost(found, request.need) > self.kv.free:
                found = self._without_snapshot(request)
            if not self._cells_for(request, found, moves):
                stuck.append(request)
                continue
            if found.key is not None and request.fetched is None:
                self._fetch(request, found, moves)
                continue
            for other in stuck:
                other.passed += 1
            self._start(request, found, moves)

    def _slot_for(self, request: Request, moves: list[Move]) -> bool:
        return self.kv.spare_slots > 0 or (not request.job.warm and self._stop_warming(moves))

    def _cells_for(self, request: Request, found: Found, moves: list[Move]) -> bool:
        fits = self.residency.cost(found, request.need) <= self.kv.free
        if fits or request.job.warm or not self._stop_warming(moves):
            return fits
        return self.residency.cost(found, request.need) <= self.kv.free

    def _stop_warming(self, moves: list[Move]) -> bool:
        """Warm-ups make way; what they have read stays, and they go on from there later. False: there are none."""
        warming = [r for r in self._running() if r.job.warm]
        for request in warming:
            assert request.seq is not None
            left = self.residency.leave(request.seq)
            moves += [] if left is None else [Trim(left, 0)]
            request.seq, request.filled, request.cut = None, 0, 0
        return bool(warming)

    def _fetch(self, request: Request, found: Found, moves: list[Move]) -> None:
        """One at a time; the others wait for their turn."""
        if any(r.fetched is not None for r in self._requests.values()):
            return
        request.fetching, request.fetched = found.key, found
        assert found.key is not None
        moves.append(Recall(request.rid) if found.recalled else Fetch(request.rid, found.key))

    def _find(self, request: Request) -> Found:
        if request.aside:
            return Found()
        if request.recall:
            return Found(request.job.known - 1, key=CHECKPOINT, cells=request.job.known, recalled=True)
        found = self.residency.find(request.job.wanted, request.refused)
        ready = request.fetched
        if ready is not None and ready.length > found.length - (0 if found.key is None else WORTH):
            return ready
        request.fetched = None  # something better became resident meanwhile
        return found

    def _without_snapshot(self, request: Request) -> Found:
        """All of a snapshot has to come in before it is trimmed, and there is no room for it now."""
        request.fetched = None
        return self.residency.find(request.job.wanted, snapshots=False)

    def _is_coming(self, request: Request, have: int) -> bool:
        """A running request is about to have read a good part of this prompt."""
        if request.aside or not self.reuse:
            return False
        return any(self._about_to_share(other, request) >= have + WORTH for other in self._running())

    def _about_to_share(self, other: Request, request: Request) -> int:
        if other.filled >= other.prompt:
            return 0
        trimmable = Rules(self.rules.sharing)
        shared = usable(trimmable, request.job.wanted, other.job)
        if not self.rules.exact:
            return shared
        return max((cut for cut in other.job.cuts if other.filled < cut <= shared), default=0)

    def _start(self, request: Request, found: Found, moves: list[Move]) -> None:
        job = request.job
        if request.aside:
            request.aside = False
            resident = Resident(request.held, [], job.scope, job.public, job.keep, request.rid, request.need)
            resident.floor = self.rules.floor(request.filled) or request.floor
            request.held = []
            request.seq = self.residency.place(resident, moves)
            moves.append(Restore(request.rid, request.seq, request.filled))
            return
        begun = Wanted([*job.tokens, *job.ids][: found.length], job.scope, job.public)
        request.seq = self.residency.start(request.rid, begun, found, request.need, keep=job.keep, moves=moves)
        request.begin(found.length)
        request.cut = found.length
        request.fetched = None
        if not found.recalled:
            self.hits += found.length > 0
            self.misses += found.length == 0
            self.reused_tokens += found.length
        moves.append(Assign(request.rid, request.seq, found.length))

    def _prefill(self, running: list[Request], room: int) -> tuple[Chunk, ...]:
        budget = min(self._cap, room)
        chunks: list[Chunk] = []
        for request in running:
            if request.seq is None or request.filled >= request.prompt or budget == 0:
                continue
            boundary = (request.filled // self.chunk + 1) * self.chunk
            ends = [cut for cut in request.job.cuts if cut > request.filled]
            size = min(boundary, request.prompt, *ends) - request.filled
            if self._cap < self.chunk:  # retry after no_slot: less than a whole piece rather than nothing
                size = min(size, budget)
            if size > budget:
                continue
            stop = request.filled + size
            last = stop == request.prompt
            sample = last and not request.job.ids and not request.job.warm
            chunks.append(Chunk(request.rid, request.seq, request.filled, stop, last, sample))
            budget -= size
        return tuple(chunks)

    def _set_aside(self, request: Request) -> SetAside:
        assert request is not self._running()[0], "the oldest is never set aside"
        assert request.seq is not None
        request.held, request.floor = self.kv[request.seq].tokens, self.kv[request.seq].floor
        move = SetAside(request.rid, request.seq, request.filled)
        self.kv.release(request.seq)
        request.seq, request.aside = None, True
        self.set_aside_total += 1
        return move

    def _filled(self, request: Request, tokens: list[int]) -> None:
        assert request.seq is not None
        request.filled += len(tokens)
        self.kv.fill(request.seq, tokens)

    def _running(self) -> list[Request]:
        return sorted((r for r in self._requests.values() if r.seq is not None), key=lambda r: r.order)

    def _queue(self) -> list[Request]:
        waiting = (r for r in self._requests.values() if r.seq is None)
        return sorted(waiting, key=lambda r: (r.job.warm, not r.aside, r.age))

    # ---- what others ask

    def running(self) -> list[tuple[int, int, int]]:
        """Who has a sequence, oldest first, warm-ups left out: request, sequence, cells in it."""
        return [(r.rid, r.seq, r.filled) for r in self._running() if r.seq is not None and not r.job.warm]

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
        assert not self.kv.short, "what is promised is not there"
        ages = [r.age for r in self._requests.values()]
        assert ages == sorted(set(ages)), "requests stand in order of arrival"
        running = self._running()
        assert len(running) == self.kv.busy, "every busy sequence has its request"
        for request in running:
            assert request.seq is not None
            resident = self.kv[request.seq]
            assert resident.owner == request.rid, request
            assert resident.used == request.filled, request
            assert common(resident.tokens, request.job.tokens) == min(request.filled, request.prompt), request
        for request in self._requests.values():
            assert request.passed <= PASSES, request
            assert request.sampled < max(request.limit, 1), request
            assert request.most <= self.context, request
            if request.filled >= request.prompt and not request.job.warm:
                assert request.filled == request.prompt + request.sampled - 1, request
        assert not self._requests or running or not self._held, "held with nothing running"
