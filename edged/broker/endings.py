"""How a request ends: the result or the error, and what is measured of it (protocol 3). Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from msgspec import Raw

from edged.broker.histogram import FIRST_TOKEN_S, INTERVAL_S, Histogram
from edged.broker.table import Request
from edged.messages import TokenLogprob

_WEIGHT: Final = 0.2
"""Of the newest value in the moving averages: some five requests back."""


def result_fields(request: Request, *, reason: str, stop: str | None, model: str, now: float) -> dict[str, Any]:
    """The result of protocol 3 beside v, ok, id and instance. Times are milliseconds from receipt."""
    completion = len(request.ids)
    started, first, last = request.started, request.first_token, request.last_token
    queue_end = now if started is None else started
    timing = {"queue_ms": _ms(queue_end - request.received), "total_ms": _ms(now - request.received)}
    if started is not None:
        timing["prefill_ms"] = _ms((now if first is None else first) - started)
    if first is not None:
        timing["ttft_ms"] = _ms(first - request.received)
    timing["tokens_per_second"] = 0.0
    if first is not None and last is not None and last > first and completion > 1:
        timing["tokens_per_second"] = round((completion - 1) / (last - first), 2)
    fields: dict[str, Any] = {
        "text": request.stream.text,
        "finish_reason": reason,
        "stop": stop,
        "usage": {
            "prompt_tokens": request.prompt_tokens,
            "cached_tokens": request.cached_tokens,
            "completion_tokens": completion,
        },
        "timing": timing,
        "model": model,
        "seed": request.sampling.seed,
        "restarts": request.restarts,
    }
    if request.tool_calls:
        fields["tool_calls"] = request.tool_calls
    if request.reasoning is not None:
        fields["reasoning"] = request.reasoning
    if request.shape.logprobs:
        fields["logprobs"] = request.logprobs
    if request.talk is not None:
        fields["session"] = request.talk.key[1]
        if request.talk.dropped:
            fields["dropped_turns"] = request.talk.dropped
    if request.stream.lagged:
        fields["lagged"] = True
    return fields


def logprob_entry(entry: TokenLogprob) -> Raw:
    """As clients get it, encoded: a long answer has many, and bytes are the smallest to keep."""
    top = [{"id": t.id, "token": t.token, "logprob": t.logprob} for t in entry.top]
    return Raw(msgspec.json.encode({"id": entry.id, "token": entry.token, "logprob": entry.logprob, "top": top}))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


class Pace:
    """What was measured of ended requests: for estimates (`retry_after_ms`) and for `status`."""

    def __init__(self) -> None:
        self.service_s: float | None = None
        self.tokens_per_second: float | None = None
        self.counters: Counter[str] = Counter()
        self.first_token = Histogram(FIRST_TOKEN_S)  # seconds from receipt
        self.interval = Histogram(INTERVAL_S)  # seconds between tokens

    def sampled(self, request: Request, tokens: int, now: float) -> None:
        """Before they are written down in the request."""
        self.counters["tokens"] += tokens
        if request.last_token is not None:
            self.interval.add((now - request.last_token) / tokens, tokens)
        elif request.first_token is None:
            self.first_token.add(now - request.received)

    def served(self, request: Request, now: float) -> None:
        self.counters["prompt_tokens"] += request.prompt_tokens
        self.counters["cached_tokens"] += request.cached_tokens
        if request.started is None:
            return
        self.service_s = _average(self.service_s, now - request.started)
        first, last, completion = request.first_token, request.last_token, len(request.ids)
        if first is not None and last is not None and last > first and completion > 1:
            self.tokens_per_second = _average(self.tokens_per_second, (completion - 1) / (last - first))

    def retry_after_ms(self, waiting: int, sequences: int) -> int:
        """Until a place should be free: the queue's length in service times over the sequences; 1 s when unknown."""
        service = 1.0 if self.service_s is None else self.service_s
        return max(100, round(1000 * service * (waiting + 1) / max(1, sequences)))


def _average(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)
