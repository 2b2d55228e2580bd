"""Subscriptions are counted, and whoever holds too much goes: nobody else, whoever came last."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from edged.broker import shares
from edged.broker.shares import IN_ALL, PER_CONNECTION, PER_IDENTITY, Excess, Shares


class Inside:
    """Which connections there are."""

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def living(self, connections: Collection[str]) -> list[str]:
        return [one for one in connections if one not in self.gone]


def fill(held: Shares, connection: str, identity: str, count: int) -> list[Excess]:
    found = (held.taken(connection, identity, b"%s-%d" % (connection.encode(), n)) for n in range(count))
    return [one for one in found if one is not None]


def test_a_topic_counts_once_for_a_connection() -> None:
    held = Shares(Inside().living)
    assert not any(held.taken("1", "bob", b"sys/x") for _ in range(2 * PER_CONNECTION))
    assert held.total == 1
    held.given_back("1", b"sys/x")
    held.given_back("1", b"sys/x")
    assert held.total == 0


def test_a_long_topic_counts_by_its_length() -> None:
    held = Shares(Inside().living)
    held.taken("1", "bob", b"x" * 640)
    assert held.total == 11


def test_too_many_on_one_connection() -> None:
    held = Shares(Inside().living)
    assert fill(held, "1", "bob", PER_CONNECTION) == []
    assert held.taken("1", "bob", b"more") == Excess("bob", ("1",), offence=True)


def test_too_many_of_one_caller_over_many_connections() -> None:
    held = Shares(Inside().living)
    per = PER_IDENTITY // 4
    for number in range(4):
        assert fill(held, str(number), "bob", per) == []
    assert held.taken("4", "bob", b"more") == Excess("bob", ("0", "1", "2", "3", "4"), offence=True)


def test_the_last_straw_is_not_to_blame() -> None:
    held = Shares(Inside().living)
    for number in range(4):
        assert fill(held, f"b{number}", "bob", PER_CONNECTION) == []
        assert fill(held, f"c{number}", "cleo", PER_CONNECTION - number) == []
    assert held.total == IN_ALL - 6
    found = fill(held, "a", "ada", 7)
    assert found == [Excess("bob", ("b0", "b1", "b2", "b3"), offence=False)]


def test_who_is_gone_holds_nothing() -> None:
    inside = Inside()
    held = Shares(inside.living)
    for number in range(20):
        assert fill(held, str(number), "bob", PER_CONNECTION) == []
        inside.gone.add(str(number))
    assert held.taken("a", "ada", b"sys/health") is None
    assert fill(held, "b", "bob", PER_CONNECTION) == [], "nor does the same caller pay for it"


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.sampled_from(["take", "give", "forget"]))))
def test_the_sums_are_right(steps: list[tuple[str, int, str]]) -> None:
    held, there = Shares(Inside().living), set()
    for connection, topic, what in steps:
        name = b"%d" % topic * 40
        if what == "take":
            held.taken(connection, connection.upper(), name)
            there.add((connection, topic))
        elif what == "give":
            held.given_back(connection, name)
            there.discard((connection, topic))
        else:
            held.forget([connection])
            there = {pair for pair in there if pair[0] != connection}
        assert held.total == len(there) * (1 + 40 // shares.UNIT)
