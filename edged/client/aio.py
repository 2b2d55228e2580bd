"""The asyncio client: the same verbs, awaited.

    async with AsyncClient("ipc:///run/edged/request.sock") as edged:
        async with edged.stream("Tell me about rain.", deadline_s=60) as stream:
            async for piece in stream:
                print(piece, end="", flush=True)

A client belongs to one loop, and so do its streams; any number of tasks of that loop may use it at once, since every
call has sockets of its own (two, and four descriptors with the connection: the usual 1024 do for some 250 calls at
once). When a task is cancelled in the middle of a call, its request is cancelled too, before CancelledError goes on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import zmq.asyncio

from edged.client.aiolines import AsyncLines
from edged.client.attempts import STARTING, Retry
from edged.client.base import RESULT_WAIT_S, Base, StreamBase, demand, found, outcome_of, result_of
from edged.client.bodies import Options, Turns, embed_fields, tokenize_fields, turns
from edged.client.call import Call
from edged.client.errors import EdgedError, NotFound
from edged.client.exchange import Exchange
from edged.client.reading import Event, Piece
from edged.client.replies import Embeddings, Pong, Progress, Result, Status, Tokens, Transcript, Warmth, typed
from edged.client.steps import Message


class AsyncClient(Base):
    """See `Client` in `edged.client.sync` for the arguments of each verb."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """No further calls. Those under way end as they would: their sockets are theirs."""
        self._closed = True

    # ---- generate --------------------------------------------------------------------------------------------

    async def generate(
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
        """The whole answer; see `Client.generate`."""
        exchange = self._exchange(
            None, messages, options, id=id, deadline_s=deadline_s, answer_s=answer_s, affinity=affinity, retry=retry
        )
        async with AsyncStream(self, exchange, keep=bool(options.get("detach"))) as stream:
            return await stream.finish()

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
    ) -> AsyncStream:
        """The request is sent by `async with`, or by the first piece that is asked for; see `Client.stream`."""
        exchange = self._exchange(
            mode, messages, options, id=id, deadline_s=deadline_s, answer_s=answer_s, affinity=affinity, retry=retry
        )
        return AsyncStream(self, exchange, keep=bool(options.get("detach")))

    # ---- the other verbs -------------------------------------------------------------------------------------

    async def cancel(self, id: str, *, deadline_s: float | None = None) -> str:  # noqa: A002 - the wire's name
        """`cancelled` or `finished`. NotFound when no endpoint knows the id."""
        reply = await self._call(self._one("cancel", {"id": id}, deadline_s, patient=STARTING, seek=True))
        return str(reply.get("state", ""))

    async def result(
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
            reply = found(
                await self._call(self._one("result", fields, deadline, wait_s=wait, patient=STARTING, seek=True))
            )
            if isinstance(reply, Result) or time.monotonic() >= until:
                return reply

    async def status(self, *, deadline_s: float | None = None, at: str | None = None) -> Status:
        return typed(await self.call("status", deadline_s=deadline_s, at=at), Status)

    async def ping(self, *, deadline_s: float | None = None, at: str | None = None) -> Pong:
        return typed(await self.call("ping", deadline_s=deadline_s, at=at), Pong)

    async def tokenize(
        self, text: str | None = None, *, messages: Turns | None = None, deadline_s: float | None = None
    ) -> Tokens:
        """Waits for the model to be loaded, if the deadline allows."""
        call = self._one("tokenize", tokenize_fields(text, messages), deadline_s, patient=True, spread=True)
        return typed(await self._call(call), Tokens)

    async def embed(self, texts: Sequence[str], *, deadline_s: float | None = None) -> Embeddings:
        """See `Client.embed`."""
        return typed(await self._call(self._long("embed", embed_fields(texts), deadline_s)), Embeddings)

    async def warm(self, messages: Turns, *, deadline_s: float | None = None, affinity: str | None = None) -> Warmth:
        """See `Client.warm`."""
        return typed(await self._call(self._long("warm", {"messages": turns(messages)}, deadline_s, affinity)), Warmth)

    async def session(self, name: str, *, deadline_s: float | None = None) -> Transcript:
        """What was said in a session, the newest turns. NotFound when there is none of that name."""
        return typed(await self._call(self._session(name, "get", deadline_s)), Transcript)

    async def delete_session(self, name: str, *, deadline_s: float | None = None) -> None:
        """NotFound when there is none of that name; Busy while a turn waits or runs."""
        await self._call(self._session(name, "delete", deadline_s))

    async def require(self, *features: str, deadline_s: float | None = None) -> None:
        """Asks every endpoint for its `features`. Raises MissingFeature for the first that is not among them."""
        for endpoint in self.endpoints:
            demand(typed(await self._call(self._one("ping", {}, deadline_s, at=[endpoint])), Pong), features)

    async def call(
        self, op: str, *, deadline_s: float | None = None, at: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Any verb with one reply, as it comes."""
        return await self._call(self._any(op, fields, deadline_s, at))

    async def _call(self, call: Call) -> Message:
        lines = AsyncLines(zmq.asyncio.Context.instance(), self._keys)
        try:
            lines.do(call.begin(time.monotonic()))
            while call.outcome is None:
                await turn(call, lines)
        finally:
            lines.close()
        return outcome_of(call)

    async def _cancel_at(self, exchange: Exchange) -> None:
        with contextlib.suppress(EdgedError):
            try:
                await self._call(self._one("cancel", {"id": exchange.id}, self.pace.leave_s, at=[exchange.endpoint]))
            except NotFound:
                await self._call(self._one("cancel", {"id": exchange.id}, self.pace.leave_s, seek=True))


class AsyncStream(StreamBase):
    """As `Stream` in `edged.client.sync`; the result is awaited by `finish()`, `result` is there afterwards."""

    def __init__(self, client: AsyncClient, exchange: Exchange, *, keep: bool = False) -> None:
        self._client = client
        self._exchange = exchange
        self._keep = keep
        self._lines: AsyncLines | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def result(self) -> Result:
        """Once it has ended. Raises what the request ended in."""
        if self._exchange.outcome is None:
            raise RuntimeError("the stream has not ended: await finish()")
        return result_of(self._exchange)

    async def finish(self) -> Result:
        """Reads on to the end, if that has not come."""
        async for _ in self.events():
            pass
        return self.result

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await self._next()
            if event is None:
                result_of(self._exchange)
                raise StopAsyncIteration
            if isinstance(event, Piece):
                return event.text

    async def events(self) -> AsyncIterator[Event]:
        """Everything: tickets, places in the queue, prefill, pieces, `Anew`, and `Ended` as the last."""
        while (event := await self._next()) is not None:
            yield event
        result_of(self._exchange)

    async def cancel(self) -> None:
        """Ends it; the pieces on their way still come, then `result` says `cancelled`."""
        self._exchange.cancelled = True
        if self._exchange.outcome is None and self._lines is not None:
            await self._client._cancel_at(self._exchange)  # noqa: SLF001 - the client's own stream

    async def close(self) -> None:
        """Cancels what has not ended, and waits a moment for the daemon to confirm that."""
        exchange, lines = self._exchange, self._lines
        self._closed = True
        if lines is None:
            return
        try:
            if not self._keep and exchange.outcome is None:
                lines.do(exchange.leave(time.monotonic()))
                while exchange.outcome is None and len(lines):
                    await turn(exchange, lines)
        finally:
            lines.close()

    def _begin(self) -> AsyncLines:
        if self._lines is None:
            self._lines = AsyncLines(zmq.asyncio.Context.instance(), self._client._keys)  # noqa: SLF001 - as above
            self._lines.do(self._exchange.begin(time.monotonic()))
        return self._lines

    async def _next(self) -> Event | None:
        """None: there is nothing more."""
        exchange = self._exchange
        try:
            while not exchange.events and exchange.outcome is None:
                if self._closed:
                    raise RuntimeError("the stream is closed")
                await turn(exchange, self._begin())
        except BaseException:  # CancelledError, most of all
            await self.close()
            raise
        return exchange.events.popleft() if exchange.events else None


async def turn(machine: Call | Exchange, lines: AsyncLines) -> None:
    """Waits for the next input and hands it over, or tells the time. What was heard late counts as heard in time."""
    inputs = await lines.wait_async(machine.wake - time.monotonic())
    now = time.monotonic()
    for what in inputs:
        lines.do(machine.feed(what, now))
    if not inputs:
        lines.do(machine.tick(now))
