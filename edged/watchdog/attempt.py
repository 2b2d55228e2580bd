"""One worker in the supervisor's charge: its process, what it was started with, what it said, how long it may take."""

from __future__ import annotations

from typing import Final

from edged.link import LinkError
from edged.messages import (
    Beat,
    CacheFacts,
    Load,
    LoadFailed,
    Loading,
    Prompted,
    Quit,
    Ready,
    Slots,
    Up,
)
from edged.system.aside import Aside
from edged.watchdog import causes
from edged.watchdog.causes import Witness
from edged.watchdog.plan import Plan
from edged.watchdog.process import WorkerProcess
from edged.watchdog.stall import LOADING, Stall

QUIT_S: Final = 1.5
"""What a worker gets to leave by itself, beside the time for its snapshots: a step takes up to half a second, then its
checkpoints are brought up to date."""

STOP_S: Final = 1.0
"""The same at the stop of the service, where nothing is carried on."""

NEVER: Final = float("inf")


class Attempt:
    """Times are monotonic seconds. `need`: bytes of memory, estimated; `number`: of the look at its file.

    `kernel`: the thread that reads the kernel's counters.
    """

    def __init__(
        self, process: WorkerProcess, plan: Plan, load: Load, kernel: Aside, *, need: int, number: int
    ) -> None:
        self.process = process
        self.plan = plan
        self.need = need
        self.number = number
        self.ready: Ready | None = None
        self.loaded: float | None = None  # fraction of the file that has been read
        self.failed: LoadFailed | None = None
        self.failure: str | None = None  # what it said before it left, or was caught at
        self.leaving = False
        self.kill_at = NEVER
        self._killed: str | None = None  # why we did
        watchdog = plan.config.watchdog
        self._stall_s = watchdog.stall_s
        self._stall = Stall(LOADING * watchdog.stall_s)
        self._oom = Witness(kernel, watchdog.root, process.pid)
        process.send(load)

    def read(self, now: float) -> list[Up]:
        """What it says; nonsense is its end."""
        try:
            messages = self.process.read()
        except LinkError as error:
            self.failure = f"nonsense on the link: {error}"
            self.kill(causes.SIGKILL)
            return []
        self._note(messages)
        if self.process.eof:
            self.kill_at = min(self.kill_at, now + QUIT_S)  # it is on its way out, and its pidfd will say so
        return messages

    def ended(self) -> tuple[list[Up], str]:
        """Its pidfd says so: what it said last, and the cause of its end."""
        messages = self.process.read_to_end()
        self._note(messages)
        cause = self.process.reap()
        if cause == causes.SIGKILL and self._killed is not None:
            return messages, self._killed
        if cause == causes.SIGKILL and self._oom.rose():
            return messages, causes.OOM
        return messages, cause

    def _note(self, messages: list[Up]) -> None:
        for message in messages:
            match message:
                case Loading(fraction=fraction):
                    if fraction != self.loaded:
                        self._stall.progress()
                    self.loaded = fraction
                case Ready():
                    self.ready = message
                    self._stall = Stall(self._stall_s)
                case LoadFailed():
                    self.failed, self.failure = message, message.message
                case Beat(tokens=tokens):
                    self._stall.beat(tokens)
                case Slots() | CacheFacts() | Prompted():
                    pass
                case _:
                    self._stall.progress()

    def leave(self, within_s: float, now: float) -> None:
        """Another one goes on with what it runs."""
        self.process.send(Quit(within_s, carry=True))
        self.leaving = True
        self.kill_at = now + within_s + QUIT_S

    def stop(self, save_s: float) -> None:
        """Asks it to leave for good, and waits; for the stop of the service only."""
        self.process.send(Quit(save_s))
        self.process.wait(STOP_S + save_s)

    def kill(self, why: str) -> None:
        """`why` is the cause that is told."""
        self._killed = self._killed or why
        self.kill_at = NEVER
        self.process.kill()

    @property
    def killed(self) -> bool:
        """By us; its pidfd has not said yet that it is gone."""
        return self._killed is not None

    def tick(self, now: float, *, work: bool) -> None:
        """`work`: it owes something. Kills what stands still or does not leave."""
        if self.ready is None:
            work = True
        if self._stall.look(now, work=work and not self.leaving):
            self.kill(causes.STALLED)
        elif now >= self.kill_at:
            self.kill(causes.SIGKILL)

    def look(self) -> None:
        """Now and then: the kernel's counters."""
        self._oom.look()

    def next_wake(self) -> float:
        return min(self.kill_at, self._stall.next_look())
