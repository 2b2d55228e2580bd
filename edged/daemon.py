"""The daemon's loop: the only side effects in the parent.

One thread owns every socket; nothing it calls blocks; what takes long has a thread or a process of its own. Each turn:
wait for a descriptor or the next deadline, read what came (bounded per turn), tell the broker, do what it says.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import zmq

from edged import __version__
from edged import messages as m
from edged.broker.broker import Broker
from edged.broker.instructions import (
    Address,
    Ask,
    Caller,
    Emit,
    Instruction,
    Note,
    Raw,
    Refuse,
    Reply,
    SocketName,
    Tell,
)
from edged.config import Config
from edged.errors import Code, WireError
from edged.journalside import JournalSide
from edged.observe import status
from edged.observe.log import Log
from edged.operatorside import OperatorSide
from edged.subscriptions import Subscriptions
from edged.system.trim import Trimmer
from edged.transcriptside import TranscriptSide
from edged.watchdog.supervisor import Supervisor
from edged.watchside import WatchSide
from edged.wire import codec
from edged.wire.endpoints import Endpoints
from edged.workerside import WorkerSide, place

MESSAGES_PER_TURN: Final = 64
"""Read from one socket before the others get their turn."""

BROKEN_TURNS: Final = 20
"""One after the other, before the service gives up."""

EXIT_BROKEN: Final = 70
"""EX_SOFTWARE of sysexits(3)."""

TRIMS: Final = 4

LONGEST_POLL_S: Final = 60.0

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class TooManyBugsError(Exception):
    """Turn after turn fails."""


class Daemon:
    """`run` returns the exit status."""

    def __init__(self, config: Config, log: Log, worker_module: str) -> None:
        self.config = config
        self.log = log
        self._started = time.monotonic()
        self._codec = codec.Encoder(secrets.token_hex(4))
        self._broker = Broker(config, self._codec, lambda: secrets.token_hex(16), lambda: secrets.randbits(32))
        self._counters: Counter[str] = Counter()
        self._next_health = self._started
        self._stop_at: float | None = None
        self._trimmer = Trimmer()
        self._trim_mark, self._trims_due = (0, 0), 0
        self._broken_turns = 0
        self._signals: list[int] = []
        self._waker, self._wakes = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for end in (self._waker, self._wakes):
            end.setblocking(False)
        self._catch_signals()
        self._endpoints = Endpoints(config)
        self._subscriptions = Subscriptions(self._endpoints, self._broker.topics, self._do, log, self._counters)
        self._supervisor = Supervisor(config, worker_module, self._wake, self._broker.live_names)
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
            wake=self._wake,
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
            log=log,
        )
        self._transcripts = TranscriptSide(
            config.state_dir, self._broker, do=self._do, wake=self._wake, log=log, counters=self._counters
        )
        self._journal = JournalSide(
            config,
            self._broker,
            do=self._do,
            wake=self._wake,
            log=log,
            counters=self._counters,
            instance=self._codec.instance,
        )

    # ---- the loop --------------------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        """Before anything listens: whoever sees a socket may send one."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda n, _: self._signals.append(n))

    def run(self) -> int:
        facts = {"version": __version__, "pid": os.getpid(), "instance": self._codec.instance}
        self.log.info("started", **facts, config=self.config.path, request=",".join(self.config.request_endpoints))
        self._journal.recover(time.monotonic())
        self._supervisor.begin()
        try:
            while not self._finished(time.monotonic()):
                self._guarded_turn()
        except TooManyBugsError:
            return EXIT_BROKEN
        finally:
            self._watch.stop()
            self._journal.close(time.monotonic())
            self._supervisor.stop()
            self._transcripts.stop()
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
        for number in self._take_signals(ready):
            self._signal(number, now)
        if self._endpoints.zap in ready:
            self._endpoints.authenticate(now)
        if self._endpoints.stream in ready:
            self._subscriptions.read(now)
        if self._endpoints.control in ready:
            self._read("control", now)
        if self._endpoints.request in ready:
            self._read("request", now)
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
            self._next_health,
            float("inf") if self._stop_at is None else self._stop_at,
        )
        poller = self._endpoints.poller()
        poller.register(self._wakes.fileno(), zmq.POLLIN)
        for worker in self._supervisor.processes():
            poller.register(worker.pidfd, zmq.POLLIN)
            if not worker.eof:
                poller.register(worker.link.fileno(), zmq.POLLIN | (zmq.POLLOUT if worker.wants_write else 0))
        return {key for key, _ in poller.poll(math.ceil(min(max(0.0, until - now), LONGEST_POLL_S) * 1000))}

    def _take_signals(self, ready: set[Any]) -> list[int]:
        if self._wakes.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                while self._wakes.recv(4096):
                    pass
        taken, self._signals[:] = list(self._signals), []
        return taken

    def _wake(self) -> None:
        """For other threads: there is something in a queue."""
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def _tick(self, now: float) -> None:
        self._endpoints.restore_stream(now)
        self._watch.tick(now)
        self._worker.tick(now)
        self._transcripts.tick(now)
        self._journal.tick(now)
        self._do(self._broker.tick(now), now)
        if now >= self._next_health:
            self._next_health = now + self.config.health_interval_s
            self._system("health", status.health_fields(self._broker.lives, self._facts(now), time.time()))
            self._rest()

    def _facts(self, now: float) -> status.Facts:
        warnings = [*self._endpoints.warnings, *self._transcripts.warnings(), *self._journal.warnings()]
        facts = self._worker.facts(now, warnings)
        return msgspec.structs.replace(facts, sessions=self._transcripts.fields(), journal=self._journal.fields())

    def _rest(self) -> None:
        """Nothing accepted, nothing kept, but there was: memory goes back to the kernel, the books are checked.

        Some times over, since libzmq frees what it held a little later; idle or not after a flood of subscriptions, or
        when a large journal was begun afresh.
        """
        lives, counters = self._broker.lives, self._broker.lives.pace.counters
        served = self._trim_mark[0]
        if not len(lives.table) and not len(lives.results):
            served = counters["accepted"] + counters["recovered"]
        large = self._counters["tainted"] + self._journal.large
        if (served, large) != self._trim_mark:
            self._trim_mark, self._trims_due = (served, large), TRIMS
        if self._trims_due:
            self._trims_due -= 1
            self._trimmer.trim()
            lives.check()

    # ---- stopping --------------------------------------------------------------------------------------------

    def _signal(self, number: int, now: float) -> None:
        if number == signal.SIGHUP:
            self._operators.hangup(now)
        elif self._stop_at is None:
            self.log.info("stopping", signal=signal.Signals(number).name, accepted=len(self._broker.lives.table))
            self._broker.gate.stopping = True
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
        self._next_health = time.monotonic()

    # ---- clients ---------------------------------------------------------------------------------------------

    def _read(self, name: SocketName, now: float) -> None:
        for _ in range(MESSAGES_PER_TURN):
            message = self._endpoints.receive(name)
            if message is None:
                return
            if message.wrong is not None:
                self._counters["malformed"] += 1
                self._send(message.to, self._codec.error(None, WireError(Code.BAD_REQUEST, message.wrong)))
                continue
            caller = Caller(message.identity, message.to, message.max_priority)
            try:
                request = codec.decode(
                    message.body, self.config.limits, control=name == "control", socket_type=message.socket_type
                )
            except codec.RejectedError as error:
                self._counters["rejected"] += 1
                self._send(caller.to, self._codec.error(error.id, error))
                continue
            try:
                self._do(self._asked(caller, request, now), now)
            except Exception as error:  # noqa: BLE001 - nothing a peer sends may end the loop
                self._bug(caller, request.id, error)

    def _asked(self, caller: Caller, request: m.ClientRequest, now: float) -> list[Instruction]:
        match request:
            case m.Ping():
                fields: dict[str, Any] = {"version": __version__, "features": codec.features(journal=self._journal.on)}
                fields |= {"time": time.time(), "stream": self.config.stream_endpoints}
            case m.Status():
                fields = status.status_fields(self._broker.lives, self.config, self._facts(now))
            case m.LogLevel():
                self.log.set_level(request.level)
                fields = {"level": request.level}
            case m.Reload() | m.ProfileRequest() | m.ConfigRequest():
                try:
                    fields = self._operators.asked(request, now)
                except WireError as error:
                    return [Refuse(caller.to, request.id, error)]
            case m.Generate():
                return self._broker.asked(caller, request, codec.digest(request), now)
            case _:
                return self._broker.asked(caller, request, b"", now)
        return [Reply(caller.to, request.id, fields)]

    def _bug(self, caller: Caller, request_id: str | None, error: Exception) -> None:
        self.log.error("bug", kind=type(error).__name__, where=place(error), id=request_id, identity=caller.identity)
        self._counters["bugs"] += 1
        told = WireError(Code.INTERNAL, "a bug in the service; it was logged")
        self._send(caller.to, self._codec.error(request_id, told))

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

    def _system(self, topic: str, fields: dict[str, Any]) -> None:
        self._endpoints.publish(b"sys/" + topic.encode(), self._codec.event(fields), drop=True)
