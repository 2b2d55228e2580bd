"""What clients and operators ask: read, decoded, answered or handed to the broker.

The daemon's loop calls; so many messages of a socket in one turn, that the others get theirs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from edged import messages as m
from edged.broker.broker import Broker
from edged.broker.instructions import Address, Caller, Instruction, Refuse, Reply, SocketName
from edged.config import Config
from edged.errors import Code, WireError
from edged.historyside import HistorySide
from edged.journalside import JournalSide
from edged.observe.log import Log
from edged.observeside import ObserveSide
from edged.operatorside import OperatorSide
from edged.wire import codec
from edged.wire.endpoints import Endpoints
from edged.wire.features import pong
from edged.wire.incoming import Incoming
from edged.workerside import place

MESSAGES_PER_TURN: Final = 64
"""Read from one socket before the others get their turn."""


class ClientSide:
    """`do` carries out instructions, `send` answers at once, `announce` tells everybody what happened."""

    def __init__(
        self,
        config: Config,
        broker: Broker,
        endpoints: Endpoints,
        encode: codec.Encoder,
        *,
        operators: OperatorSide,
        observe: ObserveSide,
        history: HistorySide,
        journal: JournalSide,
        do: Callable[[list[Instruction], float], None],
        send: Callable[[Address, bytes], None],
        announce: Callable[[str], None],
        log: Log,
        counters: Counter[str],
    ) -> None:
        self._config = config
        self._broker = broker
        self._endpoints = endpoints
        self._encode = encode
        self._operators = operators
        self._observe = observe
        self._history = history
        self._journal = journal
        self._do = do
        self._send = send
        self._announce = announce
        self._log = log
        self._counters = counters

    def reconfigure(self, config: Config) -> None:
        self._config = config

    def read(self, name: SocketName, now: float) -> None:
        for _ in range(MESSAGES_PER_TURN):
            message = self._endpoints.receive(name, now)
            if message is None:
                return
            self._take(name, message, now)

    def _take(self, name: SocketName, message: Incoming, now: float) -> None:
        if message.wrong is not None:
            self._counters["malformed"] += 1
            self._send(message.to, self._encode.error(None, WireError(Code.BAD_REQUEST, message.wrong)))
            return
        caller = Caller(message.identity, message.to, message.max_priority, message.max_queued)
        try:
            request = codec.decode(
                message.body, self._config.limits, control=name == "control", socket_type=message.socket_type
            )
        except codec.RejectedError as error:
            self._counters["rejected"] += 1
            self._send(caller.to, self._encode.error(error.id, error))
            return
        try:
            self._do(self._asked(caller, request, now), now)
        except Exception as error:  # noqa: BLE001 - nothing a peer sends may end the loop
            self._bug(caller, request.id, error)

    def _asked(self, caller: Caller, request: m.ClientRequest, now: float) -> list[Instruction]:
        match request:
            case m.Ping():
                fields = pong(time.time(), self._config.stream_endpoints, journal=self._journal.on)
            case m.Status():
                fields = self._observe.told(now)
            case m.HistoryRequest():
                fields = self._history.told(request, now)
            case m.LogLevel():
                self._log.set_level(request.level)
                fields = {"level": request.level}
            case m.Reload() | m.ProfileRequest() | m.ConfigRequest():
                try:
                    fields = self._operators.asked(request, now)
                except WireError as error:
                    return [Refuse(caller.to, request.id, error)]
            case m.Generate():
                return self._broker.asked(caller, request, codec.digest(request), now)
            case m.Drain() | m.Resume():
                before = self._broker.gate.drained
                out = self._broker.asked(caller, request, b"", now)
                if self._broker.gate.drained is not before:
                    self._announce("resumed" if before else "draining")
                return out
            case _:
                return self._broker.asked(caller, request, b"", now)
        return [Reply(caller.to, request.id, fields)]

    def _bug(self, caller: Caller, request_id: str | None, error: Exception) -> None:
        self._log.error("bug", kind=type(error).__name__, where=place(error), id=request_id, identity=caller.identity)
        self._counters["bugs"] += 1
        told = WireError(Code.INTERNAL, "a bug in the service; it was logged")
        self._send(caller.to, self._encode.error(request_id, told))
