"""One `generate` over as many tries as it takes. Pure: inputs with the time in them give actions.

    ASKING ──ticket──► LISTENING ──end / result──► ENDED
      │ ▲                 │   │ silence: `result` is asked on a line of its own
      ▼ │                 │   └─ not_found, another instance, a gap, a cut line: the same id again
    BACKOFF ◄──refused────┘            LEAVING: the caller goes, the cancel is on its way

Rules, each from the protocol:

* Every try sends the same id and body on a fresh line; `deadline_ms` is what is left (it does not count as body), so a
  run anew cannot outlast the caller's deadline.
* A try that did not get through, or was refused, is repeated at another endpoint if there is one. A box that may have
  accepted (the connection stood, and it has not said no) is asked again by id until it has been silent for `stay_s`:
  elsewhere the request would run once more. One whose text was shown is never left: that text cannot be taken back.
* A retryable refusal is repeated after `retry_after_ms` (else 0.1 s, doubled), as long as the deadline allows; then
  that refusal is the outcome, with those of the other boxes. With `retry` off every box is asked once. What ended in
  `worker_lost`, `internal` or `deadline_exceeded` is begun anew at most twice: the request itself may be to blame.
* Silence and gaps: protocol 4. What `result` says of a running request is as good as a snapshot, so that a reader goes
  on even when its stream is out of reach.
* Without a stream there is no ticket: the first silence is short, and asks whether the request has arrived.
"""

from __future__ import annotations

from edged.client.attempts import Attempts, Phase, encode
from edged.client.choice import CUT_LINE, NOBODY
from edged.client.errors import CUTS, NotAdmitted, error_of
from edged.client.reading import Accepted
from edged.client.replies import is_result
from edged.client.steps import Action, Ask, Close, Heard, Input, Listen, Lost, Message, Reached


class Exchange(Attempts):
    """Inputs in, actions out; `events` and `outcome` are for the caller."""

    # ---- the door --------------------------------------------------------------------------------------------

    @property
    def wake(self) -> float:
        """When `tick` is due, unless something comes before."""
        return min(self._due, self._until, self._given_up)

    @property
    def _given_up(self) -> float:
        """When the caller has waited long enough for any word at all."""
        return float("inf") if self._answer_s is None or self._owed is None else self._owed + self._answer_s

    def begin(self, now: float) -> list[Action]:
        self._begun = now
        self._until = now + (self._deadline_s or self._pace.deadline_s) + self._pace.grace_s
        return self._try(now)

    def feed(self, what: Input, now: float) -> list[Action]:
        if self._phase is Phase.ENDED or what.line not in (self._ask, self._sub, self._probe):
            return []
        if isinstance(what, Lost):
            return self._lost(what.line, what.reason, now)
        if isinstance(what, Reached):
            return self._reached(what.line, now)
        if not isinstance(what, Heard):
            return self._unreachable(what.line, now)
        self._owed, self._heard = None, now
        if self._phase is Phase.LEAVING:
            return self._left(what.message)
        if what.line == self._probe:
            return self._probed(what.message, now)
        if "type" in what.message:
            return self._event(what.message, now)
        if what.message.get("ok") is not True:
            return self._again(error_of(what.message), now)
        if self._mode is None:
            return self._finish(what.message) if is_result(what.message) else []
        return self._ticket(what.message, now) if isinstance(what.message.get("topic"), str) else []

    def tick(self, now: float) -> list[Action]:
        if self._phase is Phase.ENDED or now < self.wake:
            return []
        if self._phase is Phase.LEAVING:
            return self._end_cancelled()
        if now >= self._until:
            refusal = self._refusal and self._choice.each(self._refusal)
            return self._fail(refusal or self._silent(now - self._begun))
        if now >= self._given_up:
            return self._fail(self._silent(self._answer_s or 0.0))
        if self._phase is Phase.LISTENING:
            return self._ask_result(now)
        if self._phase is Phase.ASKING:
            self._choice.silent(self.endpoint, now)
            return self._try(now)
        return self._try(now, self._at)

    # ---- listening -------------------------------------------------------------------------------------------

    def _ticket(self, ticket: Message, now: float) -> list[Action]:
        self._choice.answered(self.endpoint)
        self._accepted = self._held = True
        self._refusal = self._last_word = None
        self._instance = ticket.get("instance")
        in_force, topic, position = ticket.get("deadline_ms"), str(ticket["topic"]), ticket.get("position")
        if self._deadline_s is None and isinstance(in_force, int):
            self._deadline_s = in_force / 1000
            self._until = now + self._deadline_s + self._pace.grace_s
        self.events += self.reading.ticket(topic)
        where = position if isinstance(position, int) else None
        self.events.append(
            Accepted(topic, str(ticket.get("state", "")), where, self.endpoint, str(ticket.get("instance", "")))
        )
        self._phase, self._due = Phase.LISTENING, now + self._pace.silence_s
        if self.cancelled:
            return self.leave(now)
        return self._subscribe() if self._mode == "pub" else []

    def _subscribe(self) -> list[Action]:
        """On a new line: the snapshot that follows makes the stream whole."""
        out: list[Action] = [Close(line) for line in (self._ask, self._sub) if line is not None]
        self._ask, self._sub = None, self._line()
        assert self.reading.topic is not None
        return [*out, Listen(self._sub, self._stream_endpoint(self.endpoint), self.reading.topic)]

    def _event(self, message: Message, now: float) -> list[Action]:
        if self._phase is not Phase.LISTENING or message.get("id") != self.id:
            return []
        self._due, self._cuts = now + self._pace.silence_s, 0
        if message["type"] == "end":
            return self._again(error_of(message), now) if "error" in message else self._finish(message)
        shown = self.reading.event(message)
        if shown is None:
            return self._take_up(now)
        self.events += shown
        return []

    def _take_up(self, now: float) -> list[Action]:
        """Events are missing: the stream is asked for again where it is."""
        return self._subscribe() if self._mode == "pub" else self._try(now, self.endpoint)

    def _ask_result(self, now: float) -> list[Action]:
        if self._probe is not None or not (self._accepted or self._mode is not None or self._has_time(now)):
            self._choice.silent(self.endpoint, now)
            return self._try(now)
        self._probe = self._line()
        self._due = self._no_longer_than_it_has(now + self._choice.patience(self.endpoint), now)
        self._owed = now if self._owed is None else self._owed
        return [Ask(self._probe, self.endpoint, encode("result", {"id": self.id}))]

    def _probed(self, reply: Message, now: float) -> list[Action]:
        assert self._probe is not None
        out: list[Action] = [Close(self._probe)]
        self._probe, self._due = None, now + self._pace.silence_s
        self._choice.answered(self.endpoint)
        if reply.get("ok") is not True:
            error = error_of(reply)
            unknown = error.code == "not_found"
            self._held = False
            return out + (self._try(now, self.endpoint) if unknown else self._again(error, now))
        if is_result(reply):
            return out + self._finish(reply)
        self._accepted = self._held = True
        if self._instance not in (None, reply.get("instance")):
            return out + self._try(now, self.endpoint)
        seq = reply.get("seq")
        if self._mode is None or not isinstance(seq, int) or seq <= self.reading.seq:
            return out
        self.events += self.reading.snapshot(seq, reply.get("text"))
        return out + self._take_up(now)

    def _lost(self, line: int, reason: str | None, now: float) -> list[Action]:
        if self._phase is Phase.LEAVING:
            return self._end_cancelled()
        if line == self._sub:  # it comes back by itself, perhaps to another daemon: asked after soon, not every time
            wait = self._pace.backoff_s * 2.0 ** min(self._cuts, 16) if self._cuts else 0.0
            self._cuts += 1
            if self._probe is None:
                self._due = min(self._due, now + wait)
            return []
        if reason in CUTS and self._accepted:  # it was let in before: rather a restart than a wrong key
            reason = None
        barred = None if reason is None else self._choice.barred(self.endpoint, now, reason)
        if barred is None and reason is not None and self._shown and self._choice.out(self.endpoint):
            barred = NotAdmitted(self.endpoint, reason)
        if barred is not None:
            return self._fail(barred)
        if line == self._probe:
            self._choice.silent(self.endpoint, now)
            return self._try(now)
        if self._accepted and self._bound(now):
            self._choice.note(self.endpoint, CUT_LINE)
            return self._back_off(now + self._pace.backoff_s, self.endpoint)
        if reason is None:
            self._choice.refused(self.endpoint, now)
        return self._try(now)

    def _reached(self, line: int, now: float) -> list[Action]:
        """From here on the box may have it."""
        if line == self._ask and not self._held:
            self._held, self._heard = True, now
        return []

    def _unreachable(self, line: int, now: float) -> list[Action]:
        if line == self._sub or self._phase is Phase.LEAVING:
            return []
        if self._bound(now) or len(self._choice.order) == 1:  # the socket goes on by itself
            self._choice.note(self.endpoint, NOBODY)
            return []
        self._choice.away(self.endpoint, now)
        return self._try(now)

    def _left(self, message: Message) -> list[Action]:
        if is_result(message):
            return self._finish(message)
        over = "error" in message or ("type" not in message and "topic" not in message)
        return self._end_cancelled() if over else []
