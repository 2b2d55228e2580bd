"""What a worker's end does to the requests, and the next one's beginning (design 4, ADR 16). Pure.

A worker ends in many ways (it crashed, hung, was replaced by a smaller profile or by another model); to the requests
there is one road: given and running ones return to the head of their queue in the order in which they were given, and
running ones are carried on. The cause makes a difference to blame only (`edged.broker.blame`).

    running ──► queued, carried ──► given ──► running …     its text stands; one `restart` event; deadlines run on
       ├─ blamed too often ─────────► `worker_lost`, not to be retried, kept: a retry gets it and kills no worker
       └─ its prompt was never told by the worker: afresh, or, when tokens were sampled already, `worker_lost`

Token ids mean something to one model only. When the next worker has another one (`Ready.fingerprint`), a carried
request with text ends by `length` in the name of the model that wrote it; one without starts afresh.
"""

from __future__ import annotations

from collections.abc import Callable

from edged.broker import blame
from edged.broker.gate import Phase
from edged.broker.instructions import Instruction, Tell
from edged.broker.lives import Lives
from edged.broker.table import Move, Request, State
from edged.errors import Code, WireError
from edged.messages import Discard


class Carrying:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    # ---- the end of a worker ---------------------------------------------------------------------------------

    def worker_lost(self, cause: str, now: float) -> list[Instruction]:
        lives = self._lives
        if lives.gate.phase is Phase.READY:
            lives.gate.phase = Phase.REPLACING
        lives.no_worker()
        taken = [r for r in lives.table if r.with_worker]
        out: list[Instruction] = []
        for request in sorted(taken, key=lambda r: r.given, reverse=True):
            if cause in blame.CAUSES and not lives.sessions.fetches(request):
                blame.blame(request)
            out += self._take_back(request, cause, now)
        for request in sorted(taken, key=lambda r: r.given):
            error = self._verdict(request, cause)
            if error is not None:
                out += lives.fail(request, now, error)
        return out

    def _take_back(self, request: Request, cause: str, now: float) -> list[Instruction]:
        lives, stream = self._lives, request.stream
        ran = request.state is State.RUNNING or request.carried
        request.move(Move.TAKE_BACK)
        request.restarts += 1
        request.carried = ran and bool(request.prompt_ids)
        if not request.carried:
            request.started = None
        lives.sessions.taken_back(request)
        lives.queue.push_head(request)
        lives.ledger.standing(request)
        out: list[Instruction] = []
        if ran:
            lives.pace.counters["carried"] += request.carried
            if stream.mode is not False:
                out.append(lives.emit(request, stream.event("restart", now, reason=cause)))
        lives.watch(request, now)
        return out

    def _verdict(self, request: Request, cause: str) -> WireError | None:
        """Why it is not carried on."""
        most = self._lives.config.limits.max_restarts
        if cause in blame.CAUSES and request.blamed > most:
            message = f"the worker ended {request.blamed} times with this request (last: {cause}); do not repeat it"
            return WireError(Code.WORKER_LOST, message, final=True)
        if request.ids and not request.carried:
            return WireError(Code.WORKER_LOST, f"the worker ended ({cause}); ask again with the same id", 1000)
        return None

    def unloaded(self) -> None:
        """There is no worker, on purpose: what was accepted waits for its deadline."""
        self._lives.gate.phase = Phase.UNLOADED

    def trying_again(self) -> None:
        """A worker is started after a time without: requests queue, if there ever was a model."""
        gate = self._lives.gate
        if gate.phase in (Phase.UNAVAILABLE, Phase.UNLOADED):
            gate.phase = Phase.REPLACING if self._lives.model else Phase.LOADING
            gate.loaded = None

    # ---- the next one ----------------------------------------------------------------------------------------

    def worker_ready(self, model: str, sequences: int, fingerprint: str, now: float) -> list[Instruction]:
        lives = self._lives
        out: list[Instruction] = []
        for request in lives.table:
            if request.carried and request.state is State.QUEUED and request.fingerprint != fingerprint:
                out += self._other_model(request, now)
        lives.gate.phase, lives.gate.why = Phase.READY, ""
        lives.model, lives.sequences, lives.fingerprint = model, sequences, fingerprint
        return out + lives.dispatch()

    def _other_model(self, request: Request, now: float) -> list[Instruction]:
        if request.stream.text:
            return self._lives.finish(request, now, reason="length")
        afresh(request)
        self._lives.ledger.prompted(request, "")
        self._lives.ledger.standing(request)
        self._lives.watch(request, now)
        return [Tell(Discard(request.name))]

    def end_all(self, error: WireError, now: float) -> list[Instruction]:
        """Everything accepted ends now: the service is stopping, or the worker cannot be kept up.

        What is being stored has its answer, and ends by itself.
        """
        return self._end_those(lambda _: True, error, now)

    def expel(self, knows: Callable[[str], bool], now: float) -> list[Instruction]:
        """Callers whose keys were revoked: their requests end, their results go. Sessions stay (ADR 20)."""
        lives = self._lives
        error = WireError(Code.FORBIDDEN, "this caller's key was revoked")
        out = self._end_those(lambda request: not knows(request.identity), error, now)
        for kept in lives.results:
            if not knows(kept.identity):
                lives.results.drop(*kept.key)
        return out

    def _end_those(self, which: Callable[[Request], bool], error: WireError, now: float) -> list[Instruction]:
        """What waits comes first: it is not to be given to the worker."""
        out: list[Instruction] = []
        for request in sorted(self._lives.table, key=lambda r: r.state is not State.QUEUED):
            if request.state is not State.STORING and which(request):
                out += self._lives.fail(request, now, error)
        return out


def afresh(request: Request) -> None:
    """Nothing of what an earlier worker made is left; blame is."""
    request.carried = False
    request.prompt_ids, request.public, request.cuts, request.fingerprint = b"", 0, [], ""
    request.prompt_tokens = request.cached_tokens = request.read = request.blamed_at = 0
    del request.ids[:]
    request.logprobs.clear()
    request.stream.tokens_since = 0
    request.stream.logprobs_since.clear()
    request.started = request.first_token = request.last_token = None
