"""The daemon's loop: the only side effects in the parent.

One thread owns every socket; nothing it calls blocks; what takes long has a thread or a process of its own. Each turn:
wait for a descriptor or the next deadline, read what came (bounded per turn), tell the broker, do what it says.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import zmq

from edged import __version__
from edged.broker.broker import Broker
from edged.broker.instructions import (
    Address,
    Ask,
    Emit,
    Instruction,
    Note,
    Raw,
    Refuse,
    Reply,
    Tell,
)
from edged.clientside import ClientSide
from edged.config import Config
from edged.guardside import GuardSide
from edged.historyside import HistorySide
from edged.journalside import JournalSide
from edged.observe.log import Log
from edged.observeside import ObserveSide
from edged.operatorside import OperatorSide
from edged.serviceside import ServiceSide
from edged.subscriptions import Subscriptions
from edged.system.notify import Notifier
from edged.transcriptside import TranscriptSide
from edged.wakes import Wakes
from edged.watchdog.supervisor import Supervisor
from edged.watchside import WatchSide
from edged.wire import codec
from edged.wire.activation import Activated
from edged.wire.auth import Refusal
from edged.wire.endpoints import Endpoints
from edged.workerside import WorkerSide, place

BROKEN_TURNS: Final = 20
"""One after the other, before the service gives up."""

EXIT_BROKEN: Final = 70
"""EX_SOFTWARE of sysexits(3)."""

LONGEST_POLL_S: Final = 60.0

REFUSED_LINE_S: Final = 5.0
"""Between two lines about peers that were not let in."""


class TooManyBugsError(Exception):
    """Turn after turn fails."""


class Daemon:
    """`run` returns the exit status. `activated`: sockets that systemd passed; `notifier`: what it is told through."""

    def __init__(
        self, config: Config, log: Log, worker_module: str, *, wakes: Wakes, activated: Activated, notifier: Notifier
    ) -> None:
        self.config = config
        self.log = log
        self._started = time.monotonic()
        self._codec = codec.Encoder(secrets.token_hex(4))
        self._broker = Broker(config, self._codec, lambda: secrets.token_hex(16), lambda: secrets.randbits(32))
        self._counters: Counter[str] = Counter()
        self._stop_at: float | None = None
        self._broken_turns = 0
        self._refused_at = float("-inf")
        self._wakes = wakes
        self._endpoints = Endpoints(config, activated)
        self._subscriptions = Subscriptions(self._endpoints, self._broker.topics, self._do, log, self._counters)
        self._supervisor = Supervisor(config, worker_module, wakes.wake, self._broker.live_names)
        self._worker = WorkerSide(
            self._supervisor, self._broker, do=self._do, publish=self._system, log=log, counters=self._counters
        )
        self._watch = self._worker.watch = WatchSide(
            config,
            self._supervisor,
            self._broker,
            do=self._do,
            tell=self._worker.tell,
            publish=self._system,
            wake=wakes.wake,
            log=log,
        )
        self._operators = OperatorSide(
            config,
            self._supervisor,
            self._broker,
            self._endpoints,
            worker=self._worker,
            watch=self._watch,
            apply=self._apply,
            revoke=self._revoke,
            announce=self._announce,
            log=log,
        )
        self._transcripts = TranscriptSide(
            config.state_dir, self._broker, do=self._do, wake=wakes.wake, log=log, counters=self._counters
        )
        self._journal = JournalSide(
            config,
            self._broker,
            do=self._do,
            wake=wakes.wake,
            log=log,
            counters=self._counters,
            instance=self._codec.instance,
        )
        self._guard = GuardSide(
            config,
            self._endpoints,
            rebound=self._subscriptions.cut,
            wake=wakes.wake,
            log=log,
            counters=self._counters,
        )
        self._history = HistorySide(self._broker, self._worker, self._watch)
        self._observe = ObserveSide(
            config,
            self._broker,
            self._endpoints,
            worker=self._worker,
            transcripts=self._transcripts,
            journal=self._journal,
            guard=self._guard,
            operators=self._operators,
            publish=self._system,
            wake=wakes.wake,
            log=log,
            counters=self._counters,
        )
        self._service = ServiceSide(notifier, self._supervisor, self._broker.gate, told=self._observe.told, log=log)
        self._clients = ClientSide(
            config,
            self._broker,
            self._endpoints,
            self._codec,
            operators=self._operators,
            observe=self._observe,
            history=self._history,
            journal=self._journal,
            do=self._do,
            send=self._send,
            announce=self._announce,
            log=log,
            counters=self._counters,
        )

    # ---- the loop --------------------------------------------------------------------------------------------

    def run(self) -> int:
        facts = {"version": __version__, "pid": os.getpid(), "instance": self._codec.instance}
        self.log.info("started", **facts, config=self.config.path, request=",".join(self.config.request_endpoints))
        self._announce("started", version=__version__)
        self._journal.recover(time.monotonic())
        self._expel(time.monotonic())  # keys may have gone meanwhile
        self._supervisor.begin()
        self._guard.start()
        try:
            while not self._finished(time.monotonic()):
                self._guarded_turn()
        except TooManyBugsError:
            return EXIT_BROKEN
        finally:
            self._watch.stop()
            self._observe.stop()
            self._journal.close(time.monotonic())
            self._supervisor.stop()
            self._transcripts.stop()
            self._guard.stop()
            self._endpoints.close()
        self.log.info("stopped", uptime_s=round(time.monotonic() - self._started))
        return 0

    def _guarded_turn(self) -> None:
        """A bug costs its turn, not the service; one in every turn ends it, for systemd to start it afresh."""
        try:
            self._turn()
            self._broken_turns = 0
        except Exception as error:  # noqa: BLE001 - its message may hold a peer's text: only kind and place are told
            self._broken_turns += 1
            self._counters["bugs"] += 1
            self.log.error("bug", kind=type(error).__name__, where=place(error))  # noqa: TRY400 - our Log
            if self._broken_turns > BROKEN_TURNS:
                raise TooManyBugsError from None

    def _turn(self) -> None:
        ready = self._poll()
        now = time.monotonic()
        for number in self._wakes.signals():
            self._signal(number, now)
        if self._endpoints.zap in ready:
            self._refused(self._endpoints.authenticate(now), now)
        if self._endpoints.stream in ready:
            self._subscriptions.read(now)
        if self._endpoints.control in ready:
            self._clients.read("control", now)
        if self._endpoints.request in ready:
            self._clients.read("request", now)
        self._worker.read(ready, now)
        self._tick(time.monotonic())

    def _poll(self) -> set[Any]:
        now = time.monotonic()
        until = min(
            self._broker.next_wake(),
            self._supervisor.next_wake(),
            self._watch.next_wake(),
            self._endpoints.next_wake(),
            self._journal.next_wake(),
            self._observe.next_wake(),
            self._service.next_wake(),
            self._history.next_wake(),
            float("inf") if self._stop_at is None else self._stop_at,
        )
        poller = self._endpoints.poller()
        poller.register(self._wakes.fileno(), zmq.POLLIN)
        for worker in self._supervisor.processes():
            poller.register(worker.pidfd, zmq.POLLIN)
            if not worker.eof:
                poller.register(worker.link.fileno(), zmq.POLLIN | (zmq.POLLOUT if worker.wants_write else 0))
        return {key for key, _ in poller.poll(math.ceil(min(max(0.0, until - now), LONGEST_POLL_S) * 1000))}

    def _tick(self, now: float) -> None:
        self._endpoints.restore_stream(now)
        self._guard.tick(now)
        self._watch.tick(now)
        self._worker.tick(now)
        self._transcripts.tick(now)
        self._journal.tick(now)
        self._do(self._broker.tick(now), now)
        self._observe.tick(now)
        self._history.tick(now)
        self._service.tick(now)

    # ---- stopping --------------------------------------------------------------------------------------------

    def _signal(self, number: int, now: float) -> None:
        if number == signal.SIGHUP:
            self._service.reloading()
            self._operators.hangup(now)
        elif self._stop_at is None:
            self.log.info("stopping", signal=signal.Signals(number).name, accepted=len(self._broker.lives.table))
            self._announce("stopping")
            self._broker.gate.stopping = True
            self._service.stopping(self.config, len(self._broker.lives.table))
            self._stop_at = now + self.config.limits.drain_s
        else:
            self._stop_at = now

    def _finished(self, now: float) -> bool:
        if self._stop_at is None or (len(self._broker.lives.table) and now < self._stop_at):
            return False
        self._do(self._broker.stopped(now), now)
        return True

    def _apply(self, config: Config) -> None:
        """A new configuration is in force."""
        self.config = self._broker.lives.config = config
        self.log.set_level(config.log_level)
        self._endpoints.reconfigure(config)
        self._guard.reconfigure(config)
        self._clients.reconfigure(config)
        self._observe.reconfigure(config)

    # ---- keys ------------------------------------------------------------------------------------------------

    def _revoke(self, now: float) -> None:
        """Keys are gone: their connections end, and what their callers own; nobody else notices."""
        self._endpoints.cut_revoked(now)
        self._expel(now)

    def _expel(self, now: float) -> None:
        self._do(self._broker.expel(self._endpoints.knows, now), now)

    def _refused(self, refusal: Refusal | None, now: float) -> None:
        """One line in a while: a stranger must not fill the log."""
        if refusal is None:
            return
        self._counters["refused_peers"] += 1
        if now >= self._refused_at:
            self._refused_at = now + REFUSED_LINE_S
            self.log.warning("peer_refused", address=refusal.address, why=refusal.why, key=refusal.key)

    # ---- doing what the broker says --------------------------------------------------------------------------

    def _do(self, instructions: Iterable[Instruction], now: float) -> None:
        """What is told was written down before."""
        self._journal.write(now)
        for instruction in instructions:
            match instruction:
                case Reply(to=to, id=request_id, fields=fields):
                    self._send(to, self._codec.ok(request_id, fields))
                case Raw(to=to, body=body):
                    self._send(to, body)
                case Refuse(to=to, id=request_id, error=error):
                    self._send(to, self._codec.error(request_id, error))
                case Emit():
                    self._emit(instruction, now)
                case Tell(message=message):
                    self._worker.tell(message)
                case Ask(question=question):
                    self._transcripts.ask(question)
                case Note(event=event, fields=fields):
                    self.log.info(event, **fields)

    def _send(self, to: Address, body: bytes) -> None:
        if self._endpoints.send(to, body) is not None:
            self._counters["replies_undeliverable"] += 1

    def _emit(self, emit: Emit, now: float) -> None:
        body = self._codec.event(emit.fields)
        if emit.topic is not None and not self._endpoints.publish(emit.topic.encode(), body, drop=False):
            self._broker.topics.lagged(emit.rid)
        if emit.to is not None:
            failed = self._endpoints.send(emit.to, body)
            if failed == zmq.EHOSTUNREACH:
                self._broker.topics.unreachable(emit.rid, now)
            elif failed is not None:
                self._broker.topics.lagged(emit.rid)

    def _announce(self, event: str, **fields: str) -> None:
        """What happened to the service, for everybody."""
        self._system("service", {"type": "service", "event": event, "time": time.time(), **fields})

    def _system(self, topic: str, fields: dict[str, Any]) -> None:
        if topic != "health":
            fields = self._history.note(fields) | {"instance": self._codec.instance}
        self._endpoints.publish(b"sys/" + topic.encode(), self._codec.event(fields), drop=True)
