"""Anything in any order: the supervisor never loses its way, has two workers at most, and is never stuck."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edged.config import parse
from edged.messages import Load, LoadFailed, Loading, Quit, Ready, Sampled
from edged.system.gguf import Header
from edged.watchdog import crew, line
from edged.watchdog.change import Wish
from edged.watchdog.happenings import GaveUp, Kept, Lost, Replaced, Unloaded
from edged.watchdog.line import Step
from edged.watchdog.plan import Plan
from edged.watchdog.preflight import Checked, Rejected
from edged.watchdog.supervisor import Supervisor

READY = Ready("", "", "", 0, 0, 0, 512, 1, 32, 256, "model", [], 1.0, 0, "", [])
HEADER = Header(
    **{name: ({"int": 0, "str": "", "bool": False}.get(str(kind), 0)) for name, kind in Header.__annotations__.items()}
)
NUMBERS = itertools.count(10)


class Process:
    """A worker that does what the machine says."""

    made: list[Process]

    def __init__(self, _module: str, generation: int) -> None:
        self.generation = generation
        self.pid = self.pidfd = next(NUMBERS)
        self.link = self
        self.eof = self.dead = self.reaped = False
        self.cause = "SIGKILL"
        self.told: list[Any] = []
        self.said: list[Any] = []
        Process.made.append(self)

    def fileno(self) -> int:
        return -self.pid

    def send(self, *messages: Any) -> None:
        self.told += messages

    def flush(self) -> None:
        pass

    def read(self) -> list[Any]:
        said, self.said = self.said, []
        return said

    def read_to_end(self) -> list[Any]:
        return self.read()

    def kill(self) -> None:
        self.dead = True

    def reap(self) -> str:
        assert self.dead
        assert not self.reaped
        self.reaped = True
        return self.cause

    def wait(self, _seconds: float) -> bool:
        return self.dead


class Preflight:
    """Answers when it is told to."""

    def __init__(self, _state_dir: str, _wake: Any) -> None:
        self.asked: list[tuple[int, str]] = []
        self.found: list[Any] = []
        self.number = 0

    def check(self, plan: Plan) -> int:
        self.number += 1
        self.asked.append((self.number, plan.path))
        return self.number

    def findings(self) -> list[Any]:
        found, self.found = self.found, []
        return found


def configuration(context: int = 4096) -> Any:
    names = ("big", "middle", "small")
    profiles = [{"name": name, "context": context, "model": f"/nowhere/{name}.gguf"} for name in names]
    return parse(
        {
            "runtime_dir": "/nowhere",
            "state_dir": "/nowhere",
            "model": {"path": "/nowhere/model.gguf"},
            "profiles": profiles,
            "watchdog": {"root": "/nowhere", "stall_s": 3, "restart": {"max": 2, "window_s": 30}},
        },
        "test",
    )


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        Process.made = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(crew, "WorkerProcess", Process)
        self.patch.setattr(line, "Preflight", Preflight)
        self.room: int | None = 1 << 40
        self.now = 0.0
        self.work = False
        self.lost = self.ups = 0
        self.config = configuration()
        self.one = Supervisor(self.config, "none", lambda: None)
        self.one.begin()

    def teardown(self) -> None:
        if hasattr(self, "one"):
            self.one.stop()
            assert all(process.reaped for process in Process.made)
            self.patch.undo()

    # ---- what workers and files do ----------------------------------------------------------------------------

    def alive(self) -> list[Process]:
        return [process for process in Process.made if not process.reaped]

    def turn(self) -> None:
        self.one.findings(self.now)
        self.one.tick(self.now, work=self.work)
        dead = {process.pidfd for process in self.alive() if process.dead}
        talking = {process.fileno() for process in self.alive() if process.said}
        self.one.read(dead | talking, self.now)
        for happening in self.one.take():
            match happening:
                case Lost(up=True):
                    self.lost += 1
                case Ready():
                    self.ups += 1
                case GaveUp():
                    assert self.one.crew.serving is None
                    assert self.one.pinned or self.one.plan.index == 0
                case Replaced() | Kept() | Unloaded():
                    pass
        assert self.ups - self.lost in (0, 1)

    @precondition(lambda self: self.one._preflight.asked)
    @rule(good=st.sampled_from([True, True, True, False]))
    def file_found(self, good: bool) -> None:
        number, path = self.one._preflight.asked.pop(0)
        found = Checked(number, path, HEADER, self.room) if good else Rejected(number, path, "", "bad", None)
        self.one._preflight.found.append(found)
        self.turn()

    @precondition(lambda self: any(not p.dead for p in self.alive()))
    @rule(
        data=st.data(), what=st.sampled_from(["ready", "ready", "loading", "failed", "memory", "token", "die", "leave"])
    )
    def worker(self, data: st.DataObject, what: str) -> None:
        process = data.draw(st.sampled_from([p for p in self.alive() if not p.dead]))
        loaded = any(isinstance(m, Ready) for m in process.told)
        match what:
            case "ready" if not loaded:
                process.said.append(READY)
                process.told.append(READY)
            case "loading" if not loaded:
                process.said.append(Loading(data.draw(st.floats(0, 1))))
            case "failed" | "memory" if not loaded:
                process.said.append(LoadFailed(what, "no"))
                process.dead, process.cause = True, "exit 1"
            case "token" if loaded:
                process.said.append(Sampled(1, [1], "x"))
            case "die":
                process.dead, process.cause = True, data.draw(st.sampled_from(["SIGSEGV", "SIGKILL", "exit 3"]))
            case "leave" if any(isinstance(m, Quit) for m in process.told):
                process.dead, process.cause = True, "exit 0"
        self.turn()

    @rule(passed=st.sampled_from([0.1, 1.0, 4.0, 31.0, 400.0]), work=st.booleans())
    def time(self, passed: float, work: bool) -> None:
        self.work = work
        end = self.now + passed
        for _ in range(50):
            self.now = min(end, max(self.now, self.one.next_wake()))
            self.turn()
            if self.now >= end:
                break
        self.now = end
        self.turn()

    @rule(room=st.sampled_from([None, 0, 70 << 20, 1 << 40]))
    def memory(self, room: int | None) -> None:
        self.room = room

    # ---- what is wished ---------------------------------------------------------------------------------------

    @rule(index=st.integers(0, 2), reason=st.sampled_from(["reload", "heat"]), old_first=st.booleans())
    def replace(self, index: int, reason: str, old_first: bool) -> None:
        plan = Plan(self.config, index)
        around = reason == "heat" and self.one.rejects.bad(plan, self.now)
        self.one.replace(Wish(plan, reason, old_first), self.now)
        assert self.one.wanted == plan or around
        self.turn()

    @rule(context=st.sampled_from([4096, 512]), index=st.integers(0, 2))
    def reconfigure(self, context: int, index: int) -> None:
        self.config = configuration(context)
        self.one.reconfigure(Plan(self.config, index), self.now)
        assert self.one.wanted == Plan(self.config, index)
        self.turn()

    @rule()
    def unload(self) -> None:
        self.one.unload("memory", self.now)
        self.turn()

    @precondition(lambda self: self.one.step is Step.UNLOADED)
    @rule(index=st.integers(0, 2))
    def load(self, index: int) -> None:
        self.one.load(Plan(self.config, index))
        self.turn()

    @rule(pinned=st.booleans())
    def pin(self, pinned: bool) -> None:
        self.one.pinned = pinned

    # ---- what holds -------------------------------------------------------------------------------------------

    @invariant()
    def two_at_most(self) -> None:
        if not hasattr(self, "one"):
            return
        one = self.one
        wanted = [process for process in self.alive() if not process.dead]
        assert len(wanted) <= 2
        assert {p.pid for p in self.alive()} == {p.pid for p in one.processes()}
        serving = one.crew.serving
        assert (serving is not None) == (one.step in (Step.LOADING, Step.UP))
        if one.step is Step.UP:
            assert serving is not None
            assert serving.ready is not None
            assert one.fallback is None
        if one.crew.beside is not None:
            assert one.change is not None
            assert one.step is Step.UP
        for process in self.alive():
            assert isinstance(process.told[0], Load)

    @rule()
    def all_is_well_at_last(self) -> None:
        """With good files, workers that load and leave, and room: a worker of what is wanted is up in the end."""
        if self.one.step is Step.UNLOADED or self.one._unloading:
            return
        self.room = 1 << 40
        for _ in range(40):
            for number, path in self.one._preflight.asked:
                self.one._preflight.found.append(Checked(number, path, HEADER, self.room))
            self.one._preflight.asked.clear()
            for process in self.alive():
                if process.dead:
                    continue
                if any(isinstance(m, Quit) for m in process.told):
                    process.dead, process.cause = True, "exit 0"
                elif READY not in process.told:
                    process.said.append(READY)
                    process.told.append(READY)
            if self.one.step in (Step.WAITING, Step.GIVEN_UP):
                self.now = max(self.now, self.one.next_wake())
            self.turn()
        assert self.one.step is Step.UP
        assert self.one.change is None
        assert len(self.alive()) == 1
        assert self.one.wanted == self.one.plan


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
