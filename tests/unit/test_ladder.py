"""What is done about a level: profiles up and down, unloading, pacing; and how often at most."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.config_watchdog import Pacing, Watchdog
from edged.messages import Pace
from edged.watchdog.ladder import Course, Ladder
from edged.watchdog.policy import Policy, Verdict
from edged.watchdog.readings import Readings
from unit.test_policy import CRITICAL, HOT, NORMAL, WARM, board, rules_at_random, spells

UNPACED = Watchdog(pacing=Pacing(knobs=[]))


class Rig:
    """Policy and ladder, one sample a second; a reload is done at once."""

    def __init__(self, rules: Watchdog = UNPACED, profiles: int = 3) -> None:
        self.policy, self.ladder = Policy(rules), Ladder(rules, profiles)
        self.now = 1000.0
        self.reloads: list[tuple[float, int, bool]] = []
        self.last = Course()
        self.verdict: Verdict | None = None

    def see(self, readings: Readings, times: int = 1) -> Course:
        for _ in range(times):
            self.now += 1
            self.verdict = self.policy.observe(readings, self.now)
            course = self.ladder.course(self.verdict, readings, self.now)
            if (course.profile, course.loaded) != (self.last.profile, self.last.loaded):
                self.reloads.append((self.now, course.profile, course.loaded))
                self.ladder.changed(course.profile, self.now)
            self.last = course
        return course


def test_at_rest():
    assert Rig().see(board(), 1000) == Course()


def test_hot_steps_down_as_long_as_it_stays_hot_and_comes_back_step_by_step():
    rig = Rig()
    assert rig.see(board(80), 2).profile == 0
    course = rig.see(board(80))
    assert course.profile == 1
    assert course.why == "80.0 °C for 3 samples (hot from 79)"
    assert rig.see(board(80), 59).profile == 1
    assert rig.see(board(80)).profile == 2
    rig.see(board(80), 600)
    assert len(rig.reloads) == 2  # nothing smaller
    rig.see(board(60), 62)
    assert rig.verdict.level is NORMAL
    assert rig.last.profile == 2
    rig.see(board(60), 31)
    assert rig.last.profile == 1
    rig.see(board(60), 60)
    assert rig.last.profile == 0


def test_one_profile_only():
    rig = Rig(profiles=1)
    rig.see(board(80), 500)
    assert rig.reloads == []
    assert rig.verdict.level is HOT


def test_memory_reloads_and_shrinks_once_per_worse_level():
    rig = Rig(Watchdog())
    courses = [rig.see(board(50, 500)) for _ in range(20)]
    assert [c.shrink for c in courses] == [False, False, True] + [False] * 17
    assert rig.last.profile == 0
    assert rig.see(board(50, 300), 3).shrink
    assert rig.last.profile == 1
    assert rig.last.pace == Pace()


def test_critical_unloads_and_loads_again_smaller():
    rig = Rig()
    course = rig.see(board(90), 3)
    assert (course.loaded, course.profile) == (False, 1)
    assert course.why.startswith("unloaded: 90.0 °C")
    rig.see(board(76), 200)
    assert rig.verdict.level is HOT
    assert not rig.last.loaded
    rig.see(board(71), 31)
    assert rig.verdict.level is WARM
    assert (rig.last.loaded, rig.last.profile) == (True, 1)


def test_a_profile_that_presses_by_itself_does_not_come_and_go():
    """The best profile leaves 300 MB, the next 2000."""
    rig = Rig(profiles=2)
    for _ in range(6 * 3600):
        rig.see(board(50, 300 if rig.last.profile == 0 else 2000))
    assert len(rig.reloads) <= 22  # seven waits from one minute to an hour, then one an hour, twice each
    waits = [b[0] - a[0] for a, b in zip(rig.reloads, rig.reloads[1:], strict=False) if b[1] == 0]
    assert waits == sorted(waits)


def test_a_step_up_that_lasted_is_no_mistake():
    rig = Rig(profiles=2)
    for _ in range(2 * 3600):
        rig.see(board(50, 300 if rig.last.profile == 0 else 2000))
    rig.see(board(), 2 * 3600)
    assert rig.last.profile == 0
    rig.see(board(80), 3)
    assert rig.last.profile == 1
    rig.see(board(), 130)
    assert rig.last.profile == 0


def test_a_model_too_big_to_be_loaded_at_all_is_tried_ever_more_rarely():
    rig = Rig(profiles=1)
    for _ in range(3600):
        rig.see(board(50, 150 if rig.last.loaded else 2000))
    assert len([1 for _, _, loaded in rig.reloads if loaded]) <= 10


class Broken(Rig):
    """Some profiles do not come up."""

    def __init__(self, broken: set[int], at: int = 0, profiles: int = 3) -> None:
        super().__init__(profiles=profiles)
        self.broken, self.tries, self.serves = broken, [], at
        self.ladder.changed(at, self.now - 60)
        self.last = Course(profile=at)

    def see(self, readings: Readings, times: int = 1) -> Course:
        for _ in range(times):
            self.now += 1
            self.verdict = self.policy.observe(readings, self.now)
            self.last = self.ladder.course(self.verdict, readings, self.now)
            if self.last.profile != self.serves:
                self.tries.append((self.now, self.last.profile))
                if self.last.profile in self.broken:
                    self.ladder.failed(self.last.profile, self.serves, self.now)
                else:
                    self.serves = self.last.profile
                    self.ladder.changed(self.serves, self.now)
        return self.last


def test_a_better_profile_that_does_not_come_up_is_tried_ever_more_rarely():
    rig = Broken({0}, at=1, profiles=2)
    rig.see(board(), 6 * 3600)
    waits = [b[0] - a[0] for a, b in itertools.pairwise(rig.tries)]
    assert waits[:6] == [120, 240, 480, 960, 1920, 3840]
    assert set(waits[6:]) == {3840}
    assert rig.serves == 1
    rig.broken = set()
    rig.ladder.forgive()
    rig.see(board(), 61)
    assert rig.serves == 0


def test_one_that_failed_once_and_came_up_is_as_good_as_any():
    rig = Broken({0}, at=1, profiles=2)
    rig.see(board(), 200)
    rig.broken = set()
    rig.see(board(), 600)
    assert rig.serves == 0
    rig.see(board(80), 3)
    rig.broken = {0}
    rig.see(board(), 400)
    last = [at for at, profile in rig.tries if profile == 0][-2:]
    assert last[1] - last[0] == 120


def test_the_next_smaller_one_when_one_does_not_come_up_and_so_on_the_way_back():
    rig = Broken({1})
    rig.see(board(50, 300), 4)
    assert rig.tries == [(1003.0, 1), (1004.0, 2)]
    rig.see(board(), 3600)
    assert rig.serves == 0
    assert len(rig.tries) <= 5


def test_with_none_that_comes_up_the_tries_are_few():
    rig = Broken({1, 2})
    rig.see(board(50, 300), 6 * 3600)
    assert rig.serves == 0
    assert len(rig.tries) <= 2 * 12


def test_nothing_better_before_the_last_one_is_there():
    rig = Rig()
    rig.ladder.changed(2, rig.now)
    rig.last = Course(profile=2)
    rig.ladder.changing(changing=True)
    assert rig.see(board(), 600).profile == 2
    assert rig.see(board(50, 300), 3).profile == 2
    rig.see(board(), 120)
    rig.ladder.changing(changing=False)
    assert rig.see(board(), 2).profile == 1


def test_other_rules_forget_nothing_of_the_worker_and_the_board():
    rig = Rig(Watchdog(pacing=Pacing(knobs=["threads"])))
    rig.ladder.threads(4)
    rig.see(board(90), 3)
    rig.see(board(79), 60)
    before = rig.ladder.effort
    assert before < 1
    rig.ladder.reconfigure(Watchdog(stall_s=9, pacing=Pacing(knobs=["threads"])), 3)
    course = rig.see(board(79))
    assert (course.loaded, course.profile) == (False, 1)
    assert abs(rig.ladder.effort - before) < 0.1
    assert course.pace.threads in (1, 2, 3)
    rig.ladder.reconfigure(Watchdog(pacing=Pacing(knobs=["duty"])), 1)
    course = rig.see(board(79))
    assert (course.loaded, course.profile, course.pace.threads) == (False, 0, 0)


def test_an_operator_does_not_wait_for_what_is_unloaded():
    rig = Rig(Watchdog(reload_s=300))
    rig.see(board(90), 3)
    rig.see(board(50), 70)
    assert (rig.verdict.level, rig.last.loaded) == (WARM, False)
    assert rig.ladder.load_due() == 1000 + 3 + 300
    rig.ladder.load(rig.now)
    assert rig.see(board(50)).loaded


def test_pinned():
    rig = Rig()
    rig.ladder.pinned(2)
    assert rig.see(board()).profile == 2
    assert rig.see(board(), 500).profile == 2
    rig.ladder.pinned(0)
    assert rig.see(board(80), 500).profile == 0
    assert rig.see(board(90), 3).loaded is False
    rig.see(board(50), 200)
    assert (rig.last.loaded, rig.last.profile) == (True, 0)
    rig.ladder.pinned(None)
    assert rig.see(board(80), 100).profile >= 1


def test_pacing_with_reach_is_no_reason_to_reload():
    rig = Rig(Watchdog(), profiles=2)
    rig.ladder.threads(4)
    rig.ladder.frequencies([600_000, 1_200_000, 1_800_000])
    rig.see(board(81), 3)
    assert rig.verdict.level is HOT
    assert rig.last.profile == 0
    rig.see(board(77), 20)  # not hot to the eye, though the level holds
    assert rig.last.profile == 0
    rig.see(board(81), 30)
    assert rig.last.profile == 0
    rig.see(board(81), 1)
    assert rig.last.profile == 1  # pacing has not got it below in hold_s
    assert rig.ladder.effort < 1


def test_pacing_at_its_end_reloads_at_once():
    rig = Rig(Watchdog(pacing=Pacing(least_duty=1.0, knobs=["duty"])), profiles=2)
    assert rig.see(board(79), 3).profile == 1


def test_while_hot_it_aims_below_where_hot_is_left():
    rig = Rig(Watchdog())
    rig.ladder.threads(4)
    rig.see(board(80), 3)
    rig.see(board(74), 15)
    before = rig.ladder.effort
    rig.see(board(74), 10)  # below the usual target
    assert rig.ladder.effort < before


def test_throttled_while_cool_is_paced():
    rig = Rig(Watchdog())
    rig.ladder.threads(4)
    rig.see(board(66, soft_limit=True), 60)
    assert rig.ladder.effort < 1


def test_without_a_sensor_half_the_power():
    rig = Rig(Watchdog())
    rig.ladder.threads(4)
    rig.see(board(60))
    rig.see(board(None), 300)
    assert rig.ladder.effort == 0.5
    assert rig.last.pace.threads == 2
    rig.see(board(60), 200)
    assert rig.last.pace == Pace()
    box = Rig(Watchdog())
    assert box.see(board(None, missing=["temperature"]), 300).pace == Pace()


def test_knobs_in_the_order_configured():
    def least(knobs, frequencies) -> Course:
        rig = Rig(Watchdog(pacing=Pacing(knobs=knobs, least_duty=0.5)), profiles=1)
        rig.ladder.threads(3)
        rig.ladder.frequencies(frequencies)
        return rig.see(board(81), 600)

    clocks = [1_500_000, 600_000]
    assert least(["frequency"], clocks).frequency_khz == 600_000
    assert least(["frequency"], []).frequency_khz is None
    assert least(["threads"], clocks) == least(["threads"], [])
    assert least(["threads"], []).pace == Pace(threads=1)
    assert least(["duty"], clocks).pace == Pace(duty=0.5)
    assert least(["duty", "threads"], clocks).pace == Pace(duty=0.5, threads=1)
    first = Rig(Watchdog(pacing=Pacing(knobs=["duty", "threads"])), profiles=1)
    first.ladder.threads(3)
    paces = [first.see(board(79)).pace for _ in range(400)]
    assert [p.threads for p in paces if p.duty > 0.3] == [0] * len([p for p in paces if p.duty > 0.3])


def test_a_step_of_the_sensor_moves_no_knob_back_and_forth():
    rig = Rig(Watchdog())
    rig.ladder.threads(4)
    rig.ladder.frequencies(list(range(600_000, 1_900_000, 100_000)))
    rig.see(board(78), 20)
    seen = [rig.see(board(76 + n % 2 * 2)).frequency_khz for n in range(600)]
    assert sum(a != b for a, b in itertools.pairwise(seen)) < 60


@settings(max_examples=25)
@given(spells=spells, rules=rules_at_random, profiles=st.integers(1, 3), threads=st.integers(1, 4))
def test_nothing_makes_it_reload_often(spells, rules, profiles, threads):
    """Two changes that are no unload are reload_s apart, and so are two unloads; paces stay in their bounds."""
    policy, ladder, now = Policy(rules), Ladder(rules, profiles), 0.0
    ladder.threads(threads)
    ladder.frequencies([600_000, 1_000_000])
    last, changed_at = Course(), float("-inf")
    unloads: list[float] = []
    for readings, times, step in spells:
        for _ in range(times):
            now += step
            verdict = policy.observe(readings, now)
            course = ladder.course(verdict, readings, now)
            if (course.profile, course.loaded) != (last.profile, last.loaded):
                if course.loaded:
                    assert now - changed_at >= rules.reload_s
                else:
                    assert verdict.level is CRITICAL
                    assert not unloads or now - unloads[-1] >= rules.reload_s
                    unloads.append(now)
                assert abs(course.profile - last.profile) <= 1
                ladder.changed(course.profile, now)
                changed_at = now
            assert 0 <= course.profile < profiles
            assert course.loaded or verdict.level >= NORMAL
            assert rules.pacing.least_duty <= course.pace.duty <= 1
            assert 0 <= course.pace.threads < max(2, threads)
            last = course
    for _ in range(int(3 * rules.hold_s + 70 * profiles * (max(rules.hold_s, rules.reload_s) + 5)) // 5):
        now += 5
        course = ladder.course(policy.observe(board(), now), board(), now)
    assert (course.profile, course.loaded, course.pace) == (0, True, Pace())
