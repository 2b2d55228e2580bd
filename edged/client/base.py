"""What both clients are made of: settings in, machines out. No waiting here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from edged.client import where
from edged.client.attempts import Mode, Retry, encode
from edged.client.bodies import Options, Turns, generate_fields
from edged.client.call import Call
from edged.client.choice import Choice, Health, ordered
from edged.client.errors import EdgedError, missing
from edged.client.exchange import Exchange
from edged.client.keys import Key, Keys, ServerKey
from edged.client.replies import Pong, Progress, Result, is_result, typed
from edged.client.steps import Message, Pace

RESULT_WAIT_S: Final = 10.0
"""A `result` that waits longer is asked in pieces of this: a daemon that dies meanwhile is noticed."""


class Base:
    """`endpoints`: one or several `request` endpoints (default: $EDGED_ENDPOINT, the system's daemon, one of this
    user). `streams`: the stream endpoint of each, where it is not the one that protocol 1 derives. `pace`: see `Pace`.

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
        self._health = Health(self.pace.avoid_s)
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
        return Exchange(
            fields,
            mode,
            self._choice(fields["id"], options.get("session") if affinity is None else affinity, deadline_s),
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
        at: Sequence[str] | None = None,
        wait_s: float = 0.0,
        patient: Retry = False,
        seek: bool = False,
    ) -> Call:
        self._check_open()
        deadline = self.pace.answer_s if deadline_s is None else deadline_s
        choice = Choice(at or self.endpoints, self._health, self.pace, str(fields.get("id", op)), deadline)
        return Call(encode(op, fields), choice, deadline_s=deadline, wait_s=wait_s, patient=patient, seek=seek)

    def _long(self, op: str, fields: Mapping[str, Any], deadline_s: float | None) -> Call:
        """For what takes as long as a prompt: it is asked again only when the connection is cut, or it was refused."""
        deadline = self.pace.deadline_s if deadline_s is None else deadline_s
        return self._one(op, fields, deadline, wait_s=deadline, patient=True)

    def _session(self, name: str, action: str, deadline_s: float | None) -> Call:
        """The box of the session is asked first."""
        fields = {"session": name, "action": action}
        return self._one("session", fields, deadline_s, at=ordered(self.endpoints, name), seek=True)

    def _choice(self, salt: str, affinity: str | None, deadline_s: float | None) -> Choice:
        deadline = self.pace.deadline_s if deadline_s is None else deadline_s
        return Choice(ordered(self.endpoints, affinity), self._health, self.pace, salt, deadline)

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
