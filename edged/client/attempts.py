"""Tries of one `generate`: where and when, with what body, and how they end. Pure.

`Exchange` adds what is heard meanwhile; the rules are written there.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from typing import Any, Final, Literal

from edged.client.choice import Choice
from edged.client.errors import EdgedError, NoAnswer, ReplyError
from edged.client.reading import Ended, Event, Postponed, Reading
from edged.client.replies import Result, typed
from edged.client.steps import Action, Ask, Close, Message, Pace, Say

Mode = Literal["reply", "pub"] | None
Retry = bool | Collection[str]
"""What of the retryable is repeated: all, nothing, or these codes."""

STARTING: Final = frozenset({"loading", "unavailable", "shutting_down"})
"""What a box says that is just being restarted, or reconfigured."""

ENDED_ANEW: Final = frozenset({"worker_lost", "internal", "deadline_exceeded"})
ANEW_MAX: Final = 2
OF_THE_EVENT: Final = ("type", "seq")
"""What an `end` has beside the result: the same request gives the same `Result`, however it came."""
DEADLINE_MAX_MS: Final = 86_400_000


def repeats(retry: Retry, code: str) -> bool:
    return retry if isinstance(retry, bool) else code in retry


class Phase(Enum):
    ASKING = auto()
    LISTENING = auto()
    BACKOFF = auto()
    LEAVING = auto()
    ENDED = auto()


def encode(op: str, fields: Mapping[str, Any]) -> bytes:
    """A body. ValueError or TypeError for what JSON cannot say."""
    return json.dumps({"op": op, **fields}, ensure_ascii=False, allow_nan=False).encode()


class Attempts:
    """`events` collects what is to be shown, `outcome` is None until the end. `mode` None: no stream."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        mode: Mode,
        choice: Choice,
        pace: Pace,
        *,
        deadline_s: float | None,
        answer_s: float | None,
        retry: Retry,
        stream_endpoint: Callable[[str], str],
    ) -> None:
        self.id = str(fields["id"])
        self.endpoint = choice.order[0]
        self.reading = Reading()
        self.events: deque[Event] = deque()
        self.outcome: Result | EdgedError | None = None
        self.cancelled = False
        """Set by a cancel from elsewhere: no more tries."""
        self._fields = dict(fields)
        self._mode = mode
        self._choice = choice
        self._pace = pace
        self._deadline_s = deadline_s
        self._answer_s = answer_s
        self._retry = retry
        self._stream_endpoint = stream_endpoint
        self._phase = Phase.BACKOFF
        self._at: str | None = None  # where to go on after BACKOFF, if that is settled
        self._ask: int | None = None
        self._sub: int | None = None
        self._probe: int | None = None
        self._lines = 0
        self._accepted = False
        self._held = False  # this box may have accepted it
        self._heard = 0.0  # when it said anything last, or was reached first
        self._instance: object = None
        self._refusal: ReplyError | None = None
        self._last_word: ReplyError | None = None  # a refusal that is not to be repeated: the others are asked once
        self._begun_anew = 0
        self._cuts = 0  # of the SUB, since its last event
        self._owed: float | None = None  # since when an answer is outstanding
        self._begun = self._due = self._until = 0.0

    # ---- trying ----------------------------------------------------------------------------------------------

    def _try(self, now: float, at: str | None = None) -> list[Action]:
        out = self._hang_up()
        if self.cancelled:
            return out + self._end_cancelled()
        if self._all_asked:
            return out + self._fail_each()
        endpoint, ready = (at, now) if at is not None else self._where(now)
        if ready > now:
            return out + self._back_off(ready, None)
        if endpoint != self.endpoint:
            self.endpoint, self._held, self._instance = endpoint, False, None
        self._accepted = False
        self._choice.take(endpoint)
        self._ask = self._line()
        self._phase = Phase.LISTENING if self._mode is None else Phase.ASKING
        self._due = self._no_longer_than_it_has(now + self._patience(), now)
        self._owed = now if self._owed is None else self._owed
        return [*out, Ask(self._ask, endpoint, self._body(now))]

    def _where(self, now: float) -> tuple[str, float]:
        """The box that has the request, as long as it is not given up; else whose turn it is."""
        if self._bound(now):
            return self.endpoint, self._choice.ready(self.endpoint, now)
        return self._choice.next(now)

    @property
    def _shown(self) -> bool:
        """The caller has seen text of it."""
        return bool(self.reading.text) or self.reading.run > 1

    def _bound(self, now: float) -> bool:
        """To this box: elsewhere it would be run once more, and perhaps with another text."""
        if self._shown:
            return True
        return self._held and self._has_time(now) and not self._choice.out(self.endpoint)

    def _has_time(self, now: float) -> bool:
        """Not given up yet."""
        return not self._held or now < self._heard + self._pace.stay_s

    def _no_longer_than_it_has(self, due: float, now: float) -> float:
        """When the box is given up, another is asked at once."""
        over = self._heard + self._pace.stay_s
        ends = self._held and not self._shown and self._choice.others(self.endpoint, now)
        return min(due, over) if ends and over > now else due

    @property
    def _all_asked(self) -> bool:
        return self._last_word is not None and not self._choice.unasked()

    def _fail_each(self) -> list[Action]:
        assert self._refusal is not None
        return self._fail(self._choice.each(self._refusal))

    def _back_off(self, until: float, at: str | None) -> list[Action]:
        out = self._hang_up()
        self._phase, self._due, self._at = Phase.BACKOFF, until, at
        return out

    def _body(self, now: float) -> bytes:
        fields = dict(self._fields)
        if self._deadline_s is not None:
            left = round((self._until - self._pace.grace_s - now) * 1000)
            fields["deadline_ms"] = max(1, min(DEADLINE_MAX_MS, left))
        if self._mode is not None:
            fields["stream"] = self._mode
        return encode("generate", fields)

    def _again(self, error: ReplyError, now: float) -> list[Action]:
        """Refused, or ended in an error."""
        self._held = False
        if not error.retryable:
            return self._fail(error)
        self._choice.refused(self.endpoint, now, error.retry_after, str(error))
        elsewhere = error.code not in ENDED_ANEW and not self._shown and self._choice.unasked()
        if not (elsewhere or repeats(self._retry, error.code)):
            return self._fail(self._choice.each(error))
        if error.code in ENDED_ANEW:
            self._begun_anew += 1
            if self._begun_anew > ANEW_MAX:
                return self._fail(error)
        again = self._where(now)[1]
        if again >= self._until - self._pace.grace_s:
            return self._fail(self._choice.each(error))
        self._refusal = error
        self._last_word = None if repeats(self._retry, error.code) else error
        self.events.append(Postponed(error.code, error.message, again - now))
        return self._try(now)

    # ---- leaving and ending -----------------------------------------------------------------------------------

    def leave(self, now: float) -> list[Action]:
        """The caller goes. The cancel follows the `generate` on its line if that is open: it cannot overtake it."""
        if self._phase in (Phase.ENDED, Phase.LEAVING):
            return []
        if self._phase is Phase.BACKOFF:
            return self._end_cancelled()
        body = encode("cancel", {"id": self.id})
        out: list[Action] = [Close(line) for line in (self._sub, self._probe) if line is not None]
        self._sub = self._probe = None
        self._phase, self._due = Phase.LEAVING, now + self._pace.leave_s
        if self._ask is not None:
            return [*out, Say(self._ask, body)]
        self._ask = self._line()
        return [*out, Ask(self._ask, self.endpoint, body)]

    def _finish(self, message: Message) -> list[Action]:
        try:
            result = typed({k: v for k, v in message.items() if k not in OF_THE_EVENT}, Result)
        except ReplyError as error:
            return self._fail(error)
        self.events += [*self.reading.whole(result.text), Ended(result)]
        return self._end(result)

    def _end_cancelled(self) -> list[Action]:
        result = Result(id=self.id, text=self.reading.text, finish_reason="cancelled")
        self.events.append(Ended(result))
        return self._end(result)

    def _fail(self, error: EdgedError) -> list[Action]:
        return self._end(error)

    def _end(self, outcome: Result | EdgedError) -> list[Action]:
        out = self._hang_up()
        self._choice.leave()
        self.outcome, self._phase = outcome, Phase.ENDED
        self._due = float("inf")
        return out

    def _silent(self, waited_s: float) -> NoAnswer:
        return self._choice.silence(waited_s)

    def _patience(self) -> float:
        """Without a stream the answer may take long: whether it arrived has to be known within `answer_s`."""
        patience = self._choice.patience(self.endpoint)
        return min(patience, self._answer_s / 2) if self._mode is None and self._answer_s else patience

    def _line(self) -> int:
        self._lines += 1
        return self._lines

    def _hang_up(self) -> list[Action]:
        out: list[Action] = [Close(line) for line in (self._ask, self._sub, self._probe) if line is not None]
        self._ask = self._sub = self._probe = None
        return out
