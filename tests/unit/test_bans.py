"""Who is refused, for how long, and when a whole identity is (protocol 4, 9)."""

from __future__ import annotations

from edged.wire.bans import _MOST, ARREST_S, BANNED, LATER, OFFENCES, STRIKES, STRIKES_S, Bans
from edged.wire.door import Offender, kin, names_of


def test_an_offence_bans_its_key_for_a_while() -> None:
    bans = Bans(60)
    assert not bans.offence("pid:7", "uid:1", 100)
    assert bans.status(("pid:7", "uid:1"), 159.9) == BANNED
    assert bans.status(("pid:8", "uid:1"), 101) is None
    assert bans.status(("pid:7", "uid:1"), 160) is None


def test_new_processes_of_one_user_do_not_go_on_for_ever() -> None:
    bans = Bans(60)
    whole = [bans.offence(f"pid:{n}", "uid:1", float(n)) for n in range(OFFENCES)]
    assert whole == [False] * (OFFENCES - 1) + [True]
    assert bans.status(("pid:99", "uid:1"), 5) == BANNED
    assert bans.status(("pid:99", "uid:2"), 5) is None


def test_offences_that_lie_far_apart_are_accidents() -> None:
    bans = Bans(60)
    assert not any(bans.offence(f"pid:{n}", "uid:1", 31.0 * n) for n in range(10))


def test_zero_is_no_ban() -> None:
    bans = Bans(0)
    for _ in range(5):
        bans.offence("pid:7", "uid:1", 0)
    bans.guilty("uid:1", 0)
    assert bans.status(("pid:7", "uid:1"), 0) is None
    assert not any(bans.strikes("uid:1", STRIKES, 0) for _ in range(3))


def test_an_arrest_is_short_and_can_be_ended() -> None:
    bans = Bans(60)
    bans.arrest("uid:1", 0)
    bans.arrest("uid:2", 0)
    bans.release("uid:2")
    assert bans.status(("pid:7", "uid:1"), 1) == LATER
    assert bans.status(("pid:7", "uid:2"), 1) is None
    assert bans.status(("pid:7", "uid:1"), ARREST_S) is None


def test_strikes_are_counted_in_windows_and_told_once() -> None:
    bans = Bans(60)
    assert not bans.strikes("uid:1", STRIKES - 1, 0)
    assert bans.strikes("uid:1", 1, STRIKES_S)
    assert not bans.strikes("uid:1", 1, STRIKES_S)
    assert not bans.strikes("uid:2", STRIKES - 1, 0)
    assert not bans.strikes("uid:2", STRIKES - 1, STRIKES_S + 1)


def test_what_is_remembered_is_bounded_and_the_oldest_goes() -> None:
    bans = Bans(60)
    for n in range(2 * _MOST):
        bans.offence(f"pid:{n}", f"uid:{n}", 0)
        bans.arrest(f"uid:{n}", 0)
        bans.strikes(f"uid:{n}", 1, 0)
    assert max(map(len, (bans._until, bans._arrests, bans._offences, bans._strikes))) == _MOST
    assert bans.status(("pid:0",), 1) is None
    assert bans.status((f"pid:{2 * _MOST - 1}",), 1) == BANNED


def test_a_ban_names_the_narrowest_thing_that_cannot_be_changed() -> None:
    assert names_of(Offender("localhost:7:8:99", None, "uid:7")) == ("pid:99", "uid:7")
    assert names_of(Offender("localhost:7:8:0", None, "")) == ("pid:0/uid:7", "uid:7")
    assert names_of(Offender("10.0.0.7", "KEY", "name:ada")) == ("key:KEY", "name:ada")
    assert names_of(Offender("10.0.0.7", None, "")) == ("ip:10.0.0.7", "ip:10.0.0.7")
    assert names_of(Offender("10.0.0.7", None, ""), {"name:ada"}) == ("name:ada", "name:ada")
    assert names_of(Offender("10.0.0.7", None, ""), {"name:ada", "name:bob"}) == ("ip:10.0.0.7", "ip:10.0.0.7")
    assert names_of(Offender("localhost:7:8:99", None, ""), {"uid:7"}) == ("pid:99", "uid:7")
    assert names_of(Offender("", None, "")) == ("", "")


def test_the_identity_that_an_address_tells() -> None:
    assert kin("localhost:7:8:99") == "uid:7"
    assert kin("fe80::1") == "ip:fe80::1"
    assert kin("uid:7") == "uid:7"
    assert kin("ip:10.0.0.7") == "ip:10.0.0.7"
