"""One step after another: what the scheduler plans is moved, decoded, sampled and told.

It owns the running requests. Trouble with one prompt is that request's `Refused`; trouble in a decode is the process's
end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edged.errors import Code
from edged.messages import Prompted, Refused, Start, Up, Warm, Warmed
from edged.worker.carrier import Carrier
from edged.worker.engine import Engine, Span
from edged.worker.form import Form
from edged.worker.grammar import GrammarError
from edged.worker.jobs import ContextOverflowError, Job
from edged.worker.llama import NoSlotError
from edged.worker.mover import Mover
from edged.worker.plan import Move, Plan
from edged.worker.prompt import Prompt
from edged.worker.request import Reading, Request, Warming
from edged.worker.scheduler import Scheduler


class Stepper:
    """`say` tells the daemon something at once. `tokens`: sampled, read and replayed since the start."""

    def __init__(
        self, engine: Engine, scheduler: Scheduler, mover: Mover, carrier: Carrier, say: Callable[..., None]
    ) -> None:
        self._engine, self._scheduler, self._mover, self._carrier = engine, scheduler, mover, carrier
        self._say = say
        self.requests: dict[int, Reading] = {}
        self.tokens = 0

    # ---- in and out

    def submit(self, job: Start | Warm, prompt: Prompt, form: Form) -> None:
        """A prepared prompt."""
        try:
            if isinstance(job, Warm):
                self._give(job, prompt)
                self.requests[job.rid] = Warming(job, prompt)
            else:
                self._start(job, prompt, form)
        except ContextOverflowError as error:
            self.refused(job, Refused(job.rid, Code.CONTEXT_OVERFLOW, str(error)))
        except GrammarError as error:  # what a grammar made possible it does not refuse
            self.refused(job, Refused(job.rid, Code.INTERNAL, f"what is known of the answer is none: {error}"))

    def refused(self, job: Start | Warm, why: Refused) -> None:
        """It ended before it was given to the scheduler."""
        if isinstance(job, Start):
            self._carrier.discard(job.name)
        self._say(why)

    def _start(self, job: Start, prompt: Prompt, form: Form) -> None:
        """Raises ContextOverflowError, GrammarError."""
        cells, known = self._engine.cells, len(prompt.tokens) + len(prompt.ids)
        if known + (not prompt.ids) > cells:
            raise ContextOverflowError(known, cells)
        limit = min(job.max_tokens, cells - len(prompt.tokens))
        request = Request(job, prompt, limit, self._engine.vocabulary, form)
        try:
            if (done := request.replay(prompt.ids)) is not None:
                self._carrier.discard(job.name)
                self._say(done)
                return
            self._carrier.begin(job.rid, job.name, prompt.tokens, prompt.ids)
            self._give(job, prompt)
            self.requests[job.rid] = request
        finally:
            if job.rid not in self.requests:
                self._carrier.forget(job.rid)
                request.close()
        if job.carried is None:
            tokens = np.array(prompt.tokens, dtype="<u4").tobytes()
            self._say(Prompted(job.rid, tokens, prompt.public, list(prompt.cuts)))

    def _give(self, job: Start | Warm, prompt: Prompt) -> None:
        """Raises ContextOverflowError."""
        warm = isinstance(job, Warm)
        self._scheduler.submit(
            Job(
                rid=job.rid,
                tokens=prompt.tokens,
                max_tokens=0 if isinstance(job, Warm) else job.max_tokens,
                scope=job.scope,
                public=prompt.public,
                keep=not isinstance(job, Start) or job.session,
                warm=warm,
                cuts=prompt.cuts,
                ids=prompt.ids,
                recall=isinstance(job, Start) and job.carried is not None and self._carrier.may_recall(job.rid),
            )
        )

    def forget(self, rid: int, *, carried: bool = False) -> None:
        """It ended here; `carried`: another worker goes on with it."""
        seq = self._scheduler.remove(rid)
        if seq is not None:
            self._engine.remove(seq)
        self._mover.forget(rid)
        if not carried:
            self._carrier.forget(rid)
        self.requests.pop(rid).close()

    # ---- one step

    def step(self) -> list[Up] | None:
        """What is to be told. None: nothing to decode, whoever is there waits for a snapshot."""
        plan = self._scheduler.plan()
        if not self._move(plan.moves):
            return []
        if not plan.tokens:
            return None
        spans, outputs = self._spans(plan)
        try:
            rows = self._engine.step(spans, prefill=bool(plan.chunks))
        except NoSlotError:
            self._move(self._scheduler.no_slot(plan))
            return []
        warmed = self._scheduler.commit(plan)
        self.tokens += plan.tokens
        out: list[Up] = []
        for chunk in plan.chunks:
            request = self.requests[chunk.rid]
            if isinstance(request, Request):
                out.append(request.prefilled(chunk.stop))
        for (rid, sample), row in zip(outputs, rows, strict=True):
            if sample:
                self._sample(rid, row, out)
        for rid in warmed:
            out.append(Warmed(rid, len(self.requests[rid].prompt), self.requests[rid].cached))
            self.forget(rid)
        return out

    def _spans(self, plan: Plan) -> tuple[list[Span], list[tuple[int, bool]]]:
        """What goes into the batch; and whose outputs come out, in that order, with whether a token is sampled of it.

        Prompts first: kernels for repacked weights take rows in fours and the rest singly, with other rounding, so a
        prompt's rows stay in the same fours whoever else decodes (`prefix.ALIGN`). A row whose next token is known has
        an output too: the batch is what it was.
        """
        spans = [
            Span(c.seq, c.start, self.requests[c.rid].prompt[c.start : c.stop], output=c.last) for c in plan.chunks
        ]
        spans += [Span(r.seq, r.position, (r.token,), output=True) for r in plan.rows]
        return spans, [(c.rid, c.sample) for c in plan.chunks if c.last] + [(r.rid, r.sample) for r in plan.rows]

    def _move(self, moves: tuple[Move, ...]) -> bool:
        """An assignment is told at once: the decode that follows may take half a second."""
        assigned, holds = self._mover.carry_out(moves, self.requests)
        for given in assigned:
            request = self.requests[given.rid]
            request.cached = min(given.cached, len(request.prompt))
            if isinstance(request, Request):
                self._say(request.prefilled(request.cached))
        return holds

    def _sample(self, rid: int, row: int, out: list[Up]) -> None:
        request = self.requests[rid]
        if not isinstance(request, Request):
            return
        try:
            token = self._engine.sample(request.sampler, row, request.count, request.gate, request.logprobs)
            said, ended = request.accept(token)
        except GrammarError as error:
            said, ended = [Refused(rid, Code.BAD_REQUEST, str(error))], True
        out += said
        if ended:
            self.forget(rid)
        else:
            self._scheduler.sampled(rid, request.last)
