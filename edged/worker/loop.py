"""The worker's loop: one thread that owns the link and the engine.

Everything that came is handled before each step; each step's outputs leave as one frame. It sleeps in poll() only
when there is nothing to decode. Trouble with one prompt is that request's `Refused`; trouble in a decode, or any
exception here, is the process's end: the daemon starts another and carries the requests on.
"""

from __future__ import annotations

from edged.errors import Code
from edged.messages import Abort, Down, Load, Prefilled, Quit, Ready, Refused, Start, Tokenize, Tokenized, Up
from edged.worker.channel import Channel
from edged.worker.engine import Engine, Span
from edged.worker.form import Form
from edged.worker.grammar import GrammarError
from edged.worker.llama import NoSlotError
from edged.worker.meter import Meter
from edged.worker.prepare import Prepare, Prepared
from edged.worker.request import Request
from edged.worker.scheduler import (
    Assign,
    ContextOverflowError,
    Move,
    Plan,
    Restore,
    Scheduler,
    SetAside,
)


class Loop:
    def __init__(self, channel: Channel, engine: Engine, prepare: Prepare, ready: Ready) -> None:
        self._channel, self._engine, self._prepare = channel, engine, prepare
        self._scheduler = Scheduler(ready.context, ready.sequences, engine.batch, engine.chunk)
        self._preparing: set[int] = set()
        self._requests: dict[int, Request] = {}
        self._meter = Meter()
        self._quit = False

    def run(self) -> None:
        """Until Quit. Raises LinkClosed when the daemon is gone, EngineError when the engine is."""
        while True:
            if not self._scheduler.runnable:
                self._idle()
            for message in self._channel.receive():
                self._handle(message)
            for done in self._prepare.take():
                self._prepared(done)
            if self._quit:
                return
            if self._scheduler.runnable:
                self._step()

    def _idle(self) -> None:
        self._scheduler.check()
        self._engine.check_empty()
        self._tell_slots()
        if self._channel.wait(self._prepare.wake):
            self._prepare.clear()

    # ---- what comes

    def _handle(self, message: Down) -> None:
        match message:
            case Start(rid=rid):
                if rid in self._preparing or rid in self._requests:
                    raise ValueError("the daemon gave one request number twice")
                self._preparing.add(rid)
                self._prepare.put(message)
            case Tokenize():
                self._prepare.put(message)
            case Abort(rid=rid):
                if rid in self._preparing:
                    self._preparing.remove(rid)
                    self._prepare.drop(rid)
                if rid in self._requests:
                    self._forget(rid)
            case Quit():
                self._quit = True
            case Load():
                raise ValueError("the daemon said Load twice")
        self._tell_slots()

    def _prepared(self, done: Prepared) -> None:
        match done:
            case Prepared(job=Tokenize(rid=rid), result=result):
                if isinstance(result, list):
                    self._channel.send(Tokenized(rid, result, len(result) + 1 <= self._engine.cells))
                else:
                    self._channel.send(result)
            case Prepared(job=Start() as start, result=result) if start.rid in self._preparing:
                self._preparing.remove(start.rid)
                if isinstance(result, Refused):
                    self._channel.send(result)
                else:
                    self._submit(start, result, done.form)
                self._tell_slots()

    def _submit(self, start: Start, tokens: list[int], form: Form) -> None:
        try:
            limit = self._scheduler.submit(start.rid, len(tokens), start.max_tokens)
        except ContextOverflowError as error:
            self._channel.send(Refused(start.rid, Code.CONTEXT_OVERFLOW, str(error)))
            return
        self._requests[start.rid] = Request(start, tokens, limit, self._engine.vocabulary, form)

    # ---- one step

    def _step(self) -> None:
        plan = self._scheduler.plan()
        self._move(plan.moves)
        spans = self._spans(plan)
        try:
            rows = self._engine.step(spans, prefill=bool(plan.chunks))
        except NoSlotError:
            self._move(self._scheduler.no_slot(plan))
            return
        self._scheduler.commit(plan)
        out: list[Up] = [Prefilled(c.rid, c.stop, len(self._requests[c.rid].prompt), 0) for c in plan.chunks]
        rids = [r.rid for r in plan.rows] + [c.rid for c in plan.chunks if c.last]
        for rid, row in zip(rids, rows, strict=True):
            self._sample(rid, row, out)
        out += self._slots()
        self._channel.send(*out)

    def _spans(self, plan: Plan) -> list[Span]:
        spans = [Span(r.seq, r.position, (self._requests[r.rid].last,), output=True) for r in plan.rows]
        spans += [
            Span(c.seq, c.start, self._requests[c.rid].prompt[c.start : c.stop], output=c.last) for c in plan.chunks
        ]
        return spans

    def _move(self, moves: tuple[Move, ...]) -> None:
        """An assignment is told at once: the decode that follows may take half a second."""
        for move in moves:
            request = self._requests[move.rid]
            match move:
                case Assign():
                    self._channel.send(Prefilled(move.rid, 0, len(request.prompt), 0))
                case SetAside(seq=seq, cells=cells):
                    request.state = self._engine.copy_out(seq) if cells else None
                    self._engine.remove(seq)
                case Restore(seq=seq):
                    if request.state is not None:
                        self._engine.copy_in(seq, request.state)
                        request.state = None

    def _sample(self, rid: int, row: int, out: list[Up]) -> None:
        request = self._requests[rid]
        try:
            token = self._engine.sample(request.sampler, row, request.count, request.gate, request.logprobs)
            said, ended = request.accept(token)
        except GrammarError as error:
            said, ended = [Refused(rid, Code.BAD_REQUEST, str(error))], True
        out += said
        if ended:
            self._forget(rid)
        else:
            self._scheduler.sampled(rid)

    def _forget(self, rid: int) -> None:
        seq = self._scheduler.remove(rid)
        if seq is not None:
            self._engine.remove(seq)
        self._requests.pop(rid).close()

    # ---- what is told

    def _slots(self) -> list[Up]:
        slots = self._meter.read(self._scheduler, len(self._preparing))
        return [slots] if slots is not None else []

    def _tell_slots(self) -> None:
        self._channel.send(*self._slots())
