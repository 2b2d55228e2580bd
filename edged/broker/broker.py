"""The broker's one door: what clients ask, what the worker says, what the clock brings. Pure.

Behind it: `lives` (state and endings), `verbs`, `topics`, `progress`, `carrying`, `turns`, `lookups`, `errands`.
"""

from __future__ import annotations

from collections.abc import Callable

from edged.broker.carrying import Carrying
from edged.broker.errands import Errands
from edged.broker.gate import Gate, Phase
from edged.broker.instructions import Caller, Instruction, Reply
from edged.broker.lives import Encode, Lives
from edged.broker.lookups import Lookups
from edged.broker.progress import Progress
from edged.broker.recovery import restore
from edged.broker.story import Found
from edged.broker.table import State
from edged.broker.topics import Topics
from edged.broker.transcript import Answer
from edged.broker.turns import Turns
from edged.broker.verbs import Verbs
from edged.broker.written import Written
from edged.config import Config
from edged.errors import Code, WireError
from edged.level import Level
from edged.messages import (
    Cancel,
    Done,
    Drain,
    Embedded,
    EmbedRequest,
    Generate,
    Gone,
    Prefilled,
    Prompted,
    Refused,
    Requests,
    Result,
    Resume,
    Sampled,
    SessionRequest,
    SessionsRequest,
    Tokenized,
    TokenizeRequest,
    Warmed,
    WarmRequest,
)

Asked = (
    Generate
    | Result
    | Cancel
    | TokenizeRequest
    | EmbedRequest
    | WarmRequest
    | SessionRequest
    | SessionsRequest
    | Requests
    | Drain
    | Resume
)
Output = Prompted | Prefilled | Sampled | Done | Refused | Gone | Tokenized | Embedded | Warmed


class Broker:
    """`new_token` gives 128 random bits in hexadecimal, `new_seed` a random number 0…2³²−1."""

    def __init__(
        self, config: Config, encode: Encode, new_token: Callable[[], str], new_seed: Callable[[], int]
    ) -> None:
        self.lives = Lives(config, encode)
        self.topics = Topics(self.lives)
        self._verbs = Verbs(self.lives, new_token, new_seed)
        self._progress = Progress(self.lives)
        self._carrying = Carrying(self.lives)
        self.errands = Errands(self.lives)
        self._turns = Turns(self.lives)
        self._lookups = Lookups(self.lives)
        self._written = Written(self.lives)

    @property
    def gate(self) -> Gate:
        return self.lives.gate

    def asked(self, caller: Caller, request: Asked, digest: bytes, now: float) -> list[Instruction]:
        """`digest` tells equal `generate` bodies apart from others."""
        match request:
            case Generate():
                return self._verbs.generate(caller, request, digest, now)
            case Result():
                return self._verbs.result(caller, request, now)
            case Cancel():
                return self._verbs.cancel(caller, request, now)
            case TokenizeRequest() | EmbedRequest() | WarmRequest():
                return self.errands.ask(caller, request, now)
            case SessionRequest() | SessionsRequest():
                return self._lookups.ask(caller, request, now)
            case Requests():
                return [Reply(caller.to, request.id, {"requests": self._verbs.requests(now)})]
            case Drain() | Resume():
                self.gate.drained = isinstance(request, Drain)
                return [Reply(caller.to, request.id, {"state": self.gate.state})]

    def heard(self, output: Output, now: float) -> list[Instruction]:
        """What the worker made."""
        if isinstance(output, Gone):
            return self.lives.gone(output.rid)
        if isinstance(output, Tokenized | Embedded | Warmed):
            return self.errands.heard(output)
        if isinstance(output, Refused):
            return self.errands.heard(output) or self._progress.heard(output, now)
        return self._progress.heard(output, now)

    def recalled(self, answer: Answer, now: float) -> list[Instruction]:
        """What the thread with the transcripts found."""
        return self._turns.heard(answer, now) + self._lookups.heard(answer)

    def broken(self, rid: int, now: float) -> list[Instruction]:
        """A bug was met in this request's books: it ends with `internal`."""
        request = self.lives.table.get(rid)
        if request is None:
            return []
        return self.lives.fail(request, now, WireError(Code.INTERNAL, "a bug in the service; it was logged"))

    # ---- the worker's life -----------------------------------------------------------------------------------

    def worker_ready(self, model: str, sequences: int, fingerprint: str, now: float) -> list[Instruction]:
        """`fingerprint`: of the model file, as in `Ready`."""
        return self._carrying.worker_ready(model, sequences, fingerprint, now)

    def written(self, number: int, now: float) -> list[Instruction]:
        """The disk has all durable records up to `number`."""
        return self._written.written(number, now)

    def unwritten(self, number: int, now: float) -> list[Instruction]:
        """It does not have those, and may never."""
        return self._written.failed(number, now)

    def recovered(self, found: Found, now: float) -> list[Instruction]:
        """What an earlier daemon accepted and did not end, and results that are still kept."""
        return restore(self.lives, found, now)

    def dispatch(self) -> list[Instruction]:
        """Gives the worker what it may have."""
        return self.lives.dispatch()

    def trying_again(self) -> None:
        """A worker is being started after a time without one."""
        self._carrying.trying_again()

    def worker_lost(self, cause: str, now: float) -> list[Instruction]:
        """A worker that was up has ended. `cause`: a signal's name, `exit N`, `stalled`, `oom`, or why it was replaced
        or unloaded: `reload`, `profile`, `heat`, `memory`; clients read it in their `restart` event.
        """
        return self._carrying.worker_lost(cause, now) + self.errands.lost()

    def unloaded(self) -> None:
        """There is no worker, on purpose; `worker_lost` came before, if there was one."""
        self._carrying.unloaded()

    @property
    def has_work(self) -> bool:
        """The worker owes something: a request, an errand, or word that it has let go of one."""
        lives = self.lives
        given = len(lives.table) - len(lives.queue) - lives.sessions.away
        return given > 0 or bool(lives.errands) or bool(lives.leaving)

    def live_names(self) -> list[str]:
        """Checkpoints that a worker which starts now must leave alone: of what is carried on, and of what the present
        worker has, since it may be replaced by the new one."""
        return [request.name for request in self.lives.table if request.carried or request.with_worker]

    def pressed(
        self, level: Level, code: Code | None, retry_after_ms: int | None, why: str, _now: float
    ) -> list[Instruction]:
        """How hard the board is pressed (`edged.level`), what that is called in refusals, and until when, about."""
        gate = self.gate
        gate.level, gate.code, gate.retry_after_ms, gate.pressed_by = level, code, retry_after_ms, why
        return self.dispatch()

    def unavailable(self, why: str, until: float, now: float) -> list[Instruction]:
        """The worker cannot be kept up: everything accepted ends, new requests are refused until it is."""
        self.gate.phase, self.gate.why, self.gate.until = Phase.UNAVAILABLE, why, until
        error = WireError(Code.UNAVAILABLE, why, max(100, round(1000 * (until - now))))
        return self._carrying.end_all(error, now)

    def stopped(self, now: float) -> list[Instruction]:
        """The drain is over: what is left ends."""
        error = WireError(Code.SHUTTING_DOWN, "the service stopped before this was done", 5000)
        out = self._carrying.end_all(error, now)
        for request in self.lives.table:
            if request.state is State.STORING and request.talk is not None:
                out += self.lives.close(request, now, request.talk.fields, stored=False)
        return out + self.errands.end_all(error) + self._lookups.end_all(error)

    def expel(self, knows: Callable[[str], bool], now: float) -> list[Instruction]:
        """`knows` tells of an identity whether anybody may still come as it: what the others own ends."""
        return self._carrying.expel(knows, now) + self.errands.expel(knows)

    def tick(self, now: float) -> list[Instruction]:
        """What was not written in time comes first: it is not to be told as waiting."""
        return self._written.tick(now) + self.lives.tick(now) + self.errands.tick(now) + self._lookups.tick(now)

    def next_wake(self) -> float:
        """When `tick` should be called at the latest; inf: not before an event."""
        parts = (self.lives, self.errands, self._lookups, self._written)
        return min(part.next_wake() for part in parts)
