"""Talking to a daemon: one synchronous connection over DEALER.

    with Connection("ipc:///run/edged/request.sock") as edged:
        print(edged.call("status", 5)["state"])
        for event in edged.stream(60, prompt="Once upon a time"):
            print(event.get("text", ""), end="")

Nothing here waits without a deadline. A request that gets no answer is sent again on a fresh socket with the same
id, which the daemon runs only once (protocol 3). A stream that falls silent is asked after, and taken up again where
it broke (protocol 4). Errors are typed: `ReplyError` is the daemon's own word, `NoAnswer` its absence.

This does not subscribe to topics and does not repeat what was refused as `busy`.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import zmq

FIRST_TRY_S = 5.0
"""How long the first try waits for an answer; each further try waits twice as long."""

SILENCE_S = 10.0
"""Protocol 4: after this long without an event the client asks `result`."""

GRACE_S = 2.0
"""A request ends no later than its deadline plus one second (protocol 10); one more for the way."""

NEVER = -2
"""Lower than every `seq`: nothing has been seen yet (a snapshot may say −1)."""

Reply = dict[str, Any]


class ReplyError(Exception):
    """The daemon answered with an error (protocol 10)."""

    def __init__(self, code: str, message: str, *, retryable: bool = False, retry_after_ms: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms

    @classmethod
    def of(cls, error: object) -> ReplyError:
        """From the `error` of a reply or of an `end` event."""
        if not isinstance(error, dict):
            return cls("internal", f"an error reply without an error: {error!r}")
        after = error.get("retry_after_ms")
        return cls(
            str(error.get("code", "internal")),
            str(error.get("message", "")),
            retryable=bool(error.get("retryable")),
            retry_after_ms=after if isinstance(after, int) else None,
        )


class NoAnswer(Exception):  # noqa: N818 - the name says it all
    """Nothing came back in time."""

    def __init__(self, endpoint: str, waited_s: float) -> None:
        super().__init__(f"no answer from {endpoint} within {waited_s:.1f} s")
        self.endpoint = endpoint
        self.waited_s = waited_s


class BadEndpoint(Exception):  # noqa: N818 - the name says it all
    """Not an address that one can connect to."""


def new_id() -> str:
    """An id that makes a request safe to repeat."""
    return uuid.uuid4().hex


class _Line:
    """One DEALER socket, used for one try: what comes for anything else is ignored."""

    def __init__(self, context: zmq.Context[Any], endpoint: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self._socket.close(0)
            raise BadEndpoint(f"{endpoint}: {error}") from None
        self._mark = uuid.uuid4().bytes[:8]

    def send(self, body: bytes) -> None:
        self._socket.send_multipart([self._mark, b"", body], zmq.DONTWAIT)

    def receive(self, timeout_s: float) -> Reply | None:
        """The next reply or event, or None when the time is up."""
        until = time.monotonic() + timeout_s
        while self._socket.poll(max(0, round((until - time.monotonic()) * 1000))):
            frames = self._socket.recv_multipart(zmq.DONTWAIT)
            if len(frames) != 3 or frames[:2] != [self._mark, b""]:
                continue
            with contextlib.suppress(ValueError):  # what is no JSON object is no reply
                reply = json.loads(frames[2])
                if isinstance(reply, dict):
                    return reply
        return None

    def close(self) -> None:
        self._socket.close(0)


class Connection:
    """A daemon's `request` (or `control`) endpoint. Not for several threads."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._context: zmq.Context[Any] = zmq.Context()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._context.destroy(0)

    def call(self, op: str, deadline_s: float, **fields: object) -> Reply:
        """One request, one reply. Raises ReplyError, or NoAnswer after `deadline_s` (a bit more for `generate`)."""
        if op == "generate":
            fields = _complete(fields, deadline_s)
            deadline_s += GRACE_S
        line, reply = self._ask(_encode(op, fields), deadline_s)
        line.close()
        return _checked(reply)

    def stream(self, deadline_s: float, *, answer_s: float | None = None, **fields: object) -> Iterator[Reply]:
        """`generate` with `"stream":"reply"`: yields the ticket, then the events up to `end`.

        A reader that keeps the text it has (see `Text`) is whole at the end whatever happened between. A ticket may
        come again: with another `topic` it is a new run (the daemon was restarted) and the text begins anew.
        An `end` may carry `error` instead of a result. Raises ReplyError when the request is refused and NoAnswer when
        the daemon says nothing at all for `answer_s` (default: `deadline_s`). Closing the iterator leaves the request
        to the daemon's orphan rule; `call("cancel", …)` ends it at once.
        """
        fields = {**_complete(fields, deadline_s), "stream": "reply"}
        until = time.monotonic() + deadline_s + GRACE_S
        patience = answer_s if answer_s is not None else deadline_s + GRACE_S
        seen, topic = NEVER, None
        while True:
            line, ticket = self._ask(_encode("generate", fields), min(patience, until - time.monotonic()))
            try:
                if _checked(ticket).get("topic") != topic:
                    seen, topic = NEVER, ticket.get("topic")
                yield ticket
                for event in self._events(line, str(fields["id"]), until, patience, seen):
                    seen = event["seq"]
                    yield event
                    if event.get("type") == "end":
                        return
            finally:
                line.close()

    def _events(self, line: _Line, ident: str, until: float, patience: float, seen: int) -> Iterator[Reply]:
        """The events after `seen`, until the end or until the stream has to be asked for anew."""
        while True:
            left = until - time.monotonic()
            event = line.receive(min(SILENCE_S, max(0.0, left)))
            if event is not None and "type" not in event:
                _checked(event)  # the request was refused after all, or another connection took the stream over
                continue
            if event is not None:
                seq = event.get("seq")
                if not isinstance(seq, int) or seq <= seen:
                    continue
                if event["type"] != "snapshot" and seq > max(seen, -1) + 1:
                    return  # events are missing: ask again, the snapshot has them
                seen = seq
                yield event
            elif left <= SILENCE_S:
                raise NoAnswer(self.endpoint, SILENCE_S)
            else:
                reply = self._after(ident, min(patience, until - time.monotonic()))
                if reply is None:
                    return  # not known: the daemon was restarted
                if "finish_reason" in reply or not reply["ok"]:
                    yield {**reply, "type": "end", "seq": seen + 1}
                elif isinstance(reply.get("seq"), int) and reply["seq"] > seen:
                    return

    def _after(self, ident: str, deadline_s: float) -> Reply | None:
        """What became of a silent request; None when the daemon does not know it."""
        line, reply = self._ask(_encode("result", {"id": ident}), deadline_s)
        line.close()
        if reply.get("ok"):
            return reply
        return None if ReplyError.of(reply.get("error")).code == "not_found" else reply

    def _ask(self, body: bytes, deadline_s: float) -> tuple[_Line, Reply]:
        """Sends until a reply comes, each try on a socket of its own. The line is the caller's to close."""
        until = time.monotonic() + deadline_s
        patience = FIRST_TRY_S
        while (left := until - time.monotonic()) > 0:
            line = _Line(self._context, self.endpoint)
            try:
                line.send(body)
                reply = line.receive(min(patience, left))
            except BaseException:
                line.close()
                raise
            if reply is not None:
                return line, reply
            line.close()
            patience *= 2
        raise NoAnswer(self.endpoint, max(0.0, deadline_s))


class Text:
    """Puts the text of a stream together: `take(event)` returns what is new."""

    def __init__(self) -> None:
        self.whole = ""
        self._topic: object = None

    def take(self, event: Reply) -> str:
        kind = event.get("type")
        if kind is None:  # a ticket
            if event.get("topic") != self._topic:
                self.whole, self._topic = "", event.get("topic")
            return ""
        if kind == "token":
            new = str(event["text"])
        elif kind in ("snapshot", "end") and isinstance(event.get("text"), str):
            new = str(event["text"])[len(self.whole) :]
        else:
            return ""
        self.whole += new
        return new


def _complete(fields: dict[str, object], deadline_s: float) -> dict[str, object]:
    """An id, so that a repetition is safe, and the deadline that the client itself keeps."""
    return {"id": new_id(), "deadline_ms": max(1, round(deadline_s * 1000)), **fields}


def _encode(op: str, fields: dict[str, object]) -> bytes:
    return json.dumps({"op": op, **fields}, ensure_ascii=False, allow_nan=False).encode()


def _checked(reply: Reply) -> Reply:
    if reply.get("ok") is not True:
        raise ReplyError.of(reply.get("error"))
    return reply
