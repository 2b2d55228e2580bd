"""Everything but `generate`: one question, one answer, as many tries as the deadline allows. Pure.

Every verb here may be asked twice. A question without an answer is asked again on a fresh line, at another endpoint if
there is one; `patient` repeats retryable refusals too, all or those of these codes; `seek` asks the other endpoints
when one says `not_found`, for an id whose box is not known.
"""

from __future__ import annotations

from edged.client.attempts import Retry, repeats
from edged.client.choice import Choice
from edged.client.errors import EdgedError, ReplyError, error_of
from edged.client.steps import Action, Ask, Close, Heard, Input, Lost, Message, Reached


class Call:
    """`outcome` is None until the end. `wait_s`: how long the daemon may take over its answer on purpose."""

    def __init__(
        self,
        body: bytes,
        choice: Choice,
        *,
        deadline_s: float,
        wait_s: float = 0.0,
        patient: Retry = False,
        seek: bool = False,
    ) -> None:
        self.outcome: Message | EdgedError | None = None
        self._body = body
        self._choice = choice
        self._deadline_s = deadline_s
        self._wait_s = wait_s
        self._patient = patient
        self._seek = seek
        self._endpoint = choice.order[0]
        self._line = 0
        self._open = False
        self._refusal: ReplyError | None = None
        self._begun = self._due = self._until = 0.0

    @property
    def wake(self) -> float:
        return min(self._due, self._until)

    def begin(self, now: float) -> list[Action]:
        self._begun, self._until = now, now + self._deadline_s
        return self._try(now)

    def feed(self, what: Input, now: float) -> list[Action]:
        if self.outcome is not None or not self._open or what.line != self._line:
            return []
        if isinstance(what, Heard):
            return self._heard(what.message, now)
        if isinstance(what, Lost):
            return self._lost(what.reason, now)
        if isinstance(what, Reached) or len(self._choice.order) == 1:  # alone, the socket goes on by itself
            return []
        self._choice.away(self._endpoint, now)
        return self._try(now)

    def tick(self, now: float) -> list[Action]:
        if self.outcome is not None or now < self.wake:
            return []
        if now >= self._until:
            refusal = self._refusal and self._choice.each(self._refusal)
            return self._end(refusal or self._choice.silence(now - self._begun))
        if self._open:
            self._choice.silent(self._endpoint, now)
        return self._try(now)

    def _try(self, now: float) -> list[Action]:
        out = self._hang_up()
        endpoint, ready = self._choice.next(now)
        if ready > now:
            self._due = ready
            return out
        self._endpoint, self._open = endpoint, True
        self._choice.take(endpoint)
        self._line += 1
        self._due = now + self._choice.patience(endpoint) + self._wait_s
        return [*out, Ask(self._line, endpoint, self._body)]

    def _heard(self, message: Message, now: float) -> list[Action]:
        if message.get("ok") is True:
            self._choice.answered(self._endpoint)
            return self._end(message)
        error = error_of(message)
        elsewhere = self._seek and error.code == "not_found"
        if not elsewhere and not (error.retryable and repeats(self._patient, error.code)):
            return self._end(error)
        self._choice.refused(self._endpoint, now, float("inf") if elsewhere else error.retry_after, str(error))
        if self._choice.next(now)[1] >= self._until:
            return self._end(self._choice.each(error))
        self._refusal = error
        return self._try(now)

    def _lost(self, reason: str | None, now: float) -> list[Action]:
        if reason is None:
            self._choice.refused(self._endpoint, now)
            return self._try(now)
        barred = self._choice.barred(self._endpoint, now, reason)
        return self._try(now) if barred is None else self._end(barred)

    def _end(self, outcome: Message | EdgedError) -> list[Action]:
        out = self._hang_up()
        self._choice.leave()
        self.outcome = outcome
        return out

    def _hang_up(self) -> list[Action]:
        was, self._open = self._open, False
        return [Close(self._line)] if was else []
