"""Keeps a worker up: look at the file, start, watch, start again within the budget (design 4).

    checking ──ok──► loading ──Ready──► up ──dies──► waiting ──time──► checking
        │ rejected                                      │ budget spent
        └───────────────────► given_up ◄────────────────┘
                                 └──── the oldest death leaves the window, the file changes, SIGHUP ──► checking

The daemon's loop calls; nothing in here blocks. The caller closes the books of the requests (`edged.broker`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from edged.config import Config
from edged.link import LinkError
from edged.messages import CacheSettings, Load, LoadFailed, Loading, Quit, Ready, Up
from edged.system.affinity import Affinity
from edged.system.ramdir import ram_dir
from edged.watchdog.budget import HEALTHY_S, Budget
from edged.watchdog.preflight import Checked, Hashed, Preflight, Rejected, signature
from edged.watchdog.process import WorkerProcess

FILE_LOOK_S: Final = 5.0
"""How often a rejected model file is looked at for a change: somebody may be copying it in."""

STOP_S: Final = 1.0
"""What a worker gets to leave by itself: a step takes up to half a second."""


class Step(StrEnum):
    CHECKING = "checking"
    LOADING = "loading"
    UP = "up"
    WAITING = "waiting"
    GIVEN_UP = "given_up"


class Lost(Struct, frozen=True):
    """A worker ended. `up`: it had been ready."""

    cause: str
    up: bool


class GaveUp(Struct, frozen=True):
    """No worker for now: `why` in words, `until` when another try is made (monotonic seconds)."""

    why: str
    until: float


Happening = Up | Lost | GaveUp


class Supervisor:
    def __init__(self, config: Config, module: str, wake: Callable[[], None]) -> None:
        self.config = config
        self.step = Step.WAITING
        self.worker: WorkerProcess | None = None
        self.ready: Ready | None = None
        self.running: Config | None = None  # what the worker at hand was started with
        self.sha256: str | None = None
        self.last_exit: dict[str, str | float] | None = None
        self.starts = 0
        self.deaths = 0
        self.budget = Budget(config.watchdog.restart)
        self.affinity = Affinity()
        self._module = module
        self._preflight = Preflight(config.state_dir, wake)
        self._failure: str | None = None  # what the worker at hand said before it left
        self._next = float("inf")
        self._mark: tuple[int, int, int] | None = None  # of the file that was looked at
        self._rejected = False
        self._retry_at: float = 0.0
        self._asked = 0

    # ---- starting --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Looks at the model file; the worker starts when it is found good."""
        self.step = Step.CHECKING
        self._next = float("inf")
        self._rejected = False
        self._mark = signature(self.config.model_path)
        self._asked = self._preflight.check(self.config.model_path, self.config.model.sha256)

    def reconfigure(self, config: Config) -> None:
        """SIGHUP: the budget is forgotten; the running worker stays, the next one gets the new settings."""
        self.config = config
        self.budget = Budget(config.watchdog.restart)
        if self.step in (Step.CHECKING, Step.WAITING, Step.GIVEN_UP):
            self.begin()

    def findings(self, now: float) -> list[Happening]:
        """What the preflight thread found."""
        out: list[Happening] = []
        for finding in self._preflight.findings():
            if finding.number != self._asked:
                continue
            match finding:
                case Checked() if self.step is Step.CHECKING:
                    out += self._start(now)
                case Hashed(sha256=sha256):
                    self.sha256 = sha256
                case Rejected(message=message) if self.step is Step.CHECKING:
                    self._rejected = True
                    out.append(self._give_up(message, now + self.config.watchdog.restart.window_s, now))
        return out

    def _start(self, now: float) -> list[Happening]:
        """A process that cannot be made (no memory, no descriptor) counts as a death."""
        try:
            self._spawn()
        except OSError as error:
            self._failure = f"no worker could be started: {error.strerror}"
            return self._died(f"no process: {error.strerror}", now, up=False)
        return []

    def _spawn(self) -> None:
        profile = self.config.profile
        self.starts += 1
        self.step = Step.LOADING
        self._failure = None
        with self.affinity.whole():
            self.worker = WorkerProcess(self._module, self.starts)
        self.running = self.config
        self.worker.send(
            Load(
                model_path=self.config.model_path,
                context=profile.context,
                sequences=profile.sequences,
                threads=profile.threads,
                prefill_threads=profile.prefill_threads,
                reserve_cores=self.config.cpu.reserve_cores,
                batch=profile.batch,
                prefill_chunk=profile.prefill_chunk,
                kv_type=profile.kv_type,
                log_level=self.config.log_level,
                cache=self._cache_settings(),
            )
        )

    def _cache_settings(self) -> CacheSettings:
        cache = self.config.cache
        return CacheSettings(
            reuse=cache.reuse,
            sharing=self.config.security.prefix_sharing,
            ram_dir=ram_dir(self.config.runtime_dir),
            ram_bytes=cache.ram_bytes,
            disk_dir=os.path.join(self.config.state_dir, "kv"),
            disk_bytes=cache.disk_bytes,
            disk=cache.disk,
            spill_bytes=cache.spill_bytes_per_hour,
        )

    # ---- the worker at hand ----------------------------------------------------------------------------------

    def readable(self, now: float) -> list[Happening]:
        """Its link has something."""
        if self.worker is None:
            return []
        try:
            messages = self.worker.read()
        except LinkError as error:
            self._failure = f"nonsense on the link: {error}"
            self.worker.kill()
            return []
        said = self._said(messages, now)
        if self.worker.eof:
            self._next = now + STOP_S  # it is on its way out, and its pidfd will say so; if not, `tick` kills it
        return said

    def _said(self, messages: list[Up], now: float) -> list[Happening]:
        for message in messages:
            match message:
                case Ready():
                    self.ready = message
                    self.step = Step.UP
                    self.affinity.keep_off(pin.core for pin in message.threads)
                    self._next = now + HEALTHY_S
                case LoadFailed():
                    self._failure = message.message
        return [m for m in messages if not isinstance(m, Loading) or self.step is Step.LOADING]

    def exited(self, now: float) -> list[Happening]:
        """Its pidfd says that it ended: what it said last, then its death."""
        worker = self.worker
        if worker is None:
            return []
        out = self._said(worker.read_to_end(), now)
        up = self.step is Step.UP
        cause = worker.reap()
        self.worker = self.ready = None
        return out + self._died(cause, now, up=up)

    def _died(self, cause: str, now: float, *, up: bool) -> list[Happening]:
        self.deaths += 1
        self.last_exit = {"cause": cause, "time": time.time()}
        out: list[Happening] = [Lost(cause, up)]
        again, at = self.budget.death(now)
        if again:
            self.step = Step.WAITING
            self._next = at
            return out
        why = self._failure or f"the worker ended {self.budget.recent(now)} times in a row (last: {cause})"
        return [*out, self._give_up(why, at, now)]

    def _give_up(self, why: str, until: float, now: float) -> GaveUp:
        self.step = Step.GIVEN_UP
        self._retry_at = until
        self._next = min(until, now + FILE_LOOK_S) if self._rejected else until
        return GaveUp(why, until)

    # ---- time ------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if now < self._next:
            return
        match self.step:
            case Step.LOADING | Step.UP if self.worker is not None and self.worker.eof:
                self.worker.kill()
                self._next = float("inf")
            case Step.UP:
                self.budget.healthy()
                self._next = float("inf")
            case Step.WAITING:
                self.begin()
            case Step.GIVEN_UP if now >= self._retry_at or self._file_changed():
                self.begin()
            case Step.GIVEN_UP:
                self._next = min(self._retry_at, now + FILE_LOOK_S)
            case _:
                self._next = float("inf")

    def _file_changed(self) -> bool:
        return self._rejected and signature(self.config.model_path) != self._mark

    def next_wake(self) -> float:
        return self._next

    def stop(self) -> None:
        """Asks the worker to leave, with time for its snapshots, and makes it."""
        if self.worker is None:
            return
        save_s = self.config.cache.save_s if self.step is Step.UP else 0.0
        self.worker.send(Quit(save_s))
        if not self.worker.wait(STOP_S + save_s):
            self.worker.kill()
        self.worker.reap()
        self.worker = None
