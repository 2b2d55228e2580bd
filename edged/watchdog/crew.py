"""The workers at hand: the one that serves (or will), one that loads beside it, those that are being got rid of."""

from __future__ import annotations

from collections.abc import Callable

from edged.system.affinity import Affinity
from edged.system.aside import Aside
from edged.system.ramdir import ram_dir
from edged.watchdog import causes
from edged.watchdog.attempt import NEVER, Attempt
from edged.watchdog.plan import Plan
from edged.watchdog.process import WorkerProcess


class Crew:
    """`live` names the checkpoints that are wanted."""

    def __init__(self, module: str, live: Callable[[], list[str]], runtime_dir: str) -> None:
        self.serving: Attempt | None = None
        self.beside: Attempt | None = None
        self.starts = 0
        self.affinity = Affinity()
        self._module = module
        self._live = live
        self._ram = ram_dir(runtime_dir)  # which changes at a restart only
        self._kernel = Aside("oom")
        self._dying: list[Attempt] = []

    def everyone(self) -> list[Attempt]:
        return [*(one for one in (self.serving, self.beside) if one is not None), *self._dying]

    def spawn(self, plan: Plan, *, need: int, number: int) -> Attempt:
        """Raises OSError."""
        self.starts += 1
        with self.affinity.whole():
            process = WorkerProcess(self._module, self.starts)
        load = plan.load(self._ram, self._live())
        return Attempt(process, plan, load, self._kernel, need=need, number=number)

    def drop_serving(self) -> None:
        self._condemn(self.serving)
        self.serving = None

    def drop_beside(self) -> None:
        self._condemn(self.beside)
        self.beside = None

    def _condemn(self, attempt: Attempt | None) -> None:
        """It is wanted no more; its pidfd will say when it is gone."""
        if attempt is not None:
            attempt.kill(causes.SIGKILL)
            self._dying.append(attempt)

    def buried(self, attempt: Attempt) -> bool:
        """Whether it was one that nobody waits for; then it is gone."""
        if attempt not in self._dying:
            return False
        self._dying.remove(attempt)
        attempt.ended()
        return True

    def promote(self) -> Attempt | None:
        """The one beside takes the place of the one that is gone."""
        self.serving, self.beside = self.beside, None
        return self.serving

    def tick(self, now: float, *, work: bool) -> None:
        for attempt in self.everyone():
            attempt.tick(now, work=work and attempt is self.serving)

    def look(self) -> None:
        for attempt in self.everyone():
            attempt.look()

    def next_wake(self) -> float:
        return min((one.next_wake() for one in self.everyone()), default=NEVER)

    def stop(self, save_s: float) -> None:
        """Asks the serving one to leave, with time for its snapshots, and makes all of them. Blocks."""
        if self.serving is not None and not self.serving.leaving:
            self.serving.stop(save_s)
        for attempt in self.everyone():
            attempt.kill(causes.SIGKILL)
            attempt.process.reap()
        self.serving = self.beside = None
        self._dying.clear()
