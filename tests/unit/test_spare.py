"""What is too much memory, who is suspected, who is guilty, and that nobody is troubled in vain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edged.watchdog.spare import (
    HEADROOM,
    HOLD_S,
    PATIENCE_S,
    RISE,
    SAMPLE_S,
    TIDY_S,
    Cut,
    Deed,
    Doubtful,
    Elsewhere,
    Guilty,
    Hunt,
    Innocent,
    Normal,
    Over,
    Rebind,
    Suspect,
    Tidy,
)

MB = 1 << 20
SPARE = 80 * MB


class Box:
    """A daemon that holds what its peers made it hold, and frees it when they are cut."""

    def __init__(self, held: dict[str, int], *, seen: tuple[str, ...] = (), freed_by_rebind: bool = True) -> None:
        self.held = held
        self.seen = seen
        self.late: dict[float, int] = {}  # freed by itself at a time
        self.freed_by_rebind = freed_by_rebind
        self.cut_frees = True
        self.normal, self.hunt = Normal(SPARE), Hunt()
        self.now = 0.0
        self.deeds: list[Deed] = []
        self.normal.read(20 * MB, 0.0)

    def run(self, seconds: float) -> list[Deed]:
        """The deeds of this while."""
        begun, end = len(self.deeds), self.now + seconds
        while self.now < end:
            self.now += SAMPLE_S
            late = sum(size for at, size in self.late.items() if at > self.now)
            self.normal.read(20 * MB + sum(self.held.values()) + late, self.now)
            if self.normal.over:
                self.hunt.begin(self.normal, self.now)
            if self.hunt.on:
                suspects = [Suspect(who, seen=who in self.seen) for who in self.held]
                for deed in self.hunt.step(self.normal, self.now, suspects):
                    self._do(deed)
        return self.deeds[begun:]

    def _do(self, deed: Deed) -> None:
        self.deeds.append(deed)
        if isinstance(deed, Cut) and self.cut_frees:
            self.held[deed.who] = 0
        if isinstance(deed, Rebind) and self.freed_by_rebind:
            self.held = dict.fromkeys(self.held, 0)


def test_normal_follows_down_at_once_and_up_slowly_to_a_ceiling() -> None:
    normal = Normal(SPARE)
    normal.read(30 * MB, 0)
    normal.read(20 * MB, 1)
    assert normal.value == 20 * MB
    normal.read(50 * MB, 2)
    assert normal.value == 20 * MB + RISE
    for hour in range(1, 100):
        assert not normal.read(normal.value + SPARE, 3600.0 * hour)
    assert normal.value == 30 * MB + HEADROOM
    assert normal.read(normal.value + SPARE + 1, 1e6)


def test_zero_does_not_look() -> None:
    normal = Normal(0)
    normal.read(20 * MB, 0)
    assert not normal.read(1 << 40, 1)


def test_a_crowded_queue_is_no_reason() -> None:
    assert Box({"a": 70 * MB}).run(5) == []


def test_who_was_seen_and_had_it_is_banned_at_once() -> None:
    box = Box({"flood": 200 * MB, "good": 0}, seen=("flood",))
    assert box.run(3) == [Cut("flood"), Guilty("flood"), Over()]
    assert not box.hunt.on


def test_the_innocent_are_let_go_and_the_search_goes_on() -> None:
    box = Box({"good": 0, "thief": 200 * MB})
    assert box.run(3) == [Cut("good"), Innocent("good"), Cut("thief"), Doubtful("thief"), Over()]
    box.held = {"thief": 200 * MB}
    assert box.run(3) == [Cut("thief"), Guilty("thief"), Over()]


def test_what_is_freed_late_makes_nobody_guilty() -> None:
    """The flood's own memory comes back while somebody else has its turn."""
    box = Box({"good": 0})
    box.late = {1.25: 200 * MB}
    assert box.run(4) == [Cut("good"), Doubtful("good"), Over()]


def test_what_is_known_to_be_freed_is_waited_for() -> None:
    box = Box({"good": 0})
    box.late = {1.25: 200 * MB}
    box.run(2 * SAMPLE_S)
    box.hunt.expect(box.now)
    assert box.run(4) == [Over()]


def test_what_falls_by_itself_is_left_alone() -> None:
    box = Box({"good": 0})
    box.late = {n / 10: 20 * MB for n in range(1, 12)}
    assert box.run(3) == [Over()]


def test_two_who_share_it_are_both_found() -> None:
    box = Box({"a": 150 * MB, "b": 150 * MB}, seen=("a", "b"))
    assert [deed for deed in box.run(5) if isinstance(deed, Guilty)] == [Guilty("a"), Guilty("b")]


def test_what_no_cut_frees_ends_with_sockets_bound_anew() -> None:
    box = Box({"hidden": 200 * MB})
    box.cut_frees = False
    assert box.run(5) == [Cut("hidden"), Innocent("hidden"), Rebind(), Over()]


def test_a_leak_of_our_own_is_not_hunted_for_ever() -> None:
    box = Box({"good": 0}, freed_by_rebind=False)
    box.late = {1e9: 200 * MB}
    assert box.run(5) == [Cut("good"), Innocent("good"), Rebind(), Elsewhere()]
    assert box.run(600) == [], "it is the new normal"
    box.late = {1e9: 400 * MB}
    first = box.run(5)
    assert first[-1] == Elsewhere()
    box.late = {1e9: 600 * MB}
    assert box.run(HOLD_S) == [], "twice as long the next time"


def test_while_it_rises_nobody_waits() -> None:
    box = Box({"flood": 90 * MB, "good": 0}, seen=("flood",))
    box.run(2 * SAMPLE_S)
    box.held["flood"] += 50 * MB
    assert box.run(SAMPLE_S) == [Cut("flood")]


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 300), max_size=4), st.booleans(), st.integers(0, 400))
def test_a_hunt_ends_and_ends_well(held: dict[str, int], rebind: bool, leak: int) -> None:
    box = Box({who: size * MB for who, size in held.items()}, freed_by_rebind=rebind)
    box.late = {1e9: leak * MB}
    box.run((len(held) + 2) * (PATIENCE_S + 1))
    assert not box.hunt.on
    assert not box.normal.over
    assert sum(isinstance(deed, Rebind) for deed in box.deeds) <= 1


def test_freed_memory_is_given_back_and_seldom_when_that_is_vain() -> None:
    normal, tidy = Normal(SPARE), Tidy()
    normal.read(20 * MB, 0)
    assert not tidy.due(normal, 10), "nothing more is used"
    trims, used, now = 0, 40 * MB, 10.0
    for _ in range(600):
        now += SAMPLE_S
        normal.value = 20 * MB
        normal.used = used
        trims += tidy.due(normal, now)
    assert 3 <= trims <= 6
    normal.used = used
    assert tidy.due(normal, now + 1000)
    normal.used = 20 * MB
    assert not tidy.due(normal, now + 1001)
    normal.used = 40 * MB
    assert tidy.due(normal, now + 1001 + TIDY_S), "it was of use: soon again"
