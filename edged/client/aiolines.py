"""The same sockets on an asyncio loop."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

import zmq
import zmq.asyncio

from edged.client.lines import PER_TURN, Lines, milliseconds
from edged.client.steps import Input


class AsyncLines(Lines):
    """`wait_async` instead of `wait`; the context must be one of `zmq.asyncio`."""

    async def wait_async(self, timeout_s: float) -> list[Input]:
        poller = zmq.asyncio.Poller()
        self._register(poller)
        await poller.poll(milliseconds(timeout_s))
        out: list[Input] = []
        for line in list(self._open.values()):
            for socket in (line.socket, line.monitor):
                try:
                    for _ in range(PER_TURN):
                        frames = socket.recv_multipart(zmq.DONTWAIT)
                        self._take(out, line, socket, await cast("Awaitable[list[bytes]]", frames))
                except zmq.Again:
                    pass
        return out
