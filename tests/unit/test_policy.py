"""Levels: each rule alone, and no sequence of readings makes them flap."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.config_watchdog import Heat, Memory, Watchdog
from edged.errors import Code
from edged.level import Level
from edged.watchdog.policy import MB, Policy, Verdict
from edged.watchdog.readings import Readings
from edged.watchdog.refusal import Refusal, refusal

RULES = Watchdog()
NORMAL, WARM, HOT, CRITICAL = Level


def board(temperature: float | None = 50.0, available_mb: float = 3000, **more: object) -> Readings:
    fields = {"memory_total": 4000 * MB, "memory_available": int(available_mb * MB), **more}
    return Readings(temperature_c=temperature, **fields)  # type: ignore[arg-type]


class Rig:
    """A policy, one sample a second."""

    def __init__(self, rules: Watchdog = RULES) -> None:
        self.policy = Policy(rules)
        self.now = 100.0

    def see(self, readings: Readings, times: int = 1) -> Verdict:
        for _ in range(times):
            self.now += 1
            verdict = self.policy.observe(readings, self.now)
        return verdict


@pytest.mark.parametrize(
    ("readings", "level"),
    [
        (board(69.9), NORMAL),
        (board(70), WARM),
        (board(78.9), WARM),
        (board(79), HOT),
        (board(84), CRITICAL),
        (board(50, throttled=True), HOT),
        (board(50, soft_limit=True), HOT),
        (board(50, capped=True), NORMAL),
        (board(50, under_voltage=True), NORMAL),
        (board(50, under_voltage=True, throttled=True), NORMAL),  # 0x50005: the supply's doing
        (board(72, under_voltage=True, throttled=True), HOT),
        (board(None, missing=["temperature"]), NORMAL),
        (board(None), WARM),  # a zone is there and talks nonsense
        (board(50, 601), NORMAL),
        (board(50, 599), WARM),
        (board(50, 349), HOT),
        (board(50, 199), CRITICAL),
        (board(50, 599, psi_some10=20.0), HOT),
        (board(50, 2000, psi_some10=90.0), NORMAL),  # somebody else's thrashing
        (board(50, 349, swap_total=100, swap_free=4), CRITICAL),
        (board(50, 599, swap_total=100, swap_free=4), WARM),
        (board(50, 349, swap_total=0, swap_free=0), HOT),
        (board(50, 3000, cgroup_max=1000 * MB, cgroup_current=950 * MB), CRITICAL),
        (board(50, 3000, cgroup_max=8000 * MB, cgroup_current=7999 * MB), NORMAL),
        (board(71, 349), HOT),  # the worse rules
    ],
)
def test_what_makes_a_level(readings, level):
    rig = Rig()
    assert rig.see(readings, 2).level is NORMAL
    assert rig.see(readings).level is level
    assert rig.see(readings, 600).level is level


def test_one_sample_alone_is_noise():
    rig = Rig()
    for _ in range(50):
        rig.see(board(60))
        assert rig.see(board(99, 10, throttled=True), 2).level is NORMAL


def test_words():
    rig = Rig()
    verdict = rig.see(board(81), 3)
    assert verdict.why == "81.0 °C for 3 samples (hot from 79)"
    assert verdict.back == "below 74 °C for 30 s"
    assert verdict.since == rig.now
    verdict = Rig().see(board(50, 340), 3)
    assert verdict.why == "340 MB available for 3 samples (hot below 12 % or 350 MB)"
    assert verdict.back == "496 MB available for 30 s"
    assert Rig().see(board(50, under_voltage=True)).alarms == ["under-voltage: check the power supply"]
    assert Rig().see(board(50, capped=True)).alarms == ["the firmware holds the clock down"]
    assert Rig().see(board(50, alarms=["x"])).alarms == ["x"]


PSI = {"psi_some10": 60.0}
SWAP = {"swap_total": 100, "swap_free": 1}


@pytest.mark.parametrize(
    ("first", "readings", "back"),
    [
        (board(81), board(81), "below 74 °C"),
        (board(60, throttled=True), board(60, throttled=True), "no longer throttled"),
        (board(76, throttled=True), board(76, throttled=True), "no longer throttled and below 74 °C"),
        (board(60, soft_limit=True), board(60, soft_limit=True), "no longer at the soft temperature limit"),
        (board(90, throttled=True), board(90, throttled=True), "below 79 °C"),
        (board(60, throttled=True), board(60), "below 74 °C"),
        (board(None), board(None), "a temperature again, below 65 °C"),
        (board(81), board(None), "no heat seen"),
        (board(50, 340), board(50, 340), "496 MB available"),
        (
            board(50, 550, **PSI),
            board(50, 550, **PSI),
            "less than 20 % of the time waited for memory, or 750 MB available,",
        ),
        (
            board(50, 340, **PSI),
            board(50, 340, **PSI),
            "496 MB available and less than 20 % of the time waited for memory, or 750 MB available,",
        ),
        (board(50, 340, **SWAP), board(50, 439, **SWAP), "more than 5 % of the swap free, or 496 MB available,"),
        (
            board(50, 340, **SWAP),
            board(50, 340, **SWAP),
            "367 MB available and more than 5 % of the swap free, or 496 MB available,",
        ),
        (board(50, 340), Readings(temperature_c=50.0), "a reading of the memory again"),
        (board(81, 300), board(81, 300), "below 74 °C and 496 MB available"),
        (board(81, 500), board(81, 500), "below 74 °C"),
    ],
)
def test_what_would_bring_it_back(first, readings, back):
    rig = Rig()
    rig.see(first, 3)
    assert rig.see(readings).back == f"{back} for 30 s"


def test_heat_and_memory_are_both_told():
    verdict = Rig().see(board(81, 340), 3)
    assert verdict.why.split("; ") == [
        "81.0 °C for 3 samples (hot from 79)",
        "340 MB available for 3 samples (hot below 12 % or 350 MB)",
    ]
    assert (refusal(verdict).code, refusal(verdict).level) == (Code.OVERHEATED, HOT)
    assert refusal(verdict).why.startswith("the board is too hot and short of memory: 81.0 °C")
    memory = refusal(Rig().see(board(72, 340), 3))
    assert (memory.code, memory.why.partition(":")[0]) == (Code.LOW_MEMORY, "the board is short of memory")
    assert refusal(Rig().see(board(72), 3)) == Refusal(WARM)


def test_no_threshold_is_named_that_was_not_passed():
    assert Rig().see(board(60, throttled=True), 3).why == "60.0 °C, throttled by its firmware for 3 samples (hot)"
    assert Rig().see(board(None), 3).why == "no temperature for 3 samples (warm)"
    assert Rig().see(board(50, 550, **PSI), 3).why.endswith("waited for memory for 3 samples (hot)")
    assert Rig().see(board(50, 340, **SWAP), 3).why.endswith("swap exhausted for 3 samples (critical)")
    assert Rig().see(board(80, throttled=True), 3).why.endswith("(hot from 79)")


def test_with_other_rules_a_level_stays_until_it_is_left_by_them():
    rig = Rig()
    rig.see(board(81), 3)
    rig.policy.reconfigure(Watchdog(heat=Heat(warm_c=90, hot_c=95, critical_c=100), hold_s=10))
    assert [rig.see(board(81)).level for _ in range(22)] == [HOT] * 10 + [WARM] * 10 + [NORMAL] * 2
    rig.policy.reconfigure(RULES)
    assert rig.see(board(81), 3).level is HOT


def test_a_level_is_left_below_the_hysteresis_for_a_while_and_one_at_a_time():
    rig = Rig()
    assert rig.see(board(90), 3).level is CRITICAL
    assert rig.see(board(80), 100).level is CRITICAL  # above 79
    assert rig.see(board(60), 30).level is CRITICAL
    assert rig.see(board(80)).level is CRITICAL  # the hold begins again
    seen = [rig.see(board(60)).level for _ in range(95)]
    assert seen == [CRITICAL] * 30 + [HOT] * 30 + [WARM] * 30 + [NORMAL] * 5


def test_memory_is_left_in_proportion():
    rig = Rig()
    assert rig.see(board(50, 340), 3).memory is HOT
    assert rig.see(board(50, 495), 60).memory is HOT
    assert rig.see(board(50, 500), 31).memory is WARM
    assert rig.see(board(50, 749), 60).memory is WARM
    assert rig.see(board(50, 751), 31).memory is NORMAL


def test_percent_counts_on_a_small_board():
    small = {"memory_total": 1000 * MB}
    assert Rig().see(Readings(memory_available=210 * MB, missing=["temperature"], **small), 9).level is NORMAL
    assert Rig().see(Readings(memory_available=190 * MB, missing=["temperature"], **small), 9).level is WARM


def test_a_sensor_that_goes_and_comes():
    rig = Rig()
    rig.see(board(50))
    assert rig.see(board(None), 2).level is NORMAL
    assert rig.see(board(None)).level is WARM
    assert rig.see(board(None), 500).level is WARM
    assert rig.see(board(50), 31).level is NORMAL
    assert rig.see(board(90), 3).level is CRITICAL
    assert rig.see(board(None), 200).level is WARM


def test_no_meminfo_keeps_the_level():
    rig = Rig()
    rig.see(board(50, 340), 3)
    assert rig.see(Readings(temperature_c=50.0), 500).memory is HOT


def test_a_saw_at_a_threshold_is_one_transition():
    for threshold, changes in ((70, 1), (79, 2), (84, 2)):  # 78 is warm, 83 hot already
        rig = Rig()
        seen = [rig.see(board(threshold + (1 if n // 4 % 2 else -1))).level for n in range(4000)]
        assert sum(a is not b for a, b in zip([NORMAL, *seen], seen, strict=False)) == changes


def test_up_and_down_a_ramp_each_level_once():
    rig = Rig()
    up = [60 + n / 10 for n in range(300)]
    seen = [rig.see(board(value)).level for value in [*up, *reversed(up), *[60.0] * 120]]
    steps = [level for before, level in itertools.pairwise(seen) if level is not before]
    assert steps == [WARM, HOT, CRITICAL, HOT, WARM, NORMAL]


readings_at_random = st.builds(
    Readings,
    temperature_c=st.none() | st.sampled_from([60.0, 64.0, 66.0, 69.0, 71.0, 74.0, 77.0, 79.0, 83.0, 85.0]),
    throttled=st.none() | st.booleans(),
    soft_limit=st.none() | st.booleans(),
    under_voltage=st.none() | st.booleans(),
    memory_total=st.none() | st.just(4000 * MB),
    memory_available=st.none() | st.sampled_from([150, 210, 340, 400, 500, 590, 700, 2000]).map(lambda mb: mb * MB),
    psi_some10=st.none() | st.sampled_from([0.0, 19.0, 50.0]),
    swap_total=st.sampled_from([None, 0, 100]),
    swap_free=st.sampled_from([None, 0, 50]),
    missing=st.sampled_from([[], ["temperature"]]),
)
spells = st.lists(st.tuples(readings_at_random, st.integers(1, 40), st.floats(0.1, 5)), min_size=1, max_size=40)
rules_at_random = st.builds(
    Watchdog,
    hold_s=st.sampled_from([5.0, 30.0]),
    reload_s=st.sampled_from([10.0, 60.0]),
    heat=st.builds(Heat, samples=st.sampled_from([1, 3])),
    memory=st.builds(Memory, samples=st.sampled_from([1, 3])),
)


@settings(max_examples=60)
@given(spells=spells, rules=rules_at_random)
def test_nothing_makes_it_flap_and_it_comes_back(spells, rules):
    """Heat and memory change at most 3 + 2·T/hold_s times each; three holds after healing all is normal."""
    policy, now = Policy(rules), 0.0
    before = {"heat": NORMAL, "memory": NORMAL, "level": NORMAL}
    changes = dict.fromkeys(before, 0)
    for readings, times, step in spells:
        for _ in range(times):
            now += step
            verdict = policy.observe(readings, now)
            assert verdict.level is max(verdict.heat, verdict.memory)
            assert bool(verdict.why) == bool(verdict.back) == (verdict.level > NORMAL)
            assert "\n" not in verdict.why
            for name, level in before.items():
                after = getattr(verdict, name)
                changes[name] += after is not level
                assert after >= level - 1 or name == "level"
                before[name] = after
    bound = 3 + 2 * now / rules.hold_s
    assert changes["heat"] <= bound
    assert changes["memory"] <= bound
    assert changes["level"] <= 2 * bound
    healed = now
    while policy.observe(board(), now).level is not NORMAL:
        now += 1
        assert now - healed <= 3 * (rules.hold_s + 1)
