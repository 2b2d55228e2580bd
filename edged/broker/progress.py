"""What the worker says, and its death (design 1, 4). Pure."""

from __future__ import annotations

from edged.broker.endings import logprob_entry
from edged.broker.gate import Phase
from edged.broker.instructions import Instruction
from edged.broker.lives import Lives
from edged.broker.streams import PREFILL_EVERY_S
from edged.broker.table import Move, Request, State
from edged.errors import Code, WireError
from edged.messages import Done, Prefilled, Refused, Sampled

_CODES = frozenset({Code.CONTEXT_OVERFLOW, Code.BAD_REQUEST})
"""What a worker may say of a prompt; anything else is a bug and becomes `internal`."""


class Progress:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    def heard(self, message: Prefilled | Sampled | Done | Refused, now: float) -> list[Instruction]:
        """One output of the worker; what concerns a request that has ended is ignored."""
        request = self._lives.table.get(message.rid)
        if request is None or request.state in (State.QUEUED, State.STORING):
            return []
        match message:
            case Prefilled():
                return self._prefilled(request, message, now)
            case Sampled():
                return self._sampled(request, message, now)
            case Done():
                request.tool_calls, request.reasoning = message.tool_calls, message.reasoning
                return self._lives.finish(request, now, reason=message.reason, stop=message.stop)
            case Refused():
                code = Code(message.code) if message.code in _CODES else Code.INTERNAL
                return self._lives.fail(request, now, WireError(code, message.message), told=True)

    def _prefilled(self, request: Request, message: Prefilled, now: float) -> list[Instruction]:
        request.prompt_tokens, request.cached_tokens = message.total, message.cached
        if request.talk is not None and message.dropped:
            request.talk.left_out = message.dropped
        if request.started is None:
            request.started = now
        if message.done == message.cached:  # a sequence was assigned, nothing is read yet
            return []
        first = request.state is State.GIVEN
        if first:
            request.move(Move.FIRST_CHUNK)
            self._lives.ledger.standing(request)
        stream = request.stream
        if stream.mode is False or not (first or now - stream.last_event >= PREFILL_EVERY_S):
            return []
        return [self._lives.emit(request, stream.event("prefill", now, done=message.done, total=message.total))]

    def _sampled(self, request: Request, message: Sampled, now: float) -> list[Instruction]:
        if request.state is State.GIVEN:
            request.move(Move.FIRST_CHUNK)
        if message.ids:
            request.started = now if request.started is None else request.started
            request.ids.extend(message.ids)
            request.first_token = now if request.first_token is None else request.first_token
            request.last_token = now
            self._lives.pace.counters["tokens"] += len(message.ids)
        logprobs = [logprob_entry(entry) for entry in message.logprobs]
        request.logprobs += logprobs
        streamed = logprobs if request.stream.mode is not False else []
        event = request.stream.token(message.text, len(message.ids), now, streamed)
        self._lives.ledger.sampled(request, message.ids, message.text, logprobs, now)
        if event is None or request.stream.mode is False:
            return []
        return [self._lives.emit(request, event)]

    def worker_ready(self, model: str, sequences: int) -> list[Instruction]:
        self._lives.gate.phase = Phase.READY
        self._lives.gate.why = ""
        self._lives.model, self._lives.sequences = model, sequences
        return self._lives.dispatch()

    def trying_again(self) -> None:
        """After `unavailable` a worker is started again: requests queue, if there ever was a model."""
        gate = self._lives.gate
        if gate.phase is Phase.UNAVAILABLE:
            gate.phase = Phase.REPLACING if self._lives.model else Phase.LOADING
            gate.loaded = None

    def worker_lost(self, cause: str, now: float) -> list[Instruction]:
        """`given` returns to the head of its queue, `running` ends with `worker_lost`."""
        lives = self._lives
        if lives.gate.phase is Phase.READY:
            lives.gate.phase = Phase.REPLACING
        out: list[Instruction] = []
        taken = [r for r in lives.table if r.state is State.GIVEN]
        for request in sorted(taken, key=lambda r: r.given, reverse=True):
            request.move(Move.TAKE_BACK)
            request.started = None
            request.restarts += 1
            lives.sessions.taken_back(request)
            lives.queue.push_head(request)
            lives.watch(request, now)
        for request in lives.table:
            if request.state is State.RUNNING:
                error = WireError(Code.WORKER_LOST, f"the worker ended ({cause}); ask again with the same id", 1000)
                out += lives.fail(request, now, error)
        return out

    def end_all(self, error: WireError, now: float) -> list[Instruction]:
        """Everything accepted ends now: the service is stopping, or the worker cannot be kept up.

        What is being stored has its answer, and ends by itself.
        """
        out: list[Instruction] = []
        for request in sorted(self._lives.table, key=lambda r: r.state is not State.QUEUED):
            if request.state is not State.STORING:
                out += self._lives.fail(request, now, error)
        return out
