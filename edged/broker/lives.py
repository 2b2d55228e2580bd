"""The lives of accepted requests: given to the worker, watched by the clock, ended exactly once. Pure.

A request ends in `_end` and nowhere else: the result is encoded once and kept, every waiter is answered, the stream
gets its `end`, the worker is told to forget, and the place is given to the next.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from edged.broker import blame
from edged.broker.admission import Queue
from edged.broker.endings import Pace, result_fields
from edged.broker.gate import Gate, Phase
from edged.broker.instructions import Emit, Instruction, Note, Raw, Refuse, Reply, Tell
from edged.broker.ledger import Ledger
from edged.broker.results import Kept, Results
from edged.broker.revival import Revival
from edged.broker.sessions import Sessions
from edged.broker.start import start
from edged.broker.table import Move, Request, State, Table, Waiter
from edged.broker.timers import Timers
from edged.config import Config
from edged.errors import Code, WireError
from edged.messages import Abort, Discard

PREPARE_AHEAD: Final = 2
"""Requests given to the worker beyond what it can run, to be prepared meanwhile (design 1)."""


ENTERS: Final = ("stop", "length")
"""With these a turn of a session is whole, and enters its transcript."""


class Encode(Protocol):
    """How an end is put into bytes, once."""

    def ok(self, request_id: str | None, fields: dict[str, Any], /) -> bytes: ...
    def error(self, request_id: str | None, error: WireError, /) -> bytes: ...


class Lives:
    """All state of the broker. Every method returns what is to be done, in order; `now` is monotonic seconds."""

    def __init__(self, config: Config, encode: Encode) -> None:
        self.config = config
        self.gate = Gate()
        self.model = ""
        self.fingerprint = ""  # of the model
        self.sequences = 0
        self.on_trial = False  # something waits because of a trial (`edged.broker.blame`)
        self.leaving: dict[int, Request] = {}  # ended and aborted, and the worker may be at them: it did not say `Gone`
        self.errands: set[int] = set()  # that the worker has, those included that are leaving it
        self.table = Table()
        self.queue = Queue(self.gate.gives)
        self.results = Results()
        self.timers = Timers()
        self.pace = Pace()
        self.sessions = Sessions()
        self.ledger = Ledger()
        self.revival = Revival()
        self._encode = encode
        self._gives = 0
        self._rid = 0

    def new_rid(self) -> int:
        """The next running number, for requests and everything else the worker is asked."""
        self._rid += 1
        return self._rid

    # ---- giving ----------------------------------------------------------------------------------------------

    def free(self) -> int:
        """How many more the worker may be given."""
        if self.gate.phase is not Phase.READY or self.gate.clogged:
            return 0
        return max(0, self.sequences + PREPARE_AHEAD - (len(self.table) - len(self.queue) - self.sessions.away))

    def dispatch(self) -> list[Instruction]:
        """Gives the worker as many as it can run, and two more."""
        out: list[Instruction] = []
        self.on_trial = False
        while (free := self.free()) > 0:
            request = self.queue.first(sessions=self.sessions.fetching < free)
            if request is None:
                break
            beside = [*(other for other in self.table if other.with_worker), *self.leaving.values()]
            most, errands = self.config.limits.max_restarts, bool(self.errands)
            self.on_trial = not blame.may_go(request, beside, most, errands=errands)
            if self.on_trial:
                break
            self.queue.take(request)
            request.move(Move.GIVE)
            self._gives += 1
            request.given = self._gives
            if request.talk is None or request.carried:
                out.append(Tell(start(request, request.body.messages)))
            else:
                out.append(self.sessions.fetch(request, self.config.limits.request_bytes))
        return out

    @property
    def trial(self) -> bool:
        """The worker has a suspect (`edged.broker.blame`)."""
        most = self.config.limits.max_restarts
        return any(r.with_worker and blame.suspect(r, most) for r in self.table)

    def gone(self, rid: int) -> list[Instruction]:
        """The worker has let go of what it was told to abort, or of an errand: others may wait for that."""
        self.leaving.pop(rid, None)
        self.errands.discard(rid)
        return self.dispatch() if self.on_trial else []

    def no_worker(self) -> None:
        """With it went what was leaving it, and its errands."""
        self.leaving.clear()
        self.errands.clear()

    # ---- telling ---------------------------------------------------------------------------------------------

    def emit(self, request: Request, fields: dict[str, Any]) -> Emit:
        stream = request.stream
        topic = stream.topic if stream.mode == "pub" or stream.listeners.present else None
        if fields["type"] not in ("token", "end"):
            self.ledger.standing(request)
        return Emit(request.rid, topic, stream.to, fields)

    def wait(self, request: Request, waiter: Waiter, now: float) -> list[Instruction]:
        """One more that waits for the end; the oldest beyond `limits.waiters` get `busy`."""
        out: list[Instruction] = []
        request.waiters.append(waiter)
        while len(request.waiters) > self.config.limits.waiters:
            oldest = request.waiters.pop(0)
            error = WireError(Code.BUSY, "others wait for this request too; ask `result`", 1000)
            out.append(Refuse(oldest.to, request.id, error))
        self.watch(request, now)
        return out

    # ---- ending ----------------------------------------------------------------------------------------------

    def finish(
        self, request: Request, now: float, *, reason: str, stop: str | None = None, replaced: bool = False
    ) -> list[Instruction]:
        """Ends with a result, a turn of a session when it is stored. `replaced`: another has its place in the queue."""
        fields = result_fields(request, reason=reason, stop=stop, model=self.model, now=now)
        self.pace.counters[f"finished_{reason}"] += 1
        if reason not in ENTERS:
            return self._forget(request) + self.close(request, now, fields, replaced=replaced)
        waited = request.state is State.QUEUED
        out = self._forget(request) if waited else []
        asked = self.sessions.store(request, fields, self.config.limits, now)
        if not asked:
            return out + self.close(request, now, fields, stored=request.talk is None)
        if waited:
            self.queue.remove(request)
        self.watch(request, now)
        return [*out, *asked, *self.dispatch()]

    def close(
        self, request: Request, now: float, fields: dict[str, Any], *, stored: bool = True, replaced: bool = False
    ) -> list[Instruction]:
        """The end itself. `stored`: whether the turn entered its transcript, if it should."""
        if not stored:
            self.pace.counters["turns_not_stored"] += 1
            fields["stored"] = False
        body = self._encode.ok(request.id, fields)
        out = self._end(request, now, body, None, outcome=fields["finish_reason"], replaced=replaced)
        return out if stored else [Note("turn_not_stored", {"rid": request.rid, "id": request.id}), *out]

    def fail(
        self, request: Request, now: float, error: WireError, *, told: bool = False, aside: bool = False
    ) -> list[Instruction]:
        """Ends with an error. `told`: the worker has forgotten it already. `aside`: not as this id's result."""
        self.pace.counters[f"failed_{error.code}"] += 1
        body = self._encode.error(request.id, error)
        out: list[Instruction] = [] if told else self._forget(request)
        return out + self._end(request, now, body, error, outcome=str(error.code), aside=aside)

    def _forget(self, request: Request) -> list[Instruction]:
        if request.with_worker:
            self.leaving[request.rid] = request
            return [Tell(Abort(request.rid))]
        return [Tell(Discard(request.name))] if request.carried and request.state is State.QUEUED else []

    def _end(
        self,
        request: Request,
        now: float,
        body: bytes,
        error: WireError | None,
        *,
        outcome: str,
        replaced: bool = False,
        aside: bool = False,
    ) -> list[Instruction]:
        self.revival.somewhere(self.ledger)
        if request.state is State.QUEUED and not replaced:
            self.queue.remove(request)
        request.move(Move.END)
        self.table.remove(request)
        self.timers.forget(request.rid)
        self.sessions.left(request)
        self.pace.served(request, now)
        stream = request.stream
        kept = Kept(
            identity=request.identity,
            id=request.id,
            digest=request.digest,
            topic=stream.topic,
            seq=stream.seq + 1,
            body=body,
            text=None if error is None else stream.text,
            retryable=error is not None and error.retryable,
            cancelled=outcome == "cancelled",
            deadline_ms=request.deadline_ms,
            ended=now,
            aside=request.rid if aside else 0,
        )
        self.results.keep(kept, self.config.limits.results_kept_bytes)
        out: list[Instruction] = [Raw(waiter.to, body) for waiter in request.waiters]
        if stream.mode is not False:
            out.append(self.emit(request, kept.story()[1]))
        note = Note("request_end", _facts(request, outcome, now))
        return [*self.ledger.ended(request, kept, out, now), note, *self.dispatch()]

    # ---- the clock -------------------------------------------------------------------------------------------

    def watch(self, request: Request, now: float) -> None:
        """Looks again when the next thing is due for this request: deadline, waiter, orphan grace, `queued` event."""
        storing = request.talk is not None and request.state is State.STORING
        end = request.talk.until if request.talk is not None and storing else request.deadline
        due = [end, *(w.until for w in request.waiters if w.until is not None)]
        stream = request.stream
        if stream.mode is not False:
            if stream.heard or request.waiters:
                stream.alone_since = None
            elif stream.alone_since is None:
                stream.alone_since = now
            if stream.alone_since is not None and not request.body.detach and not storing:
                due.append(stream.alone_since + self._grace)
            if request.waits and not request.unwritten:
                due.append(stream.queued_due)
        self.timers.schedule(request.rid, min(due))

    def tick(self, now: float) -> list[Instruction]:
        """Everything whose time has come."""
        out: list[Instruction] = []
        self.revival.tick(self.ledger, now)
        for rid in self.timers.due(now):
            request = self.table.get(rid)
            if request is not None:
                out += self._due(request, now)
        self.results.expire(now, self.config.limits.result_ttl_s)
        return out

    def _due(self, request: Request, now: float) -> list[Instruction]:
        stream = request.stream
        talk = request.talk if request.state is State.STORING else None
        if talk is not None and talk.until <= now:
            return self.close(request, now, talk.fields, stored=False)
        if talk is None and request.deadline <= now:
            return self._deadline(request, now)
        out: list[Instruction] = []
        for waiter in [w for w in request.waiters if w.until is not None and w.until <= now]:
            request.waiters.remove(waiter)
            out.append(Reply(waiter.to, request.id, so_far(request)))
        self.watch(request, now)
        if talk is not None:
            return out
        if stream.alone_since is not None and not request.body.detach and stream.alone_since + self._grace <= now:
            self.pace.counters["orphans"] += 1
            return out + self.finish(request, now, reason="cancelled")
        if stream.mode is not False and request.waits and stream.queued_due <= now:
            out.append(self.queued(request, now))
            self.watch(request, now)
        return out

    def _deadline(self, request: Request, now: float) -> list[Instruction]:
        if request.stream.text:
            return self.finish(request, now, reason="deadline")
        where = "in the queue" if request.state is State.QUEUED else "before the first token"
        return self.fail(request, now, WireError(Code.DEADLINE_EXCEEDED, f"the deadline passed {where}"))

    def queued(self, request: Request, now: float) -> Emit:
        """The `queued` event."""
        position = self.queue.position(request) if request.state is State.QUEUED else 0
        return self.emit(request, request.stream.event("queued", now, position=position))

    @property
    def _grace(self) -> float:
        return self.config.limits.orphan_grace_ms / 1000

    def next_wake(self) -> float:
        """When `tick` should be called at the latest, in the clock of `now`; inf: not before an event."""
        expiry = self.results.next_expiry(self.config.limits.result_ttl_s)
        return min(self.timers.next(), expiry, self.revival.next_wake())

    def check(self) -> None:
        """Invariants over all parts, for tests and idle times."""
        self.table.check()
        self.results.check()
        assert all(self.table.get(rid) is None for rid in self.leaving)
        assert len(self.queue) == sum(1 for r in self.table if r.state is State.QUEUED)
        self.sessions.check(list(self.table))
        for request in self.table:
            assert self.results.find(request.identity, request.id) is None


def so_far(request: Request) -> dict[str, Any]:
    """What `result` says of a request that has not ended."""
    return {"state": request.shown, "text": request.stream.text, "seq": request.stream.seq}


def _facts(request: Request, outcome: str, now: float) -> dict[str, Any]:
    return {
        "rid": request.rid,
        "id": request.id,
        "identity": request.identity,
        "outcome": outcome,
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": len(request.ids),
        "ms": round((now - request.received) * 1000),
    }
