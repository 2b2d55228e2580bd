"""Readings → level → what is done: the watchdog's rules (`edged.watchdog.policy`, `ladder`) carried out by the loop.

The daemon's loop calls; nothing here blocks. An incident is some five lines of the log: `level`, `replacing`,
`model_ready`, `replaced`, and `level` again when it is over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from edged import messages as m
from edged.broker.broker import Broker
from edged.broker.instructions import Instruction
from edged.config import Config
from edged.errors import Code
from edged.level import Level
from edged.observe import watch
from edged.observe.log import Log
from edged.system.cpufreq import FrequencyCap
from edged.watchdog.change import Wish
from edged.watchdog.ladder import Course, Ladder
from edged.watchdog.line import Step
from edged.watchdog.plan import Plan
from edged.watchdog.policy import Policy, Verdict, memory_room
from edged.watchdog.readings import Readings
from edged.watchdog.sampler import Sampler
from edged.watchdog.supervisor import Supervisor

CLOCK_FILE: Final = "clock"
"""In `runtime_dir`: what the clock's limit was before we set one."""


class WatchSide:
    """`tell` sends to the worker that serves, `publish` a `sys/` event."""

    def __init__(
        self,
        config: Config,
        supervisor: Supervisor,
        broker: Broker,
        *,
        do: Callable[[Iterable[Instruction], float], None],
        tell: Callable[[m.Down], None],
        publish: Callable[[str, dict[str, Any]], None],
        wake: Callable[[], None],
        log: Log,
    ) -> None:
        self._supervisor = supervisor
        self._broker = broker
        self._do = do
        self._tell = tell
        self._publish = publish
        self._wake = wake
        self._log = log
        self.pinned: str | None = None  # the profile that an operator chose
        self._alarms: list[str] = []
        self._pace = m.Pace()
        self._cap = FrequencyCap(config.watchdog.root, os.path.join(config.runtime_dir, CLOCK_FILE))
        self._begin(config)

    def _begin(self, config: Config) -> None:
        """From nothing known."""
        rules = config.watchdog
        self.config = config
        self._policy = Policy(rules)
        self._ladder = Ladder(rules, len(config.profiles))
        self._ladder.frequencies(self._cap.steps())
        self._sampler = Sampler(rules.root, rules.interval_s, self._wake, rules.heat.zones)
        self._readings = Readings()
        self._verdict: Verdict | None = None
        self._course = Course()

    def reconfigure(self, config: Config) -> None:
        """With other rules it begins anew, and the level is found again within some samples."""
        before, self.config = self.config, config
        if before.watchdog != config.watchdog or len(before.profiles) != len(config.profiles):
            self._sampler.stop()
            self._begin(config)
        self.pin(self.pinned if self.pinned in names(config) else None)

    def stop(self) -> None:
        self._sampler.stop()
        self._cap.restore()

    # ---- looking ---------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        for readings in self._sampler.take():
            self._observe(readings, readings.at)
        late = self._sampler.overdue(now)
        if late is not None:
            self._observe(late, now)

    def next_wake(self) -> float:
        return self._sampler.next_wake()

    def _observe(self, readings: Readings, now: float) -> None:
        worker = self._supervisor.worker
        self._sampler.follow(worker.pid if worker else None)
        self._supervisor.crew.look()
        before, verdict = self._verdict, self._policy.observe(readings, now)
        self._readings, self._verdict = readings, verdict
        if (before.level if before else Level.NORMAL) is not verdict.level:
            self._tell_level(verdict)
        if _sorts(before) != _sorts(verdict):
            self._press(verdict, now)
        for alarm in verdict.alarms:
            if alarm not in self._alarms:
                self._log.warning("alarm", text=alarm)
        self._alarms = verdict.alarms
        self._carry_out(self._ladder.course(verdict, readings, now), verdict, now)

    def _tell_level(self, verdict: Verdict) -> None:
        fields = {"level": verdict.level.word, "heat": verdict.heat.word, "memory": verdict.memory.word}
        tell = self._log.warning if verdict.level else self._log.info
        tell("level", **fields, why=verdict.why or "cool and roomy again", **watch.figures(self._readings))
        self._publish("watchdog", {"type": "watchdog", "time": time.time(), **fields, "why": verdict.why})

    def _press(self, verdict: Verdict, now: float) -> None:
        heat = verdict.heat >= verdict.memory
        why = f"the board is {'too hot' if heat else 'short of memory'}: {verdict.why}"
        code = Code.OVERHEATED if heat else Code.LOW_MEMORY
        rules = self.config.watchdog
        wait_s = rules.hold_s + (rules.reload_s if verdict.level is Level.CRITICAL else 0.0)
        if verdict.level >= Level.HOT:
            retry_ms = max(1000, round(1000 * wait_s))
            self._do(self._broker.pressed(verdict.level, code, retry_ms, why, now), now)
        else:
            self._do(self._broker.pressed(verdict.level, None, None, "", now), now)

    # ---- acting ----------------------------------------------------------------------------------------------

    def _carry_out(self, course: Course, verdict: Verdict, now: float) -> None:
        self._course = course
        if course.pace != self._pace:
            self._pace = course.pace
            self._tell(course.pace)
        if course.shrink:
            self._tell(m.Shrink())
        self._cap.set(course.frequency_khz)
        self._steer(course, verdict, now)

    def _steer(self, course: Course, verdict: Verdict, now: float) -> None:
        """Has the supervisor run what the ladder and the deaths so far let it."""
        supervisor = self._supervisor
        index = course.profile if self.pinned else max(course.profile, supervisor.descent.floor)
        plan = Plan(supervisor.wanted.config, min(index, len(supervisor.wanted.config.profiles) - 1))
        memory = verdict.memory > verdict.heat
        reason = ("memory" if memory else "heat") if verdict.level else "recovery"
        if not course.loaded:
            if supervisor.step is not Step.UNLOADED:
                supervisor.unload(reason, now)
        elif supervisor.step is Step.UNLOADED:
            supervisor.load(plan)
        elif supervisor.step is not Step.GIVEN_UP and plan.index != supervisor.wanted.index:
            supervisor.replace(Wish(plan, reason, old_first=memory), now)

    def worker_ready(self, ready: m.Ready, now: float) -> None:
        self._ladder.changed(self._supervisor.plan.index, now)
        self._ladder.threads(max(1, sum("decode" in pin.role for pin in ready.threads)))
        if self._pace != m.Pace():
            self._tell(self._pace)

    def kept(self, now: float) -> None:
        """What the ladder wanted did not come up: it may want it again, not before reload_s."""
        self._ladder.changed(self._supervisor.plan.index, now)

    def chosen(self, index: int, now: float) -> None:
        """An operator has this profile run; the ladder goes on from there."""
        if index != self._course.profile:
            self._ladder.changed(index, now)
            self._course = msgspec.structs.replace(self._course, profile=index)

    def pin(self, name: str | None) -> None:
        """An operator's choice, whatever the level; None: the watchdog chooses."""
        self.pinned = name
        self._supervisor.pinned = name is not None
        self._ladder.pinned(None if name is None else names(self.config).index(name))

    @property
    def unloaded(self) -> str:
        """Why there is no model on purpose; "" when there is, or shall be."""
        return "" if self._course.loaded or self._verdict is None else self._verdict.why

    @property
    def available(self) -> int | None:
        """Bytes of memory at the last look, in the board and in our control group."""
        room = memory_room(self._readings)
        return None if room is None else room[0]

    def fields(self, now: float) -> dict[str, Any]:
        """For `status`."""
        profile = {"wanted": self._supervisor.wanted.profile.name, "pinned": self.pinned}
        return watch.fields(self._readings, self._verdict, self._course, now) | {"profile": profile}


def names(config: Config) -> list[str]:
    return [profile.name for profile in config.profiles]


def _sorts(verdict: Verdict | None) -> tuple[Level, Level]:
    return (verdict.heat, verdict.memory) if verdict else (Level.NORMAL, Level.NORMAL)
