"""What clients ask for (protocol 3, 5, 6, 8). Pure.

Order in `generate`: a known id attaches before anything is refused; then every refusal but `busy`; then what
`supersedes` names is cancelled and its place taken over, or there must be room. A refusal leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edged.broker.instructions import Address, Caller, Emit, Instruction, Raw, Refuse, Reply
from edged.broker.ledger import COMMIT_S
from edged.broker.lives import Lives, so_far
from edged.broker.results import Kept
from edged.broker.streams import TOPIC_PREFIX, Stream
from edged.broker.table import Request, State, Waiter
from edged.config import Defaults
from edged.errors import Code, WireError
from edged.messages import PRIORITIES, Cancel, ChosenTool, Generate, Result, Sampling, Shape


class Verbs:
    """`new_token` gives 128 random bits in hexadecimal, `new_seed` a random number 0…2³²−1."""

    def __init__(self, lives: Lives, new_token: Callable[[], str], new_seed: Callable[[], int]) -> None:
        self._lives = lives
        self._new_token = new_token
        self._new_seed = new_seed

    # ---- generate --------------------------------------------------------------------------------------------

    def generate(self, caller: Caller, body: Generate, digest: bytes, now: float) -> list[Instruction]:
        """Protocol 3. `digest` tells equal bodies apart from others."""
        lives = self._lives
        attached = self._attach(caller, body, digest, now)
        if attached is not None:
            return attached
        refusal = lives.gate.refusal(now, body.priority)
        if refusal is None and PRIORITIES.index(body.priority) < PRIORITIES.index(caller.max_priority):
            refusal = WireError(Code.FORBIDDEN, f"priority `{body.priority}`: yours is at most `{caller.max_priority}`")
        if refusal is None:
            refusal = lives.ledger.refusal()
        if refusal is None:
            refusal = lives.sessions.refusal(caller.identity, body, lives.config.limits)
        old = lives.table.find(caller.identity, body.supersedes) if body.supersedes else None
        if old is not None and old.state is State.STORING:
            old = None
        if refusal is None and old is None:
            wait = lives.pace.retry_after_ms(len(lives.queue), lives.sequences)
            refusal = lives.queue.refusal(caller.identity, lives.config.limits, wait, caller.max_queued)
        if refusal is not None:
            lives.pace.counters[f"refused_{refusal.code}"] += 1
            return [Refuse(caller.to, body.id, refusal)]
        return self._accept(caller, self._new_request(caller, body, digest, now), old, now)

    def _attach(self, caller: Caller, body: Generate, digest: bytes, now: float) -> list[Instruction] | None:
        """The same id again: the running request, the kept result, or a conflict. None: not known."""
        if body.id is None:
            return None
        live = self._lives.table.find(caller.identity, body.id)
        kept = self._lives.results.find(caller.identity, body.id)
        known = live or kept
        if known is None:
            return None
        if known.digest != digest:
            message = "this id was used with another body; it is free again when its result expires"
            return [Refuse(caller.to, body.id, WireError(Code.ID_CONFLICT, message))]
        if live is not None:
            return self._attach_live(live, caller.to, now)
        assert kept is not None
        return None if kept.retryable else self._attach_kept(kept, caller.to, body)

    def _attach_live(self, request: Request, to: Address, now: float) -> list[Instruction]:
        if request.stream.mode is False:
            return self._lives.wait(request, Waiter(to, None), now)
        out: list[Instruction] = [Reply(to, request.id, self._ticket(request))]
        if request.stream.mode == "reply":
            request.stream.to = to
            out.append(Emit(request.rid, None, to, request.stream.snapshot(request.shown)))
            self._lives.watch(request, now)
        return self._lives.ledger.behind(request.stream.topic, out)

    def _attach_kept(self, kept: Kept, to: Address, body: Generate) -> list[Instruction]:
        if body.stream is False:
            return self._lives.ledger.behind(kept.topic, [Raw(to, kept.body)])
        ticket = {"topic": kept.topic, "state": "finished", "deadline_ms": kept.deadline_ms}
        out: list[Instruction] = [Reply(to, kept.id, ticket)]
        if body.stream == "reply":
            out += [Emit(0, None, to, fields) for fields in kept.story()]
        return self._lives.ledger.behind(kept.topic, out)

    def _accept(self, caller: Caller, request: Request, old: Request | None, now: float) -> list[Instruction]:
        lives = self._lives
        lives.results.drop(request.identity, request.id)
        lives.table.add(request)
        lives.pace.counters["accepted"] += 1
        takes_place = old is not None and old.state is State.QUEUED and not old.carried
        if old is None:
            lives.queue.push(request)
        elif takes_place:
            lives.queue.replace(old, request)
        else:
            lives.queue.push_head(request)
        lives.ledger.accepted(request, now)
        out: list[Instruction] = list(lives.sessions.join(request, old))
        if request.stream.mode is False:
            out += lives.wait(request, Waiter(caller.to, None), now)
        else:
            out += lives.ledger.behind(request.stream.topic, [Reply(caller.to, request.id, self._ticket(request))])
        if old is not None:
            out += lives.finish(old, now, reason="cancelled", replaced=takes_place)
        out += lives.dispatch()
        if request.state is State.QUEUED and request.stream.mode is not False and not request.unwritten:
            out.append(lives.queued(request, now))
        lives.watch(request, now)
        return out

    def _new_request(self, caller: Caller, body: Generate, digest: bytes, now: float) -> Request:
        defaults = self._lives.config.defaults
        request_id = body.id or self._new_token()
        mode = "pub" if body.stream is True else body.stream
        return Request(
            rid=self._lives.new_rid(),
            identity=caller.identity,
            id=request_id,
            digest=digest,
            body=body,
            sampling=sampling(body, defaults, self._new_seed() if body.seed is None else body.seed),
            shape=shape(body),
            max_tokens=body.max_tokens or defaults.max_tokens,
            received=now,
            deadline_ms=body.deadline_ms or defaults.deadline_ms,
            stream=Stream(
                id=request_id,
                topic=f"{TOPIC_PREFIX}{self._new_token()}/",
                mode=mode,
                last_event=now,
                to=caller.to if mode == "reply" else None,
            ),
        )

    def _ticket(self, request: Request) -> dict[str, Any]:
        ticket: dict[str, Any] = {
            "topic": request.stream.topic,
            "state": request.shown,
            "deadline_ms": request.deadline_ms,
        }
        if request.waits and request.state is State.QUEUED:
            ticket["position"] = max(0, self._lives.queue.position(request) - self._lives.free())
        elif request.waits:
            ticket["position"] = 0
        return ticket

    # ---- the others ------------------------------------------------------------------------------------------

    def result(self, caller: Caller, body: Result, now: float) -> list[Instruction]:
        """Protocol 5."""
        kept = self._lives.results.find(caller.identity, body.id)
        if kept is not None:
            return self._lives.ledger.behind(kept.topic, [Raw(caller.to, kept.body)])
        request = self._lives.table.find(caller.identity, body.id)
        if request is None:
            return [Refuse(caller.to, body.id, not_found())]
        wait_s = max(body.wait_ms / 1000, COMMIT_S if request.unwritten else 0.0)
        if not wait_s:
            return [Reply(caller.to, body.id, so_far(request))]
        return self._lives.wait(request, Waiter(caller.to, now + wait_s), now)

    def cancel(self, caller: Caller, body: Cancel, now: float) -> list[Instruction]:
        """Protocol 6; on `control` an operator may name another identity."""
        owner = body.identity or caller.identity
        request = self._lives.table.find(owner, body.id)
        if request is not None and request.state is State.STORING:
            return [Reply(caller.to, body.id, {"state": "finished"})]
        if request is not None:
            ended = self._lives.finish(request, now, reason="cancelled")
            done = Reply(caller.to, body.id, {"state": "cancelled"})
            return [*self._lives.ledger.behind(request.stream.topic, [done]), *ended]
        kept = self._lives.results.find(owner, body.id)
        if kept is None:
            return [Refuse(caller.to, body.id, not_found())]
        done = Reply(caller.to, body.id, {"state": "cancelled" if kept.cancelled else "finished"})
        return self._lives.ledger.behind(kept.topic, [done])

    def requests(self, now: float) -> list[dict[str, Any]]:
        """Protocol 8: what waits and runs, for operators; no text."""
        return [
            {
                "id": request.id,
                "identity": request.identity,
                "state": request.shown,
                "priority": request.body.priority,
                "stream": request.stream.mode,
                "age_ms": round((now - request.received) * 1000),
                "deadline_in_ms": round((request.deadline - now) * 1000),
                "prompt_tokens": request.prompt_tokens,
                "prompt_read": min(request.reached, request.prompt_tokens),
                "completion_tokens": len(request.ids),
                "max_tokens": request.max_tokens,
            }
            for request in self._lives.table
        ]


def sampling(body: Generate, defaults: Defaults, seed: int) -> Sampling:
    """What the request says, else what is configured."""

    def pick(given: float | None, default: float) -> float:
        return default if given is None else given

    return Sampling(
        temperature=pick(body.temperature, defaults.temperature),
        top_k=defaults.top_k if body.top_k is None else body.top_k,
        top_p=pick(body.top_p, defaults.top_p),
        min_p=pick(body.min_p, defaults.min_p),
        repeat_penalty=pick(body.repeat_penalty, defaults.repeat_penalty),
        presence_penalty=pick(body.presence_penalty, defaults.presence_penalty),
        frequency_penalty=pick(body.frequency_penalty, defaults.frequency_penalty),
        seed=seed,
        logit_bias=body.logit_bias or [],
    )


def shape(body: Generate) -> Shape:
    """What the answer must look like."""
    choice = body.tool_choice or "auto"
    name = choice.function.name if isinstance(choice, ChosenTool) else None

    def text(value: object) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    return Shape(
        json_schema=text(body.json_schema),
        grammar=body.grammar,
        tools=text(body.tools),
        tool_choice="required" if isinstance(choice, ChosenTool) else choice,
        tool_name=name,
        thinking=body.thinking,
        logprobs=body.logprobs,
    )


def not_found() -> WireError:
    return WireError(Code.NOT_FOUND, "no request of yours has this id (or its result expired)")
