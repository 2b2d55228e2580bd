"""What an earlier daemon accepted and did not end becomes requests of this one (ADR 17). Pure.

What had begun is `carried`, gets one `restart` event and goes before what had not; turns of a session stand in their
line again and are looked for in the transcript, since they may have been committed. The orphan rule begins when
clients have had the time to notice (SILENCE_S), the deadline counts from the receipt. A request whose tokens were lost
with the RAM is begun anew by its seed; its events are numbered from LEAP on, so that no number that was told is told
again.
"""

from __future__ import annotations

from array import array
from typing import Final

from msgspec import Raw

from edged.broker.instructions import Instruction, Note
from edged.broker.lives import Lives
from edged.broker.revival import Revival
from edged.broker.story import Found, Life
from edged.broker.streams import SILENCE_S, Stream
from edged.broker.table import Request
from edged.broker.verbs import shape
from edged.errors import Code, WireError

LEAP: Final = 1 << 20
"""More events than a request can have: 4096 tokens, and one a second of a day's deadline."""


def restore(lives: Lives, found: Found, now: float) -> list[Instruction]:
    limits = lives.config.limits
    for kept in found.kept.values():
        lives.results.keep(kept, limits.results_kept_bytes)
    lives.results.expire(now, limits.result_ttl_s)
    requests = [_request(lives.new_rid(), life) for life in found.lives.values()]
    requests.sort(key=lambda request: not request.carried)
    for request in requests:
        lives.table.add(request)
        lives.results.drop(request.identity, request.id)
        if not request.carried:
            lives.queue.push(request)
    for request in reversed([request for request in requests if request.carried]):
        lives.queue.push_head(request)
    out: list[Instruction] = []
    for request in requests:
        out += lives.sessions.join(request, None, again=True)
        _remember(lives, request, found.lives[request.stream.topic])
    for request in requests:
        if request.carried or found.lives[request.stream.topic].lost:
            request.restarts += 1
            if request.stream.mode is not False:
                out.append(lives.emit(request, request.stream.event("restart", now, reason="daemon")))
        if request.stream.mode is not False:
            request.stream.alone_since = now + SILENCE_S
        if request.ids and not request.carried:
            error = WireError(Code.WORKER_LOST, "the service ended; ask again with the same id", 1000)
            out += lives.fail(request, now, error)
        else:
            lives.watch(request, now)
    out += _revived(lives, now)
    if requests or found.kept:
        lives.pace.counters["recovered"] += len(requests)
        out.append(Note("recovered", {"requests": len(requests), "results": len(lives.results)}))
    return out


def _revived(lives: Lives, now: float) -> list[Instruction]:
    out: list[Instruction] = []
    for request, error in Revival.count(list(lives.table), lives.config.limits.max_restarts):
        out += lives.fail(request, now, error)
    lives.revival.begin(list(lives.table), now)
    return out


def _remember(lives: Lives, request: Request, life: Life) -> None:
    """What its first worker made of it, beside the tokens."""
    if not request.carried or life.prompted is None:
        return
    lives.model = lives.model or life.prompted.model
    if request.talk is not None:
        request.talk.first, request.talk.begins = life.prompted.first, life.prompted.begins
        request.talk.left_out = 0 if life.standing is None else life.standing.left_out


def _request(rid: int, life: Life) -> Request:
    accepted, prompted, standing = life.accepted, life.prompted, life.standing
    logprobs = [Raw(entry) for entry in life.logprobs]
    stream = Stream(
        id=accepted.id,
        topic=accepted.topic,
        mode=accepted.mode,
        seq=life.seq + LEAP if life.lost else life.seq,
        tokens_since=life.tokens_since,
        logprobs_since=list(logprobs[len(logprobs) - life.tokens_since :]) if logprobs else [],
        pieces=list(life.pieces),
        lagged=standing is not None and standing.lagged,
    )
    request = Request(
        rid=rid,
        identity=accepted.identity,
        id=accepted.id,
        digest=accepted.digest,
        body=accepted.body,
        sampling=accepted.sampling,
        shape=shape(accepted.body),
        max_tokens=accepted.max_tokens,
        received=accepted.received,
        deadline_ms=accepted.deadline_ms,
        stream=stream,
        ids=array("I", life.ids),
        logprobs=logprobs,
        first_token=None if life.lost else life.first,
        last_token=None if life.lost else life.last,
        carried=life.began,
    )
    if prompted is not None and request.carried:
        request.prompt_ids, request.public, request.cuts = prompted.prompt, prompted.public, prompted.cuts
        request.fingerprint, request.prompt_tokens = prompted.fingerprint, len(prompted.prompt) // 4
    if standing is not None and life.lost:
        request.restarts, request.blamed = standing.restarts, standing.blamed
    elif standing is not None:
        request.restarts, request.started = standing.restarts, standing.started
        request.blamed, request.blamed_at = standing.blamed, standing.blamed_at
        request.cached_tokens, request.read = standing.cached, standing.read
        request.revived = standing.revived
    return request
