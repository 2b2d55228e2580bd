"""What the worker says of its requests (design 1). Pure.

A carried request's figures are those of its first run: what the next worker reads again, or finds in a checkpoint, is
no usage of the caller's.
"""

from __future__ import annotations

from edged.broker import blame
from edged.broker.endings import logprob_entry
from edged.broker.instructions import Instruction
from edged.broker.lives import Lives
from edged.broker.streams import PREFILL_EVERY_S
from edged.broker.table import Move, Request, State
from edged.errors import Code, WireError
from edged.level import Level
from edged.messages import Done, Prefilled, Prompted, Refused, Sampled

_CODES = frozenset({Code.CONTEXT_OVERFLOW, Code.BAD_REQUEST})
"""What a worker may say of a prompt; anything else is a bug and becomes `internal`."""

Said = Prompted | Prefilled | Sampled | Done | Refused


class Progress:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    def heard(self, message: Said, now: float) -> list[Instruction]:
        """One output of the worker; what concerns a request that has ended is ignored."""
        request = self._lives.table.get(message.rid)
        if request is None or not request.with_worker:
            return []
        match message:
            case Prompted():
                self._prompted(request, message)
                return []
            case Prefilled():
                return self._going(request, self._prefilled(request, message, now))
            case Sampled():
                return self._going(request, self._sampled(request, message, now))
            case Done():
                request.tool_calls, request.reasoning = message.tool_calls, message.reasoning
                return self._lives.finish(request, now, reason=message.reason, stop=message.stop)
            case Refused():
                return self._refused(request, message, now)

    def _prompted(self, request: Request, message: Prompted) -> None:
        if not request.carried:
            request.prompt_ids, request.public, request.cuts = message.prompt, message.public, message.cuts
            request.fingerprint = self._lives.fingerprint
            self._lives.ledger.prompted(request, self._lives.model)

    def _prefilled(self, request: Request, message: Prefilled, now: float) -> list[Instruction]:
        if not (request.carried and request.prompt_tokens):
            request.prompt_tokens, request.cached_tokens = message.total, message.cached
        if request.talk is not None and message.dropped:
            request.talk.left_out = message.dropped
        if request.started is None:
            request.started = now
        before, request.reached = request.reached, message.done
        if message.done == message.cached:  # a sequence was assigned, nothing is read yet
            return []
        self._lives.pace.counters["prefill_tokens"] += max(0, message.done - before)
        self._lives.revival.somewhere(self._lives.ledger)
        request.read = max(request.read, min(message.done, request.prompt_tokens))
        first = request.state is State.GIVEN
        if first:
            request.move(Move.FIRST_CHUNK)
            self._lives.ledger.standing(request)
        stream = request.stream
        news = first and not request.carried
        if stream.mode is False or not (news or now - stream.last_event >= PREFILL_EVERY_S):
            return []
        return [self._lives.emit(request, stream.event("prefill", now, done=message.done, total=message.total))]

    def _sampled(self, request: Request, message: Sampled, now: float) -> list[Instruction]:
        if request.state is State.GIVEN:
            request.move(Move.FIRST_CHUNK)
        if message.ids:
            self._lives.revival.somewhere(self._lives.ledger)
            self._lives.pace.sampled(request, len(message.ids), now)
            request.started = now if request.started is None else request.started
            request.ids.extend(message.ids)
            request.first_token = now if request.first_token is None else request.first_token
            request.last_token = now
        logprobs = [logprob_entry(entry) for entry in message.logprobs]
        request.logprobs += logprobs
        streamed = logprobs if request.stream.mode is not False else []
        event = request.stream.token(message.text, len(message.ids), now, streamed)
        self._lives.ledger.sampled(request, message.ids, message.text, logprobs, now)
        if event is None or request.stream.mode is False:
            return []
        return [self._lives.emit(request, event)]

    def _going(self, request: Request, out: list[Instruction]) -> list[Instruction]:
        """A trial may be over: others wait for it."""
        if request.blamed and blame.proven(request):
            request.blamed = 0
        return out + self._lives.dispatch() if self._lives.on_trial else out

    def _refused(self, request: Request, message: Refused, now: float) -> list[Instruction]:
        """A smaller profile may have no room for what an earlier one accepted."""
        lives = self._lives
        code = Code(message.code) if message.code in _CODES else Code.INTERNAL
        error = WireError(code, message.message)
        if code is Code.CONTEXT_OVERFLOW and request.restarts:
            if request.stream.text:
                return lives.finish(request, now, reason="length")
            if lives.gate.level > Level.NORMAL:
                error = lives.gate.pressure()
        return lives.fail(request, now, error, told=True)
