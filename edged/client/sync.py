"""The synchronous client.

    from edged.client import Client

    edged = Client("ipc:///run/edged/request.sock")
    print(edged.generate("Why is the sky blue?").text)
    with edged.stream("Tell me about rain.", deadline_s=60) as stream:
        for piece in stream:
            print(piece, end="", flush=True)

Nothing waits without a deadline. **Threads**: every call has sockets of its own, so a `Client` may be shared by
threads; a `Stream` belongs to one thread at a time, only its `cancel()` may be called from any. **Fork**: a child makes
its own context at its first call, so a `Client` made before a fork works after it; a `Stream` belongs to the process
that made it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import zmq

from edged.client.attempts import STARTING, Retry
from edged.client.base import RESULT_WAIT_S, Base, StreamBase, demand, found, outcome_of, result_of
from edged.client.bodies import Options, Turns, embed_fields, tokenize_fields, turns
from edged.client.call import Call
from edged.client.errors import EdgedError, NotFound
from edged.client.exchange import Exchange
from edged.client.lines import Lines
from edged.client.news import News
from edged.client.reading import Event, Piece
from edged.client.replies import Embeddings, Pong, Progress, Result, Status, Tokens, Transcript, Warmth, typed
from edged.client.steps import Message


class Client(Base):
    """A daemon, or several of which any may answer. See `Base` for the arguments and the module for threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """No further calls. Those under way end as they would: their sockets are theirs."""
        self._closed = True

    # ---- generate --------------------------------------------------------------------------------------------

    def generate(
        self,
        messages: Turns | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the wire's name
        deadline_s: float | None = None,
        answer_s: float | None = None,
        affinity: str | None = None,
        retry: Retry = True,
        **options: Unpack[Options],
    ) -> Result:
        """The whole answer. Raises ReplyError when it is refused or fails, NoAnswer when nothing comes.

        `id`: give your own to get the same result again, even from another process; it never runs twice.
        `deadline_s`: from now, queueing and all retries included; default: the daemon's.
        `answer_s`: give up when no daemon says anything for so long; default: only at the deadline.
        `affinity`: of several boxes the same one gets what has the same affinity, as long as it can (default: `id`, if
        that is given, so that its result is found again). With `session` it is that one box or none.
        `retry`: repeat what was refused for the moment (`busy`, `loading`, …), as long as the deadline allows; or only
        these codes: `STARTING` is what a box says that is being restarted. False: every refusal is raised at once.
        """
        exchange = self._exchange(
            None, messages, options, id=id, deadline_s=deadline_s, answer_s=answer_s, affinity=affinity, retry=retry
        )
        with Stream(self, exchange, keep=bool(options.get("detach"))) as stream:
            return stream.result

    def stream(
        self,
        messages: Turns | None = None,
        *,
        mode: Literal["reply", "pub"] = "reply",
        id: str | None = None,  # noqa: A002 - the wire's name
        deadline_s: float | None = None,
        answer_s: float | None = None,
        affinity: str | None = None,
        retry: Retry = True,
        **options: Unpack[Options],
    ) -> Stream:
        """Sends the request at once; see `Stream`, and `generate` for the arguments.

        `mode`: "reply" is private to this connection; "pub" goes by a topic that others of this user may hear too.
        """
        exchange = self._exchange(
            mode, messages, options, id=id, deadline_s=deadline_s, answer_s=answer_s, affinity=affinity, retry=retry
        )
        return Stream(self, exchange, keep=bool(options.get("detach")))

    # ---- the other verbs -------------------------------------------------------------------------------------

    def cancel(self, id: str, *, deadline_s: float | None = None) -> str:  # noqa: A002 - the wire's name
        """`cancelled` or `finished`. NotFound when no endpoint knows the id."""
        return str(
            self._call(self._one("cancel", {"id": id}, deadline_s, patient=STARTING, seek=True)).get("state", "")
        )

    def result(
        self,
        id: str,  # noqa: A002 - the wire's name
        wait_s: float = 0.0,
        *,
        deadline_s: float | None = None,
    ) -> Result | Progress:
        """What became of a request; `Progress` if it has not ended within `wait_s`. Its error is raised."""
        until = time.monotonic() + wait_s
        while True:
            wait = min(RESULT_WAIT_S, max(0.0, until - time.monotonic()))
            fields = {"id": id, "wait_ms": round(wait * 1000)}
            deadline = wait + (self.pace.answer_s if deadline_s is None else deadline_s)
            reply = found(self._call(self._one("result", fields, deadline, wait_s=wait, patient=STARTING, seek=True)))
            if isinstance(reply, Result) or time.monotonic() >= until:
                return reply

    def status(self, *, deadline_s: float | None = None, at: str | None = None) -> Status:
        return typed(self.call("status", deadline_s=deadline_s, at=at), Status)

    def ping(self, *, deadline_s: float | None = None, at: str | None = None) -> Pong:
        return typed(self.call("ping", deadline_s=deadline_s, at=at), Pong)

    def tokenize(
        self, text: str | None = None, *, messages: Turns | None = None, deadline_s: float | None = None
    ) -> Tokens:
        """Waits for the model to be loaded, if the deadline allows."""
        call = self._one("tokenize", tokenize_fields(text, messages), deadline_s, patient=True, spread=True)
        return typed(self._call(call), Tokens)

    def embed(self, texts: Sequence[str], *, deadline_s: float | None = None) -> Embeddings:
        """Unit vectors of 1–64 texts, in order. ContextOverflow for a text longer than the context, TooLarge for
        vectors of over 1 MiB: send fewer. `deadline_s`: from now, waiting included; default `Pace.deadline_s`.
        """
        return typed(self._call(self._long("embed", embed_fields(texts), deadline_s)), Embeddings)

    def warm(self, messages: Turns, *, deadline_s: float | None = None, affinity: str | None = None) -> Warmth:
        """Has the beginning of a conversation read ahead, at low priority: a later prompt that begins so starts sooner.
        A system message alone is the usual case: `warm([{"role": "system", "content": …}])`. One box reads it: with
        `affinity` the one where prompts of the same `affinity` or `session` go.
        """
        return typed(self._call(self._long("warm", {"messages": turns(messages)}, deadline_s, affinity)), Warmth)

    def session(self, name: str, *, deadline_s: float | None = None) -> Transcript:
        """What was said in a session, the newest turns. NotFound when there is none of that name."""
        return typed(self._call(self._session(name, "get", deadline_s)), Transcript)

    def delete_session(self, name: str, *, deadline_s: float | None = None) -> None:
        """NotFound when there is none of that name; Busy while a turn waits or runs."""
        self._call(self._session(name, "delete", deadline_s))

    def require(self, *features: str, deadline_s: float | None = None) -> None:
        """Asks every endpoint for its `features`. Raises MissingFeature for the first that is not among them."""
        for endpoint in self.endpoints:
            demand(typed(self._call(self._one("ping", {}, deadline_s, at=[endpoint])), Pong), features)

    def call(self, op: str, *, deadline_s: float | None = None, at: str | None = None, **fields: Any) -> dict[str, Any]:
        """Any verb with one reply, as it comes: those of `control`, those of newer daemons. `at`: this one of several
        endpoints; the operators' verbs (protocol 8) want to be told which."""
        return self._call(self._any(op, fields, deadline_s, at))

    def news(self, *, at: str | None = None) -> News:
        """What the (first) daemon tells everybody: level, model, service. `call("history", events=…)` has the past."""
        self._check_open()
        endpoint = self.endpoints[0] if at is None else self._named(at)[0]
        return News(Lines(zmq.Context.instance(), self._keys), self._stream_of(endpoint))

    def _call(self, call: Call) -> Message:
        lines = Lines(zmq.Context.instance(), self._keys)
        try:
            lines.do(call.begin(time.monotonic()))
            while call.outcome is None:
                turn(call, lines)
        finally:
            lines.close()
        return outcome_of(call)

    def _cancel_at(self, exchange: Exchange) -> None:
        with contextlib.suppress(EdgedError):
            try:
                self._call(self._one("cancel", {"id": exchange.id}, self.pace.leave_s, at=[exchange.endpoint]))
            except NotFound:
                self._call(self._one("cancel", {"id": exchange.id}, self.pace.leave_s, seek=True))


class Stream(StreamBase):
    """Iterate over it for pieces of text, or over `events()` for all there is.

    `text` is what has come so far; `run` counts from 1 and goes up when the text begins anew (the daemon was
    restarted): what was shown before then does not count. Leaving the `with` block early, or Ctrl-C while it
    waits, cancels the request (not one with `detach`). Without a `with` block, call `close()`.
    """

    def __init__(self, client: Client, exchange: Exchange, *, keep: bool = False) -> None:
        self._client = client
        self._exchange = exchange
        self._keep = keep
        self._closed = False
        self._lines = Lines(zmq.Context.instance(), client._keys)  # noqa: SLF001 - the client's own stream
        try:
            self._lines.do(exchange.begin(time.monotonic()))
        except BaseException:
            self._lines.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def result(self) -> Result:
        """Reads on to the end, if that has not come. Raises what the request ended in."""
        for _ in self.events():
            pass
        return result_of(self._exchange)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            event = self._next()
            if event is None:
                result_of(self._exchange)
                raise StopIteration
            if isinstance(event, Piece):
                return event.text

    def events(self) -> Iterator[Event]:
        """Everything: tickets, places in the queue, prefill, pieces, `Anew`, and `Ended` as the last."""
        while (event := self._next()) is not None:
            yield event
        result_of(self._exchange)

    def cancel(self) -> None:
        """Ends it; the pieces on their way still come, then `result` says `cancelled`. From any thread."""
        self._exchange.cancelled = True
        if self._exchange.outcome is None:
            self._client._cancel_at(self._exchange)  # noqa: SLF001 - the client's own stream

    def close(self) -> None:
        """Cancels what has not ended, and waits a moment for the daemon to confirm that."""
        exchange, lines = self._exchange, self._lines
        self._closed = True
        try:
            if not self._keep and exchange.outcome is None:
                lines.do(exchange.leave(time.monotonic()))
                while exchange.outcome is None and len(lines):
                    turn(exchange, lines)
        finally:
            lines.close()

    def _next(self) -> Event | None:
        """None: there is nothing more."""
        exchange = self._exchange
        try:
            while not exchange.events and exchange.outcome is None:
                if self._closed:
                    raise RuntimeError("the stream is closed")
                turn(exchange, self._lines)
        except BaseException:  # Ctrl-C, most of all
            self.close()
            raise
        return exchange.events.popleft() if exchange.events else None


def turn(machine: Call | Exchange, lines: Lines) -> None:
    """Waits for the next input and hands it over, or tells the time. What was heard late counts as heard in time."""
    inputs = lines.wait(machine.wake - time.monotonic())
    now = time.monotonic()
    for what in inputs:
        lines.do(machine.feed(what, now))
    if not inputs:
        lines.do(machine.tick(now))
