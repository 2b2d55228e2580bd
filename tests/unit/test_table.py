"""The life cycle: every pair of state and move, ended exactly once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.broker.table import TRANSITIONS, InvalidTransitionError, Move, State, Table
from unit.rig import A, B, request

LEGAL = {
    (State.QUEUED, Move.GIVE): State.GIVEN,
    (State.QUEUED, Move.END): State.ENDED,
    (State.GIVEN, Move.TAKE_BACK): State.QUEUED,
    (State.GIVEN, Move.FIRST_CHUNK): State.RUNNING,
    (State.GIVEN, Move.END): State.ENDED,
    (State.RUNNING, Move.TAKE_BACK): State.QUEUED,
    (State.RUNNING, Move.END): State.ENDED,
    (State.QUEUED, Move.STORE): State.STORING,
    (State.GIVEN, Move.STORE): State.STORING,
    (State.RUNNING, Move.STORE): State.STORING,
    (State.STORING, Move.END): State.ENDED,
}
WAYS = {
    State.QUEUED: [],
    State.GIVEN: [Move.GIVE],
    State.RUNNING: [Move.GIVE, Move.FIRST_CHUNK],
    State.STORING: [Move.GIVE, Move.FIRST_CHUNK, Move.STORE],
    State.ENDED: [Move.GIVE, Move.FIRST_CHUNK, Move.END],
}
PAIRS = list(itertools.product(State, Move))


@pytest.mark.parametrize(("state", "move"), PAIRS)
def test_every_pair(state: State, move: Move) -> None:
    one = request(4711)
    for step in WAYS[state]:
        one.move(step)
    assert one.state is state
    if (state, move) in LEGAL:
        one.move(move)
        assert one.state is LEGAL[state, move]
        assert one.history == [*WAYS[state], move]
        return
    with pytest.raises(InvalidTransitionError) as caught:
        one.move(move)
    story = str(caught.value)
    assert "4711" in story
    assert f"{move} in state {state}" in story
    assert (" → ".join(WAYS[state]) or "(new)") in story
    assert one.state is state
    assert one.history == WAYS[state]


def test_the_table_is_the_one_of_the_design() -> None:
    assert TRANSITIONS == LEGAL


@given(st.lists(st.sampled_from(Move), max_size=30))
def test_no_way_leads_out_of_ended(moves: list[Move]) -> None:
    one = request(1)
    ends = 0
    for move in moves:
        try:
            one.move(move)
        except InvalidTransitionError:
            continue
        ends += move is Move.END
    assert ends == (one.state is State.ENDED)
    assert one.history.count(Move.END) == ends


def test_given_is_shown_as_queued() -> None:
    one = request(1)
    shown = [one.shown]
    for move in (Move.GIVE, Move.FIRST_CHUNK, Move.END):
        one.move(move)
        shown.append(one.shown)
    assert shown == ["queued", "queued", "running", "ended"]


def test_waits_until_it_runs() -> None:
    one = request(1)
    assert one.waits
    one.move(Move.GIVE)
    assert one.waits
    one.move(Move.FIRST_CHUNK)
    assert not one.waits


def test_the_deadline_counts_from_receipt() -> None:
    assert request(1, received=50.0).deadline == 51.0


def test_indexes_agree() -> None:
    table = Table()
    one, other = request(1), request(2, B)
    table.add(one)
    table.add(other)
    table.check()
    assert (table.get(1), table.find(A, "r1"), table.on_topic("tok/1/")) == (one, one, one)
    assert table.find(B, "r1") is None
    assert list(table) == [one, other]
    table.remove(one)
    table.check()
    assert (table.get(1), table.find(A, "r1"), table.on_topic("tok/1/")) == (None, None, None)
    assert len(table) == 1


def test_ids_are_scoped_to_the_identity() -> None:
    table = Table()
    one, other = request(1), request(2, B)
    other.id = other.stream.id = "r1"
    table.add(one)
    table.add(other)
    table.check()
    assert table.find(A, "r1") is one
    assert table.find(B, "r1") is other


def test_the_table_may_shrink_while_it_is_walked() -> None:
    table = Table()
    for rid in range(5):
        table.add(request(rid))
    for one in table:
        table.remove(one)
    assert len(table) == 0
