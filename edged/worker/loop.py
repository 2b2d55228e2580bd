"""The worker's loop: one thread that owns the link and the engine.

Everything that came is handled before each step; each step's outputs leave as one frame. It sleeps in poll() only
when there is nothing to decode. Trouble with one prompt is that request's `Refused`; trouble in a decode, or any
exception here, is the process's end: the daemon starts another and carries the requests on.
"""

from __future__ import annotations

import time
from typing import Final

from edged.errors import Code
from edged.messages import (
    Abort,
    CacheSettings,
    Down,
    Embed,
    Forget,
    Load,
    Quit,
    Refused,
    Save,
    Saved,
    Start,
    Tokenize,
    Tokenized,
    Up,
    Warm,
    Warmed,
)
from edged.system.trim import Trimmer
from edged.worker.archive import Fetched
from edged.worker.channel import Channel
from edged.worker.embedding import Embedding
from edged.worker.engine import Span
from edged.worker.form import Form
from edged.worker.grammar import GrammarError
from edged.worker.jobs import ContextOverflowError, Job
from edged.worker.llama import NoSlotError
from edged.worker.loading import Loaded
from edged.worker.meter import CacheMeter, Meter
from edged.worker.mover import Mover
from edged.worker.plan import Move, Plan
from edged.worker.prepare import Prepared, PreparedTexts
from edged.worker.prompt import Prompt
from edged.worker.request import Reading, Request, Warming
from edged.worker.scheduler import Scheduler

TRIM_S: Final = 5.0


class Loop:
    def __init__(self, channel: Channel, loaded: Loaded, cache: CacheSettings) -> None:
        self._channel = channel
        self._engine, self._prepare, self._archive, ready = loaded
        self._scheduler = Scheduler(
            ready.context,
            ready.sequences,
            self._engine.batch,
            self._engine.chunk,
            self._engine.residents,
            self._engine.rules(cache.sharing),
            reuse=cache.reuse,
            alone=self._archive is not None,
        )
        self._disk_takes_all = cache.disk == "all"
        self._mover = Mover(self._engine, self._scheduler, self._archive)
        self._embedding = Embedding(self._engine)
        self._preparing: set[int] = set()
        self._requests: dict[int, Reading] = {}
        self._meter = Meter()
        self._cache_meter = CacheMeter()
        self._saves = 0
        self._trimmer, self._trimmed = Trimmer(), 0.0
        self._quit = False

    def run(self) -> None:
        """Until Quit. Raises LinkClosed when the daemon is gone, EngineError when the engine is."""
        decoding = False
        while True:
            if not (decoding or self._embedding.runnable):
                self._idle()
            for message in self._channel.receive():
                self._handle(message)
            for done in self._prepare.take():
                self._prepared(done)
            self._take_fetched()
            if self._quit:
                return
            decoding = self._scheduler.runnable and self._step()
            self._channel.send(*self._embedding.turn(busy=decoding))

    def _idle(self) -> None:
        """Nothing to decode: there is no request, or those that are wait for a snapshot."""
        if not self._scheduler.runnable:
            self._scheduler.check()
            self._engine.check({seq: r.used for seq, r in self._scheduler.kv.residents()})
            self._trim()
        self._tell_slots()
        if self._channel.wait(self._prepare.wake, self._embedding.rest_ms()):
            self._prepare.clear()

    def _trim(self) -> None:
        """What was freed goes back to the kernel, now and then."""
        now = time.monotonic()
        if now - self._trimmed >= TRIM_S:
            self._trimmed = now
            self._trimmer.trim()

    def _take_fetched(self) -> None:
        if self._archive is None:
            return
        for done in self._archive.take():
            if isinstance(done, Fetched):
                self._mover.fetched(done.rid, done.state)
            elif self._saves:
                self._saves -= 1
                if not self._saves:
                    self._channel.send(Saved(done.files, done.bytes, done.left))
        self._scheduler.residency.snapshots = self._archive.index

    # ---- what comes

    def _handle(self, message: Down) -> None:
        match message:
            case Start(rid=rid) | Warm(rid=rid):
                if rid in self._preparing or rid in self._requests:
                    raise ValueError("the daemon gave one request number twice")
                self._preparing.add(rid)
                self._prepare.put(message)
            case Tokenize():
                self._prepare.put(message)
            case Embed(rid=rid):
                self._embedding.expect(rid)
                self._prepare.put(message)
            case Abort(rid=rid):
                self._embedding.abort(rid)
                if rid in self._preparing:
                    self._preparing.remove(rid)
                    self._prepare.drop(rid)
                if rid in self._requests:
                    self._forget(rid)
            case Save(within_s=seconds):
                self._save(seconds)
            case Forget(scope=scope):
                self._mover.forget_scope(scope)
            case Quit(within_s=seconds):
                self._leave(seconds)
            case Load():
                raise ValueError("the daemon said Load twice")
        self._tell_slots()

    def _save(self, seconds: float) -> None:
        if self._archive is None:
            self._channel.send(Saved(0, 0, 0))
            return
        self._saves += 1
        self._mover.save(time.monotonic() + seconds, everything=self._disk_takes_all)

    def _leave(self, seconds: float) -> None:
        self._quit = True
        if self._archive is None:
            return
        if seconds > 0:
            for rid in list(self._requests):
                self._forget(rid)
            self._mover.save(time.monotonic() + seconds, everything=self._disk_takes_all)
        self._archive.close(remove_ram=True, timeout=seconds + 0.5)

    def _prepared(self, done: Prepared | PreparedTexts) -> None:
        match done:
            case Prepared(job=Tokenize(rid=rid), result=result):
                if isinstance(result, list):
                    self._channel.send(Tokenized(rid, result, len(result) + 1 <= self._engine.cells))
                elif isinstance(result, Refused):
                    self._channel.send(result)
            case PreparedTexts(job=Embed(rid=rid), result=texts):
                self._channel.send(*self._embedding.prepared(rid, texts))
            case Prepared(job=Start() | Warm() as job, result=result) if job.rid in self._preparing:
                self._preparing.remove(job.rid)
                if isinstance(result, Refused):
                    self._channel.send(result)
                elif isinstance(result, Prompt):
                    self._submit(job, result, done.form)
                self._tell_slots()

    def _submit(self, job: Start | Warm, prompt: Prompt, form: Form) -> None:
        given = Job(
            rid=job.rid,
            tokens=prompt.tokens,
            max_tokens=0 if isinstance(job, Warm) else job.max_tokens,
            scope=job.scope,
            public=prompt.public,
            keep=not isinstance(job, Start) or job.session,
            warm=isinstance(job, Warm),
            cuts=prompt.cuts,
        )
        try:
            limit = self._scheduler.submit(given)
        except ContextOverflowError as error:
            self._channel.send(Refused(job.rid, Code.CONTEXT_OVERFLOW, str(error)))
            return
        if isinstance(job, Warm):
            self._requests[job.rid] = Warming(job, prompt)
        else:
            self._requests[job.rid] = Request(job, prompt, limit, self._engine.vocabulary, form)

    # ---- one step

    def _step(self) -> bool:
        """False: nothing to decode, whoever is there waits for a snapshot."""
        plan = self._scheduler.plan()
        if not self._move(plan.moves):
            return True
        if not plan.tokens:
            return False
        spans, rids = self._spans(plan)
        try:
            rows = self._engine.step(spans, prefill=bool(plan.chunks))
        except NoSlotError:
            self._move(self._scheduler.no_slot(plan))
            return True
        warmed = self._scheduler.commit(plan)
        out: list[Up] = []
        for chunk in plan.chunks:
            request = self._requests[chunk.rid]
            if isinstance(request, Request):
                out.append(request.prefilled(chunk.stop))
        for rid, row in zip(rids, rows, strict=True):
            self._sample(rid, row, out)
        for rid in warmed:
            self._warmed(rid, out)
        out += self._slots()
        self._channel.send(*out)
        return True

    def _spans(self, plan: Plan) -> tuple[list[Span], list[int]]:
        """What goes into the batch, and whose outputs come out, in that order.

        Prompts first: kernels for repacked weights take rows in fours and the rest singly, with other rounding, so a
        prompt's rows stay in the same fours whoever else decodes (`prefix.ALIGN`).
        """
        spans = [
            Span(c.seq, c.start, self._requests[c.rid].prompt[c.start : c.stop], output=c.last) for c in plan.chunks
        ]
        spans += [Span(r.seq, r.position, (self._requests[r.rid].last,), output=True) for r in plan.rows]
        return spans, [c.rid for c in plan.chunks if c.last] + [r.rid for r in plan.rows]

    def _move(self, moves: tuple[Move, ...]) -> bool:
        """An assignment is told at once: the decode that follows may take half a second."""
        assigned, holds = self._mover.carry_out(moves, self._requests)
        for given in assigned:
            request = self._requests[given.rid]
            request.cached = given.cached
            if isinstance(request, Request):
                self._channel.send(request.prefilled(given.cached))
        return holds

    def _sample(self, rid: int, row: int, out: list[Up]) -> None:
        request = self._requests[rid]
        if not isinstance(request, Request):
            return
        try:
            token = self._engine.sample(request.sampler, row, request.count, request.gate, request.logprobs)
            said, ended = request.accept(token)
        except GrammarError as error:
            said, ended = [Refused(rid, Code.BAD_REQUEST, str(error))], True
        out += said
        if ended:
            self._forget(rid)
        else:
            self._scheduler.sampled(rid, request.last)

    def _warmed(self, rid: int, out: list[Up]) -> None:
        warming = self._requests[rid]
        out.append(Warmed(rid, len(warming.prompt), warming.cached))
        self._forget(rid)

    def _forget(self, rid: int) -> None:
        seq = self._scheduler.remove(rid)
        if seq is not None:
            self._engine.remove(seq)
        self._mover.forget(rid)
        self._requests.pop(rid).close()

    # ---- what is told

    def _slots(self) -> list[Up]:
        slots = self._meter.read(self._scheduler, len(self._preparing))
        facts = self._cache_meter.read(self._scheduler, self._archive)
        return [m for m in (slots, facts) if m is not None]

    def _tell_slots(self) -> None:
        self._channel.send(*self._slots())
