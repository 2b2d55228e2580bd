"""Who may come, who gives way, which handshakes are cut (protocol 11)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edged.system.links import Link
from edged.wire.connections import COME_IN, HASTE_S, Connections, Verdict
from edged.wire.door import kin


class House:
    """Connections, with a kernel that is told who is there."""

    def __init__(self, limit: int = 8, share: int = 4, handshakes: int = 2) -> None:
        self.rules = Connections(limit, share, handshakes)
        self.there: list[Link] = []
        self.now = 0.0
        self._inode = 0

    def comes(self, uid: int, pid: int, name: str = "request") -> Link:
        self.now += 0.001
        self._inode += 1
        link = Link(self._inode, self._inode, name, f"localhost:{uid}:0:{pid}", self.now)
        self.there.append(link)
        return link

    def asks(self, uid: int, pid: int) -> Verdict:
        link = self.comes(uid, pid)
        self.census()
        verdict = self.rules.admit(link.address, f"uid:{uid}", self.now)
        if verdict.refused is not None:
            self.there.remove(link)
        elif verdict.evict is not None:
            self.there.remove(self.rules.of([verdict.evict])[0])
        return verdict

    def census(self) -> None:
        self.now += 0.001
        self.rules.census(list(self.there), self.now)

    def leaves(self, pid: int) -> None:
        self.there = [link for link in self.there if not link.address.endswith(f":{pid}")]


def test_one_caller_has_no_more_than_its_share() -> None:
    house = House(share=3)
    assert [house.asks(1, 10 + n).refused is None for n in range(4)] == [True, True, True, False]
    assert house.asks(2, 20) == COME_IN


def test_who_left_gives_its_place_back() -> None:
    house = House(share=2)
    assert house.asks(1, 10) == house.asks(1, 11) == COME_IN
    assert house.asks(1, 12).refused
    house.leaves(10)
    assert house.asks(1, 12) == COME_IN
    assert house.rules.held() == {"uid:1": 2}


def test_a_newcomer_is_not_taken_for_one_that_left() -> None:
    """The number of connections is the same again, and yet one place is free."""
    house = House(share=2)
    house.asks(1, 10)
    house.asks(1, 10)
    house.there.pop()
    newcomer = house.comes(1, 10)
    house.census()
    assert house.rules.admit(newcomer.address, "uid:1", house.now).refused
    house.rules.arrived(newcomer.address)
    assert house.rules.admit(newcomer.address, "uid:1", house.now) == COME_IN
    house.rules.arrived("localhost:9:9:9")


def test_in_a_full_house_the_one_with_most_gives_way() -> None:
    house = House(limit=4, share=4)
    for n in range(4):
        assert house.asks(1, 10 + n) == COME_IN
    assert house.asks(2, 20).evict is not None
    assert house.asks(2, 21).evict is not None
    assert house.rules.held() == {"uid:1": 2, "uid:2": 2}
    assert house.asks(2, 22).refused, "now it has as many as the other"
    assert house.asks(3, 30).evict is not None
    assert house.rules.total() == 4


def test_who_gives_way_is_not_one_that_just_knocks() -> None:
    house = House()
    old = [house.comes(1, 10) for _ in range(3)]
    knocking = house.comes(1, 10)
    knocking = Link(9, 9, "request", knocking.address, knocking.since + 2)
    house.there[-1] = knocking
    house.census()
    assert house.rules.settled(knocking.address, knocking.since + 0.1)[0] == old[-1]
    assert house.rules.settled(knocking.address, knocking.since + 9)[0] == knocking


def test_a_hundred_of_one_do_not_keep_the_first_of_another_out() -> None:
    house = House(limit=100, share=100)
    for n in range(100):
        house.asks(1, n)
    assert house.asks(2, 1000).refused is None


def test_operators_are_not_counted() -> None:
    house = House(limit=2)
    for _ in range(50):
        house.comes(1, 10, name="control")
    assert house.asks(1, 11) == COME_IN
    assert house.rules.counts()["control"] == 50
    assert house.rules.idlers(house.now + 60, kin, short=True) == []


def test_an_admission_after_the_look_is_not_taken_for_one_that_is_over() -> None:
    house = House()
    before = house.now
    house.rules.admit("localhost:1:0:10", "uid:1", before + 1)
    house.rules.census([], before)
    assert house.rules.total() == 1
    house.rules.census([], before + 2)
    assert house.rules.total() == 0


def test_handshakes_of_one_user_beyond_the_most_are_cut_the_youngest_first() -> None:
    house = House(handshakes=2)
    house.asks(2, 20)
    quiet = [house.comes(1, 10 + n) for n in range(5)]
    house.census()
    assert house.rules.counts()["handshakes"] == 5
    assert house.rules.idlers(house.now, kin, short=False) == [], "they may be about to say something"
    cut = house.rules.idlers(house.now + HASTE_S, kin, short=False)
    assert len(cut) == 3
    assert set(cut) <= set(quiet)
    assert len(house.rules.idlers(house.now, kin, short=True)) == 4, "at once, and more of them, when it is narrow"


def test_who_was_turned_away_is_not_blamed_for_it() -> None:
    house = House(limit=4, share=2, handshakes=0)
    for n in range(2):
        house.asks(1, 10 + n)
    for n in range(3):
        link = house.comes(1, 20 + n)
        house.census()
        assert house.rules.admit(link.address, "uid:1", house.now).refused
    assert house.rules.idlers(house.now + HASTE_S, kin, short=False) == []
    assert len(house.rules.idlers(house.now + HASTE_S, kin, short=True)) == 3


def test_an_admitted_connection_is_none_of_them() -> None:
    house = House(handshakes=0, share=99, limit=99)
    for n in range(20):
        house.asks(1, 10 + n)
    house.census()
    assert house.rules.idlers(house.now + 60, kin, short=True) == []


def test_who_was_there_before_a_burst_at_its_address_is_not_cut_for_it() -> None:
    """However young the burst is: the only one that is old enough to be suspected is the honest one."""
    house = House(handshakes=64, limit=256, share=128)
    house.asks(1, 10)
    house.now += 10
    for _ in range(70):
        house.comes(1, 10)
    house.census()
    assert house.rules.idlers(house.now + 0.2, kin, short=False) == []
    assert house.there[0] not in house.rules.idlers(house.now + HASTE_S, kin, short=False)
    assert house.there[0] not in house.rules.idlers(house.now + HASTE_S, kin, short=True)


def test_who_said_something_is_never_taken_for_a_handshake_even_if_it_came_last() -> None:
    house = House(handshakes=2, limit=256, share=128)
    for _ in range(20):
        house.comes(1, 10)
    house.asks(1, 10)
    honest = house.there[-1]
    assert honest in house.rules.idlers(house.now + HASTE_S, kin, short=True), "nobody can tell yet"
    house.rules.spoke((honest.fd, honest.inode))
    house.census()
    for short in (True, False):
        cut = house.rules.idlers(house.now + HASTE_S, kin, short=short)
        assert honest not in cut
        assert len(cut) >= 18


@given(
    st.lists(
        st.tuples(st.sampled_from(["asks", "comes", "leaves"]), st.integers(1, 4), st.integers(0, 3)), max_size=60
    ),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_never_more_than_the_limits_and_the_poorest_is_served(
    steps: list[tuple[str, int, int]], limit: int, share: int
) -> None:
    house = House(limit=limit, share=share)
    for what, uid, number in steps:
        pid = 10 * uid + number
        if what == "leaves":
            house.leaves(pid)
            continue
        if what == "comes":
            house.comes(uid, pid)
            continue
        verdict = house.asks(uid, pid)
        if verdict.refused is not None:
            mine = house.rules.held()[f"uid:{uid}"]
            most = max(house.rules.held().values(), default=0)
            assert mine >= share or (house.rules.total() >= limit and most <= mine + 1)
        assert sum(house.rules.held().values()) <= limit
        assert max(house.rules.held().values()) <= share
    there = Counter(link.address for link in house.there)
    house.census()
    assert all(
        house.rules.held()[f"uid:{uid}"] <= sum(n for a, n in there.items() if kin(a) == f"uid:{uid}")
        for uid in range(5)
    )
