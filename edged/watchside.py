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
from edged.level import Level
from edged.observe import watch
from edged.observe.log import Log
from edged.system.cpufreq import FrequencyCap
from edged.watchdog.alarms import Alarms
from edged.watchdog.change import Wish
from edged.watchdog.ladder import Course, Ladder
from edged.watchdog.line import Step
from edged.watchdog.plan import Plan
from edged.watchdog.policy import Policy, Verdict
from edged.watchdog.readings import Readings
from edged.watchdog.refusal import Refusal, refusal
from edged.watchdog.sampler import Sampler
from edged.watchdog.supervisor import Supervisor
from edged.watchdog.thresholds import memory_room

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
        self._alarms = Alarms()
        self._pace = m.Pace()
        rules = config.watchdog
        self._cap = FrequencyCap(rules.root, os.path.join(config.runtime_dir, CLOCK_FILE))
        self.config = config
        self._policy = Policy(rules)
        self._ladder = Ladder(rules, len(config.profiles))
        self._ladder.frequencies(self._cap.steps())
        self._sampler = self._look()
        self._readings = Readings()
        self._verdict: Verdict | None = None
        self._course = Course()
        self._unload: Refusal | None = None  # why there is no model on purpose
        self._told: Refusal | None = None  # to the broker

    def _look(self) -> Sampler:
        rules = self.config.watchdog
        return Sampler(rules.root, rules.interval_s, self._wake, rules.heat.zones)

    def reconfigure(self, config: Config) -> None:
        """SIGHUP: what is known of the board and of the worker stays, a level is left by the new rules."""
        before, self.config = self.config.watchdog, config
        rules = config.watchdog
        self._policy.reconfigure(rules)
        self._ladder.reconfigure(rules, len(config.profiles))
        looks = (before.root, before.interval_s, before.heat.zones)
        if looks != (rules.root, rules.interval_s, rules.heat.zones):
            self._sampler.stop()
            self._sampler = self._look()
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
        self._supervisor.memory_short = verdict.memory >= Level.WARM
        if (before.level if before else Level.NORMAL) is not verdict.level:
            self._tell_level(verdict)
        for alarm in self._alarms.fresh(verdict.alarms, now):
            self._log.warning("alarm", text=alarm)
            self._publish("service", {"type": "service", "event": "alarm", "time": time.time(), "text": alarm})
        loading = self._supervisor.step in (Step.CHECKING, Step.LOADING)
        self._ladder.changing(changing=loading or self._supervisor.change is not None)
        course = self._ladder.course(verdict, readings, now)
        if not course.loaded and self._course.loaded:
            self._unload = refusal(verdict)
        self._carry_out(course, verdict, now)
        self._press(verdict, now)

    def _tell_level(self, verdict: Verdict) -> None:
        fields = {"level": verdict.level.word, "heat": verdict.heat.word, "memory": verdict.memory.word}
        tell = self._log.warning if verdict.level else self._log.info
        tell("level", **fields, why=verdict.why or "cool and roomy again", **watch.figures(self._readings))
        self._publish("watchdog", {"type": "watchdog", "time": time.time(), **fields, "why": verdict.why})

    def _press(self, verdict: Verdict, now: float) -> None:
        """The broker hears of the level when it, or what is told to clients, is another than before."""
        if self._course.loaded:
            self._unload = None
        told = refusal(verdict)
        if self._unload is not None and verdict.level < Level.HOT:
            why = f"the model was unloaded ({self._unload.why}) and is loaded again soon"
            told = Refusal(verdict.level, self._unload.code, why)
        retry_ms = None if told.code is None else max(1000, round(1000 * self._retry_s(verdict, now)))
        if told != self._told:
            self._told = told
            self._do(self._broker.pressed(told.level, told.code, retry_ms, told.why, now), now)
        self._broker.gate.retry_after_ms = retry_ms

    def _retry_s(self, verdict: Verdict, now: float) -> float:
        rules = self.config.watchdog
        if verdict.level < Level.HOT:
            return self._ladder.load_due() - now
        return rules.hold_s + (rules.reload_s if verdict.level is Level.CRITICAL else 0.0)

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
            supervisor.replace(Wish(plan, reason), now)

    def worker_ready(self, ready: m.Ready, now: float) -> None:
        self._ladder.changed(self._supervisor.plan.index, now)
        self._ladder.threads(max(1, sum("decode" in pin.role for pin in ready.threads)))
        if self._pace != m.Pace():
            self._tell(self._pace)

    def kept(self, wanted: int, now: float) -> None:
        """That profile did not come up: the ladder wants it again, but ever more rarely."""
        self._ladder.failed(wanted, self._supervisor.plan.index, now)

    def chosen(self, index: int, now: float) -> None:
        """An operator has this profile run; the ladder goes on from there, and what failed so far is forgiven."""
        self._ladder.forgive()
        if index != self._ladder.profile:
            self._ladder.changed(index, now)
        self._course = msgspec.structs.replace(self._course, profile=index)

    def load(self, now: float) -> None:
        """An operator's wish while there is no model: the ladder's patience is not for operators, the level is."""
        verdict = self._verdict
        if verdict is None or self._course.loaded or self.refused:
            return
        self._ladder.load(now)
        self._course = msgspec.structs.replace(self._course, loaded=True)
        self._steer(self._course, verdict, now)
        self._press(verdict, now)

    def pin(self, name: str | None) -> None:
        """An operator's choice, whatever the level; None: the watchdog chooses."""
        self.pinned = name
        self._supervisor.pinned = name is not None
        self._ladder.pinned(None if name is None else names(self.config).index(name))

    @property
    def wanted(self) -> str:
        """The profile that is run, or will be when there is a model again."""
        known = names(self._supervisor.wanted.config)
        if self._course.loaded:
            return self._supervisor.wanted.profile.name
        return known[min(self._ladder.profile, len(known) - 1)]

    @property
    def refused(self) -> str:
        """Why there is no model and may be none now, also for an operator; "" otherwise."""
        hot = self._verdict is not None and self._verdict.level >= Level.HOT
        return self._verdict.why if hot and self._verdict and not self._course.loaded else ""

    @property
    def seen(self) -> tuple[int | None, Readings, float]:
        """Level, readings and duty cycle at the last look."""
        level = None if self._verdict is None else int(self._verdict.level)
        return level, self._readings, self._course.pace.duty

    @property
    def available(self) -> int | None:
        """Bytes of memory at the last look, in the board and in our control group."""
        room = memory_room(self._readings)
        return None if room is None else room[0]

    def fields(self, now: float) -> dict[str, Any]:
        """For `status`."""
        out = watch.fields(self._readings, self._verdict, self._course, now)
        out["profile"] = {"wanted": self.wanted, "pinned": self.pinned}
        waits = self._verdict is not None and self._verdict.level < Level.HOT
        due = max(0.0, self._ladder.load_due() - now) if waits else None
        return out | {"unloaded": self._unload and watch.unloaded(self._unload.why, due)}


def names(config: Config) -> list[str]:
    return [profile.name for profile in config.profiles]
