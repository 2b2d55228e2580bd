"""The supervisor with real processes: what comes up, what does not, and who serves meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness import TESTS, tiny_gguf, until

from edged.config import Config, parse
from edged.watchdog import crew as module
from edged.watchdog import line, rejects
from edged.watchdog.change import Wish
from edged.watchdog.happenings import GaveUp, Kept, Looking, Lost, Replaced, Replacing, Stepped, Unloaded
from edged.watchdog.line import Step
from edged.watchdog.plan import Plan
from edged.watchdog.supervisor import Supervisor

BIG, SMALL = "big", "small"


class Rig:
    """Turns as the daemon's loop does. `seen`: what happened, without what workers say of themselves."""

    def __init__(self, config: Config, module: str = "named_worker") -> None:
        self._waker, self._wakes = socket.socketpair()
        self._waker.setblocking(False)
        self._wakes.setblocking(False)
        self.one = Supervisor(config, module, self._wake)
        self.seen: list[Any] = []
        self.work = False

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def turn(self) -> None:
        one = self.one
        poll = select.poll()
        poll.register(self._wakes, select.POLLIN)
        for process in one.processes():
            poll.register(process.pidfd, select.POLLIN)
            if not process.eof:
                poll.register(process.link.fileno(), select.POLLIN)
        wait_s = min(1.0, max(0.0, one.next_wake() - time.monotonic()))
        ready = {fd for fd, _ in poll.poll(1000 * wait_s)}
        with contextlib.suppress(BlockingIOError):
            self._wakes.recv(4096)
        now = time.monotonic()
        one.read(ready, now)
        one.findings(now)
        one.tick(now, work=self.work)
        kinds = (Lost, GaveUp, Looking, Stepped, Replacing, Replaced, Kept, Unloaded)
        self.seen += [happening for happening in one.take() if isinstance(happening, kinds)]

    def run(self, until_: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not until_():
            assert time.monotonic() < end, (self.one.step, self.seen)
            self.turn()

    def up(self) -> None:
        self.run(lambda: self.one.step is Step.UP and self.one.change is None)

    def saw(self, kind: type[Any]) -> Any:
        self.run(lambda: any(isinstance(one, kind) for one in self.seen))
        return next(one for one in self.seen if isinstance(one, kind))

    def kinds(self) -> list[str]:
        return [type(one).__name__ for one in self.seen]

    @property
    def now(self) -> float:
        return time.monotonic()

    @property
    def pid(self) -> int:
        assert self.one.worker is not None
        return self.one.worker.pid

    def replace(self, config: Config, index: int, reason: str = "reload", *, old_first: bool = False) -> None:
        self.one.replace(Wish(Plan(config, index), reason, old_first), self.now)

    def stop(self) -> None:
        self.one.stop()
        self._waker.close()
        self._wakes.close()


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}:{TESTS.parent}")
    monkeypatch.delenv("EDGED_SCRIPT", raising=False)
    rigs: list[Rig] = []

    def make(config: Config, module: str = "named_worker") -> Rig:
        rigs.append(Rig(config, module))
        return rigs[-1]

    yield make
    for one in rigs:
        one.stop()


def configured(tmp_path: Path, *profiles: str, room_mb: int | None = None, **watchdog: Any) -> Config:
    """A profile for each word, which is the beginning of its model's name too."""
    root = "/"
    if room_mb is not None:
        root = str(tmp_path / "root")
        room(tmp_path, room_mb)
    wanted = [{"name": name.split()[0], "model": str(tiny_gguf(tmp_path / f"{name}.gguf"))} for name in profiles]
    rules = {"root": root, "restart": {"backoff_s": 0.01, "max": 1}, **watchdog}
    data = {"state_dir": str(tmp_path), "runtime_dir": str(tmp_path), "profiles": wanted, "watchdog": rules}
    return parse(data, "test")


def room(tmp_path: Path, megabytes: int) -> None:
    proc = tmp_path / "root/proc"
    proc.mkdir(parents=True, exist_ok=True)
    (proc / "meminfo").write_text(f"MemTotal: 4000000 kB\nMemAvailable: {megabytes * 1024} kB\n")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# ---- replacing ------------------------------------------------------------------------------------------------------


def test_new_first_when_there_is_room(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL, room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    old = one.pid
    one.replace(config, 1)
    assert one.saw(Replacing).order == "new first"
    assert (one.pid, one.one.leaving) == (old, False)
    one.saw(Replaced)
    assert one.kinds() == ["Replacing", "Lost", "Replaced"]
    assert one.seen[1] == Lost("reload", up=True, planned=True)
    assert (one.one.plan.index, one.one.deaths, gone(old)) == (1, 0, True)


@pytest.mark.parametrize(("room_mb", "old_first"), [(100, False), (2000, True)])
def test_old_first_without_room_or_when_told(
    tmp_path: Path, rig: Callable[..., Rig], room_mb: int, old_first: bool
) -> None:
    config = configured(tmp_path, BIG, SMALL, room_mb=room_mb)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1, "memory", old_first=old_first)
    one.saw(Replaced)
    assert one.kinds() == ["Replacing", "Lost", "Replaced"]
    assert one.seen[0].order == "old first"
    assert (one.one.plan.index, one.one.deaths) == (1, 0)


def test_without_room_for_the_new_one_alone_the_old_one_stays(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL, room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    pid = one.pid
    room(tmp_path, 0)
    huge = {**parse_profile(config, 1), "context": 1 << 20, "batch": 4096}
    with Path(huge["model"]).open("r+b") as file:
        file.truncate(100 << 20)
    one.replace(with_profiles(config, [parse_profile(config, 0), huge]), 1)
    assert "needs about" in one.saw(Kept).why
    assert (one.pid, one.one.step, one.one.deaths) == (pid, Step.UP, 0)


def parse_profile(config: Config, index: int) -> dict[str, Any]:
    profile = config.profiles[index]
    return {"name": profile.name, "model": profile.model}


def with_profiles(config: Config, profiles: list[dict[str, Any]]) -> Config:
    rules = {"root": config.watchdog.root}
    data = {"state_dir": config.state_dir, "runtime_dir": config.runtime_dir, "profiles": profiles, "watchdog": rules}
    return parse(data, "test")


@pytest.mark.parametrize("fault", ["fail", "die", "garbage", "rejected", "missing"])
@pytest.mark.parametrize("room_mb", [2000, 100])
def test_what_does_not_come_up_leaves_the_old_one(
    tmp_path: Path, rig: Callable[..., Rig], fault: str, room_mb: int
) -> None:
    config = configured(tmp_path, BIG, f"bad load={fault}", room_mb=room_mb)
    path = Path(config.profiles[1].model or "")
    if fault == "rejected":
        path.write_bytes(b"no model")
    if fault == "missing":
        path.unlink()
    one = rig(config)
    one.one.begin()
    one.up()
    pid = one.pid
    one.replace(config, 1)
    kept = one.saw(Kept)
    assert (kept.profile, kept.wanted) == (BIG, 1)
    one.up()
    assert one.one.plan.index == 0
    assert one.one.deaths == 0
    if room_mb == 2000 or fault in ("rejected", "missing"):
        assert one.pid == pid


def test_the_old_one_dies_while_the_new_one_loads(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "small load=0.4", room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1)
    one.saw(Replacing)
    starts = one.one.crew.starts
    os.kill(one.pid, signal.SIGKILL)
    one.saw(Replaced)
    assert one.seen[1] == Lost("SIGKILL", up=True)
    assert (one.one.plan.index, one.one.deaths, one.one.crew.starts) == (1, 1, starts)


def test_the_old_one_dies_and_the_new_one_does_not_come_up(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "small load=never", room_mb=2000, stall_s=0.04)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1)
    one.saw(Replacing)
    os.kill(one.pid, signal.SIGKILL)
    one.saw(Kept)
    one.up()
    assert one.one.plan.index == 0


def test_the_newest_wish_wins(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "middle load=30", SMALL, room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1)
    one.saw(Replacing)
    one.replace(config, 2)
    one.saw(Replaced)
    assert one.one.plan.index == 2
    until(lambda: (one.turn(), len(one.one.processes()) == 1)[1], "the middle one's end")


def test_a_wish_while_the_old_one_leaves_waits(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, "big quit=0.3", "middle", SMALL, room_mb=100)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1)
    one.run(lambda: one.one.leaving)
    one.replace(config, 2)
    assert one.one.wanted.index == 2
    one.run(lambda: one.one.step is Step.UP and one.one.plan.index == 2)
    assert [o.profile for o in one.seen if isinstance(o, Replaced)] == ["middle", SMALL]


def test_a_wish_while_the_new_one_loads_alone_takes_its_place(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "middle load=30", SMALL, room_mb=100)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1)
    one.run(lambda: one.one.step is Step.LOADING)
    one.replace(config, 2)
    one.run(lambda: one.one.step is Step.UP)
    assert one.one.plan.index == 2


def test_one_that_does_not_leave_is_killed(tmp_path: Path, rig: Callable[..., Rig], monkeypatch) -> None:
    monkeypatch.setattr("edged.watchdog.attempt.QUIT_S", 0.1)
    monkeypatch.setattr("edged.watchdog.supervisor.SAVE_S", 0.0)
    config = configured(tmp_path, "big quit=never", SMALL, room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1)
    one.saw(Replaced)
    assert one.one.deaths == 0


# ---- unloading ------------------------------------------------------------------------------------------------------


def test_unloaded_until_told_otherwise(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL, room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    one.one.unload("memory", one.now)
    one.saw(Unloaded)
    assert one.seen == [Lost("memory", up=True, planned=True), Unloaded("memory")]
    assert (one.one.step, one.one.processes()) == (Step.UNLOADED, [])
    one.replace(config, 0)
    assert one.one.step is Step.UNLOADED
    one.one.load(Plan(config, 1))
    one.up()
    assert one.one.plan.index == 1


@pytest.mark.parametrize("name", ["big load=30", "big load=never"])
def test_unloaded_while_it_loads(tmp_path: Path, rig: Callable[..., Rig], name: str) -> None:
    one = rig(configured(tmp_path, name, SMALL, room_mb=2000))
    one.one.begin()
    one.run(lambda: one.one.step is Step.LOADING)
    one.one.unload("heat", one.now)
    one.run(lambda: not one.one.processes())
    assert one.seen == [Unloaded("heat")]
    one.one.load(Plan(one.one.plan.config, 1))
    one.up()


# ---- deaths ---------------------------------------------------------------------------------------------------------


def test_too_many_deaths_lead_to_the_next_profile_then_to_none(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, "big load=die", SMALL, "last load=die", room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    assert one.kinds() == ["Lost", "Lost", "Stepped"]
    assert (one.one.plan.index, one.one.descent.floor) == (1, 1)
    for _ in range(2):
        one.run(lambda: one.one.step is Step.UP)
        os.kill(one.pid, signal.SIGSEGV)
        one.run(lambda: one.one.step is not Step.UP)
    assert "ended 2 times in a row" in one.saw(GaveUp).why
    assert one.one.step is Step.GIVEN_UP


def test_an_illegal_instruction_while_loading_is_the_builds_fault(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    """No second try at once, and none of the smaller profiles, which the same library would load."""
    one = rig(configured(tmp_path, "big load=illegal", SMALL, room_mb=2000))
    one.one.begin()
    assert one.saw(GaveUp).why.startswith("the engine's build does not fit this processor")
    assert one.kinds() == ["Lost", "GaveUp"]
    assert one.saw(GaveUp).until - one.now > 60


def test_a_new_worker_with_an_illegal_instruction_leaves_the_old_one(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    one = rig(configured(tmp_path, BIG, room_mb=2000))
    one.one.begin()
    one.up()
    one.replace(configured(tmp_path, "other load=illegal", room_mb=2000), 0)
    assert "SIGILL" in one.saw(Kept).why
    assert one.one.step is Step.UP


def test_a_pinned_profile_is_not_left(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    one = rig(configured(tmp_path, "big load=die", SMALL, room_mb=2000))
    one.one.pinned = True
    one.one.begin()
    one.saw(GaveUp)
    assert one.one.plan.index == 0


def test_what_does_not_fit_leads_to_the_next_profile(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL, room_mb=150)
    with Path(config.profiles[0].model or "").open("r+b") as file:
        file.truncate(100 << 20)
    one = rig(config)
    one.one.begin()
    one.up()
    assert one.saw(Stepped).why == "profile big needs about 164 MB, 150 MB are available"
    assert one.one.deaths == 0
    room(tmp_path, 20)
    two = rig(config)
    two.one.begin()
    assert "profile small needs about" in two.saw(GaveUp).why


def test_a_worker_that_refuses_for_want_of_memory_leads_to_the_next_profile(
    tmp_path: Path, rig: Callable[..., Rig], monkeypatch
) -> None:
    monkeypatch.setenv("EDGED_SCRIPT", "refuse=big")
    one = rig(configured(tmp_path, BIG, SMALL, room_mb=2000), "scripted_worker")
    one.one.begin()
    one.up()
    assert one.one.plan.index == 1


def test_a_process_that_cannot_be_made_is_a_death_and_is_tried_again(
    tmp_path: Path, rig: Callable[..., Rig], monkeypatch
) -> None:
    def no_memory(name: str, generation: int) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(module, "WorkerProcess", no_memory)
    one = rig(configured(tmp_path, BIG))
    one.one.begin()
    assert one.saw(Lost) == Lost("no process: Cannot allocate memory", up=False)
    assert "no worker could be started" in one.saw(GaveUp).why
    assert one.one.deaths == 2


# ---- bad files ------------------------------------------------------------------------------------------------------


def damaged(config: Config, *indices: int) -> None:
    for index in indices:
        Path(config.profiles[index].model or "").write_bytes(b"GGUFxxxx")


def stepped(one: Rig) -> list[tuple[str, str]]:
    return [(seen.before, seen.after) for seen in one.seen if isinstance(seen, Stepped)]


def test_the_way_down_leads_past_a_bad_file(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, "big load=die", "middle", SMALL)
    damaged(config, 1)
    one = rig(config)
    one.one.begin()
    one.up()
    assert stepped(one) == [("big", "middle"), ("middle", "small")]
    assert one.one.plan.index == one.one.descent.floor == 2
    [warning] = one.one.warnings(one.now)
    assert warning.startswith("profile middle cannot be loaded: ")


@pytest.mark.parametrize("fault", ["damaged", "missing"])
def test_a_bad_file_of_the_best_profile_at_the_start(tmp_path: Path, rig: Callable[..., Rig], fault: str) -> None:
    config = configured(tmp_path, BIG, SMALL)
    Path(config.profiles[0].model or "").write_bytes(b"GGUFxxxx" * (fault == "damaged"))
    if fault == "missing":
        Path(config.profiles[0].model or "").unlink()
    one = rig(config)
    one.one.begin()
    one.up()
    assert one.one.plan.index == 1
    assert "profile big cannot be loaded" in one.one.warnings(one.now)[0]


def test_profiles_of_one_bad_file_are_not_looked_at_one_by_one(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "middle", SMALL, "last")
    same = config.profiles[0].model
    two, three = (msgspec.structs.replace(config.profiles[n], model=same) for n in (1, 2))
    config = msgspec.structs.replace(config, profiles=[config.profiles[0], two, three, config.profiles[3]])
    damaged(config, 0)
    one = rig(config)
    one.one.begin()
    one.up()
    assert stepped(one) == [("big", "last")]


def test_the_next_try_begins_with_the_best(tmp_path: Path, rig: Callable[..., Rig], monkeypatch) -> None:
    """After the window, and when a file changes that was bad, wherever in the list it is."""
    monkeypatch.setattr(line, "FILE_LOOK_S", 0.02)
    config = configured(tmp_path, BIG, "middle", "last load=die")
    damaged(config, 0, 1)
    one = rig(config)
    one.one.begin()
    assert one.saw(GaveUp).until < one.now + 5
    assert (one.one.step, one.one.plan.index, one.one.descent.floor) == (Step.GIVEN_UP, 0, 0)
    assert one.saw(Looking).until < one.now + 5
    tiny_gguf(Path(config.profiles[1].model or ""))
    one.up()
    assert one.one.plan.profile.name == "middle"

    again = configured(tmp_path, BIG, restart={"max": 0, "window_s": 0.3})
    two = rig(again)
    damaged(again, 0)
    two.one.begin()
    two.saw(GaveUp)
    file = os.stat(again.profiles[0].model or "")
    tiny_gguf(Path(again.profiles[0].model or ""))
    monkeypatch.setattr(rejects, "signature", lambda _: (8, file.st_mtime_ns, file.st_ino))  # as if it were the same
    two.up()


@pytest.mark.parametrize("healed", ["reload", "hangup"])
def test_an_operator_heals_it_from_the_best(tmp_path: Path, rig: Callable[..., Rig], healed: str) -> None:
    config = configured(tmp_path, BIG, "middle", SMALL)
    damaged(config, 0, 1, 2)
    one = rig(config)
    one.one.begin()
    one.saw(GaveUp)
    assert one.one.wanted.index == 0  # what an operator's wish without a name is for
    tiny_gguf(Path(config.profiles[0].model or ""))
    if healed == "reload":
        one.replace(config, one.one.wanted.index)
    else:
        one.one.reconfigure(one.one.wanted, one.now)
    one.up()
    assert one.one.plan.index == 0


def test_a_pinned_profile_with_a_bad_file_is_not_left(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "middle", SMALL)
    damaged(config, 1)
    one = rig(config)
    one.one.pinned = True
    one.one.load(Plan(config, 1))
    one.one.begin()
    one.saw(GaveUp)
    assert one.one.plan.index == 1


def test_heat_and_recovery_lead_around_a_bad_file(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "middle", SMALL)
    damaged(config, 1)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1, "heat")
    one.run(lambda: one.one.wanted.index == 2)
    beside = one.one.change
    one.replace(config, 1, "heat")  # the watchdog says so at each look
    assert one.one.change is beside
    one.up()
    assert one.one.plan.index == 2
    one.one.descent.down(2)
    one.replace(config, 1, "recovery")
    one.up()
    assert (one.one.plan.index, one.one.descent.floor) == (0, 0)
    one.replace(config, 1)  # an operator means it
    assert one.saw(Kept).wanted == 1


@pytest.mark.parametrize("known", [False, True])
def test_a_pinned_profile_with_a_bad_file_leads_to_no_other(
    tmp_path: Path, rig: Callable[..., Rig], known: bool
) -> None:
    config = configured(tmp_path, BIG, "middle", SMALL)
    damaged(config, 1)
    one = rig(config)
    one.one.load(Plan(config, 2))
    one.one.begin()
    one.up()
    one.one.pinned = True
    one.replace(config, 1, "profile" if known else "recovery")
    one.saw(Kept)
    one.replace(config, 1, "recovery")  # the watchdog says so at each look
    assert one.one.change is None
    assert one.one.wanted.index == 2
    tiny_gguf(Path(config.profiles[1].model or ""))
    one.replace(config, 1, "recovery")
    one.up()
    assert one.one.plan.index == 1


# ---- hanging --------------------------------------------------------------------------------------------------------


def test_a_stopped_worker_with_work_is_stalled_an_idle_one_never(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    one = rig(configured(tmp_path, BIG, stall_s=0.1))
    one.one.begin()
    one.up()
    os.kill(one.pid, signal.SIGSTOP)
    end = time.monotonic() + 0.3
    one.run(lambda: time.monotonic() > end)
    assert not one.seen
    one.work = True
    assert one.saw(Lost) == Lost("stalled", up=True)
    assert one.one.last_exit is not None
    assert one.one.last_exit["cause"] == "stalled"


def test_one_that_is_stopped_while_it_loads_is_stalled(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    one = rig(configured(tmp_path, "big load=never", stall_s=0.05))
    one.one.begin()
    one.run(lambda: one.one.step is Step.LOADING)
    os.kill(one.pid, signal.SIGSTOP)
    assert one.saw(Lost) == Lost("stalled", up=False)


# ---- another configuration ------------------------------------------------------------------------------------------


def test_the_same_configuration_replaces_nothing(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL)
    one = rig(config)
    one.one.begin()
    one.up()
    assert not one.one.reconfigure(Plan(configured_again(config), 0), one.now)
    assert one.one.change is None


def configured_again(config: Config, **profile: Any) -> Config:
    profiles = [{**parse_profile(config, n), **profile} for n in range(len(config.profiles))]
    rules = {"root": config.watchdog.root, "stall_s": 7}
    data = {"state_dir": config.state_dir, "runtime_dir": config.runtime_dir, "profiles": profiles, "watchdog": rules}
    return parse(data, "test")


def test_another_context_replaces_the_worker(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL)
    one = rig(config)
    one.one.begin()
    one.up()
    assert one.one.reconfigure(Plan(configured_again(config, context=512), 0), one.now)
    one.saw(Replaced)
    assert one.one.ready is not None
    assert one.one.ready.context == 512


def test_a_changed_file_replaces_the_worker(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG)
    one = rig(config)
    one.one.begin()
    one.up()
    path = Path(config.profiles[0].model or "")
    tiny_gguf(path.with_suffix(".new")).rename(path)
    assert one.one.reconfigure(Plan(configured_again(config), 0), one.now)
    one.saw(Replaced)


def test_back_to_the_old_configuration_while_the_new_one_loads(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, "slow load=30", room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    pid = one.pid
    slow = with_profiles(config, [parse_profile(config, 1)])
    assert one.one.reconfigure(Plan(slow, 0), one.now)
    one.saw(Replacing)
    assert not one.one.reconfigure(Plan(config, 0), one.now)
    one.run(lambda: len(one.one.processes()) == 1)
    assert (one.pid, one.one.change) == (pid, None)


def test_a_change_of_model_while_the_old_one_is_checked_starts_the_new_one(
    tmp_path: Path, rig: Callable[..., Rig]
) -> None:
    old, new = configured(tmp_path, "old"), configured(tmp_path, "new")
    one = rig(old)
    one.one.begin()
    one.one.reconfigure(Plan(new, 0), one.now)
    one.up()
    assert one.one.plan.path == new.profiles[0].model
    assert one.one.crew.starts == 1


def test_a_new_configuration_ends_given_up(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    one = rig(configured(tmp_path, "bad load=die"))
    one.one.begin()
    one.saw(GaveUp)
    one.one.reconfigure(Plan(configured(tmp_path, "good"), 0), one.now)
    one.up()


def test_a_hash_is_that_of_the_file_that_serves(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL, room_mb=2000)
    Path(config.profiles[1].model or "").write_bytes(Path(config.profiles[0].model or "").read_bytes() + b"\0" * 32)
    one = rig(config)
    one.one.begin()
    one.run(lambda: one.one.step is Step.UP and one.one.sha256)
    before = one.one.sha256
    one.replace(config, 1)
    one.saw(Replaced)
    one.run(lambda: one.one.sha256)
    assert one.one.sha256 not in (None, before)


def test_the_old_one_dies_while_the_new_file_is_looked_at(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    config = configured(tmp_path, BIG, SMALL, room_mb=2000)
    one = rig(config)
    one.one.begin()
    one.up()
    one.replace(config, 1)
    os.kill(one.pid, signal.SIGKILL)
    select.select([one.one.worker.pidfd], [], [], 30)
    one.saw(Replaced)
    assert (one.one.plan.index, one.one.deaths) == (1, 1)


def test_a_bad_configuration_while_the_first_one_loads(tmp_path: Path, rig: Callable[..., Rig]) -> None:
    one = rig(configured(tmp_path, "big load=0.3"))
    one.one.begin()
    one.run(lambda: one.one.step is Step.LOADING)
    bad = configured(tmp_path, "bad")
    Path(bad.profiles[0].model or "").write_bytes(b"")
    one.one.reconfigure(Plan(bad, 0), one.now)
    one.saw(Kept)
    one.up()
    assert one.one.plan.profile.name == BIG
