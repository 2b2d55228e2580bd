"""What both clients are made of: settings in, machines out. No waiting here."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from edged.client import where
from edged.client.attempts import Mode, Retry, encode
from edged.client.bodies import Options, Turns, generate_fields
from edged.client.boxes import Box, Boxes
from edged.client.call import Call
from edged.client.choice import Choice, ordered
from edged.client.errors import EdgedError, missing
from edged.client.exchange import Exchange
from edged.client.keys import Key, Keys, ServerKey
from edged.client.replies import Pong, Progress, Result, is_result, typed
from edged.client.steps import Message, Pace

RESULT_WAIT_S: Final = 10.0
"""A `result` that waits longer is asked in pieces of this: a daemon that dies meanwhile is noticed."""

OF_ONE_BOX: Final = frozenset({"requests", "loglevel", "drain", "resume", "reload", "profile", "config", "sessions"})
"""Protocol 8: what they do, they do to one box."""


class Base:
    """`endpoints`: one or several `request` endpoints, a list or with commas between (default: $EDGED_ENDPOINT, the
    system's daemon, one of this user). Of several any may answer; the rules are at the heads of `edged.client.boxes`,
    `choice` and `exchange`. `streams`: the stream endpoint of each, where it is not the one that protocol 1 derives.
    `pace`: see `Pace`.

    For `tcp://` to a box with keys: `key`, the secret one of this device, and `server_key`, the public one of the box:
    paths of key files, or the keys in Z85. Of several server keys each is tried (a box that changes its own has two for
    a while); with several boxes a mapping from endpoint to its key or keys. Default: $EDGED_KEY, $EDGED_SERVER_KEY.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] | None = None,
        *,
        streams: Mapping[str, str] | None = None,
        pace: Pace | None = None,
        key: Key | None = None,
        server_key: ServerKey | Mapping[str, ServerKey] | None = None,
    ) -> None:
        self.endpoints = where.listed(endpoints)
        self.pace = pace or Pace()
        self._stream_of = where.stream_of(streams)
        self._keys = Keys(self.endpoints, self._stream_of, key, server_key)
        self._boxes = Boxes(self.pace, int.from_bytes(os.urandom(2)))
        self._closed = False

    def _exchange(
        self,
        mode: Mode,
        messages: Turns | None,
        options: Options,
        *,
        id: str | None,  # noqa: A002 - the wire's name
        deadline_s: float | None,
        answer_s: float | None,
        affinity: str | None,
        retry: Retry,
    ) -> Exchange:
        self._check_open()
        fields = generate_fields(messages, id, options)
        if mode == "pub":
            for endpoint in self.endpoints:
                self._stream_of(endpoint)  # a BadEndpoint is told now
        if deadline_s is not None and deadline_s <= 0:
            raise ValueError(f"deadline_s must be positive, not {deadline_s}")
        session = options.get("session")
        return Exchange(
            fields,
            mode,
            self._choice(fields["id"], affinity or session or id, deadline_s, stays=session is not None),
            self.pace,
            deadline_s=deadline_s,
            answer_s=answer_s,
            retry=retry,
            stream_endpoint=self._stream_of,
        )

    def _one(
        self,
        op: str,
        fields: Mapping[str, Any],
        deadline_s: float | None,
        *,
        at: str | Sequence[str] | None = None,
        wait_s: float = 0.0,
        patient: Retry = False,
        seek: bool = False,
        spread: bool = False,
    ) -> Call:
        self._check_open()
        deadline = self.pace.answer_s if deadline_s is None else deadline_s
        boxes = self._named(at) if isinstance(at, str) else at or self.endpoints
        order = self._boxes.in_turn(boxes) if spread else boxes
        choice = Choice(order, self._boxes, self.pace, str(fields.get("id", op)), deadline, spread=spread)
        return Call(encode(op, fields), choice, deadline_s=deadline, wait_s=wait_s, patient=patient, seek=seek)

    def _any(self, op: str, fields: Mapping[str, Any], deadline_s: float | None, at: str | None) -> Call:
        """A verb by its name. ValueError for one of `OF_ONE_BOX` when it is not said which."""
        if at is None and len(self.endpoints) > 1 and (op in OF_ONE_BOX or "identity" in fields):
            raise ValueError(f"`{op}` is for one box: say which, at={self.endpoints[0]!r} for example")
        return self._one(op, fields, deadline_s, at=at)

    def _long(self, op: str, fields: Mapping[str, Any], deadline_s: float | None, affinity: str | None = None) -> Call:
        """For what takes as long as a prompt: it is asked again only when the connection is cut, or it was refused."""
        deadline = self.pace.deadline_s if deadline_s is None else deadline_s
        at = None if affinity is None else ordered(self.endpoints, affinity)
        return self._one(op, fields, deadline, at=at, wait_s=deadline, patient=True, spread=at is None)

    def _session(self, name: str, action: str, deadline_s: float | None) -> Call:
        """The box of the session is asked first."""
        fields = {"session": name, "action": action}
        return self._one("session", fields, deadline_s, at=ordered(self.endpoints, name), seek=True)

    def _choice(self, salt: str, affinity: str | None, deadline_s: float | None, *, stays: bool) -> Choice:
        """`stays`: what the request needs is kept on one box, and an answer from another would be a wrong one."""
        deadline = self.pace.deadline_s if deadline_s is None else deadline_s
        spread = affinity is None
        order = self._boxes.in_turn(self.endpoints) if spread else ordered(self.endpoints, affinity)
        return Choice(order[:1] if stays else order, self._boxes, self.pace, salt, deadline, spread=spread)

    def boxes(self) -> list[Box]:
        """What this client knows of each: how many of its requests are there, and what went wrong last. Asks nobody."""
        return self._boxes.view(self.endpoints, time.monotonic())

    def _named(self, endpoint: str) -> list[str]:
        if endpoint not in self.endpoints:
            raise ValueError(f"{endpoint} is not one of {', '.join(self.endpoints)}")
        return [endpoint]

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.endpoints)})"


class StreamBase:
    """What a stream of either kind knows of its exchange."""

    _exchange: Exchange

    @property
    def id(self) -> str:
        return self._exchange.id

    @property
    def text(self) -> str:
        """What has come so far, of the present run."""
        return self._exchange.reading.text

    @property
    def run(self) -> int:
        return self._exchange.reading.run


def outcome_of(call: Call) -> Message:
    outcome = call.outcome
    assert outcome is not None
    if isinstance(outcome, EdgedError):
        raise outcome
    return outcome


def result_of(exchange: Exchange) -> Result:
    outcome = exchange.outcome
    assert outcome is not None
    if isinstance(outcome, EdgedError):
        raise outcome
    return outcome


def found(reply: Message) -> Result | Progress:
    """What `result` says; the error of a request that ended in one is raised by the call itself."""
    return typed(reply, Result) if is_result(reply) else typed(reply, Progress)


def demand(pong: Pong, features: Sequence[str]) -> None:
    for feature in features:
        if feature not in pong.features:
            raise missing(feature, pong.version)
