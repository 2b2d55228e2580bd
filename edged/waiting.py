"""Under socket activation a configuration that is wrong does not end the daemon: it waits for a good one, and says so.

A service that fails while clients wait takes its socket down with it: systemd starts it again at once, five times, and
then gives up on both (`service-start-limit-hit`). So the sockets are served meanwhile:

* `ping` as ever; `status` with `state` `unavailable` and the error among the `warnings`; every other verb is refused
  with `unavailable` and the error, which clients repeat by id.
* SIGHUP, or `config` with `apply` on `control`, reads the file again. When it is good the caller goes on with it: the
  same process, the same sockets, and what waits in them. (Who connects in between waits too: a handshake ends when the
  loop answers it.)
* An endpoint that cannot be had (an address that the network has not brought yet) is tried again every RETRY_S.

The error is one line of file, key, expected and found: whoever may ask may read it.
"""

from __future__ import annotations

import math
import secrets
import signal
import time
from typing import Any, Final

import msgspec
import zmq

from edged import __version__, keyring
from edged import config as configuration
from edged import messages as m
from edged.broker.instructions import SocketName
from edged.config import Config, Listen
from edged.errors import Code, ConfigError, WireError
from edged.observe.log import Log
from edged.system.notify import Notifier
from edged.wakes import Wakes
from edged.wire import codec
from edged.wire.activation import Activated
from edged.wire.endpoints import Endpoints
from edged.wire.features import pong
from edged.wire.incoming import Incoming
from edged.wire.listeners import ListenError

RETRY_S: Final = 5.0
RETRY_MS: Final = 2000
"""For clients: an operator mends in minutes, and a look costs nothing."""


class Waiting:
    """`path` is what `--config` says. Raises ListenError when not even these sockets can be had."""

    def __init__(
        self,
        path: str | None,
        error: ConfigError | ListenError,
        log: Log,
        *,
        wakes: Wakes,
        activated: Activated,
        notifier: Notifier,
    ) -> None:
        self._path = path
        self._why = ""
        self._log = log
        self._wakes = wakes
        self._notifier = notifier
        self._config = stand_in(activated)
        self._endpoints = Endpoints(self._config, activated)
        self._encode = codec.Encoder(secrets.token_hex(4))
        self._begun = time.monotonic()
        self._retry_at = self._begun + RETRY_S if isinstance(error, ListenError) else float("inf")
        self._ping_at = 0.0
        self._good = False
        self._refused(str(error))

    def run(self) -> int | None:
        """None: try again with what the file says now. Else the exit status."""
        self._notifier.tell(READY=1)
        try:
            while not self._good and time.monotonic() < self._retry_at:
                ready = self._poll()
                for number in self._wakes.signals():
                    if number != signal.SIGHUP:
                        self._notifier.tell(STOPPING=1)
                        self._log.info("stopped")
                        return 0
                    self._hangup()
                self._serve(ready, time.monotonic())
        finally:
            self._endpoints.close()
        return None

    def _poll(self) -> set[Any]:
        now = time.monotonic()
        every_s = self._notifier.every_s
        if every_s is not None and now >= self._ping_at:
            self._notifier.tell(WATCHDOG=1)
            self._ping_at = now + every_s
        until = min(self._retry_at, self._endpoints.next_wake(), float("inf") if every_s is None else self._ping_at)
        poller = self._endpoints.poller()
        poller.register(self._wakes.fileno(), zmq.POLLIN)
        return {
            key for key, _ in poller.poll(None if until == float("inf") else math.ceil(max(0.0, until - now) * 1000))
        }

    # ---- the configuration -----------------------------------------------------------------------------------

    def _hangup(self) -> None:
        self._notifier.tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        try:
            self._read()
        except ConfigError as error:
            self._refused(str(error))
            self._notifier.tell(READY=1)

    def _read(self, *, apply: bool = True) -> dict[str, Any]:
        """A good one ends the wait (READY comes when it is in force). Raises ConfigError."""
        config = configuration.load(self._path, again=True)
        keyring.load(config)
        self._good = self._good or apply
        return {"config": config.path, "applied": apply, "reloading": apply}

    def _refused(self, why: str) -> None:
        self._why = why
        self._log.error("configuration_refused", error=why)
        self._notifier.tell(STATUS=f"unavailable until SIGHUP: {why}")

    # ---- who asks --------------------------------------------------------------------------------------------

    def _serve(self, ready: set[Any], now: float) -> None:
        self._endpoints.restore_stream(now)
        if self._endpoints.zap in ready:
            self._endpoints.authenticate(now)
        while self._endpoints.receive_subscription(now) is not None:
            pass  # nothing is published: it is sent again to the sockets that come
        for name in ("control", "request"):
            while (message := self._endpoints.receive(name, now)) is not None:
                self._endpoints.send(message.to, self._answer(name, message))

    def _answer(self, name: SocketName, message: Incoming) -> bytes:
        if message.wrong is not None:
            return self._encode.error(None, WireError(Code.BAD_REQUEST, message.wrong))
        limits, control = self._config.limits, name == "control"
        try:
            request = codec.decode(message.body, limits, control=control, socket_type=message.socket_type)
        except codec.RejectedError as error:
            return self._encode.error(error.id, error)
        match request:
            case m.Ping():
                fields = pong(time.time(), self._config.stream_endpoints, journal=False)
            case m.Status():
                fields = self._status()
            case m.ConfigRequest(action=action):
                try:
                    fields = self._read(apply=action == "apply")
                except ConfigError as error:
                    return self._encode.error(request.id, WireError(Code.BAD_REQUEST, str(error)))
            case _:
                why = f"the configuration is wrong: {self._why}"
                return self._encode.error(request.id, WireError(Code.UNAVAILABLE, why, RETRY_MS))
        return self._encode.ok(request.id, fields)

    def _status(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "state": "unavailable",
            "ready": False,
            "uptime_s": round(time.monotonic() - self._begun, 1),
            "warnings": [f"unavailable: {self._why}; mend it, then `systemctl reload edged`"],
        }


def stand_in(activated: Activated) -> Config:
    """Defaults, listening where systemd does: local sockets only, told apart by the names that they have by default."""
    local = [endpoint for endpoint in activated.endpoints if endpoint.startswith("ipc://")]
    control = next((one for one in local if one.endswith("/control.sock")), "")
    stream = [one for one in local if one.endswith("/stream.sock")]
    request = [one for one in local if one != control and one not in stream]
    config = configuration.parse({}, "defaults")
    return msgspec.structs.replace(config, listen=Listen(request=request, stream=stream, control=control))
