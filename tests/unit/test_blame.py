"""The guilty one is found whatever the others do: a worker without a broker, requests as numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.broker import blame
from edged.broker.table import Request
from unit.rig import request


def advance(one: Request, tokens: int) -> None:
    one.ids.extend([1] * tokens)


def test_progress_is_what_was_read_and_sampled() -> None:
    one = request(1)
    one.read = 20
    advance(one, 11)
    assert not blame.proven(one)
    advance(one, 1)
    assert blame.proven(one)
    blame.blame(one)
    assert (one.blamed, blame.proven(one)) == (1, False)


def test_the_limit_says_when_one_is_tried() -> None:
    one = request(1)
    for most, blamed, expected in ((2, 1, False), (2, 2, True), (1, 1, True), (0, 0, False), (0, 1, True)):
        one.blamed = blamed
        assert blame.suspect(one, most) is expected, (most, blamed)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_only_the_guilty_are_ended(data: st.DataObject) -> None:
    """Requests in the order of giving; a guilty one kills at a token of its own below 32, innocent ones make what they
    make before. Each worker has as many as it may, and dies when a guilty one among them gets to its token."""
    most = data.draw(st.integers(1, 3))
    guilty = {n: data.draw(st.integers(0, 31)) for n in data.draw(st.sets(st.integers(0, 5), max_size=3))}
    waiting = [request(n) for n in range(6)]
    ended: list[int] = []
    deaths = 0
    while waiting:
        having: list[Request] = []
        while True:
            for one in list(waiting):
                if not blame.may_go(one, having, most):
                    break
                waiting.remove(one)
                having.append(one)
            one = data.draw(st.sampled_from(having))
            if one.rid in guilty and len(one.ids) >= guilty[one.rid]:
                break
            advance(one, 1)
            if one.rid not in guilty and len(one.ids) >= data.draw(st.sampled_from([1, 40, 80])):
                having.remove(one)
            if not having and not waiting:
                return
        deaths += 1
        for one in having:
            blame.blame(one)
        ended += [one.rid for one in having if one.blamed > most]
        waiting = sorted([o for o in having if o.blamed <= most] + waiting, key=lambda o: o.rid)
        assert set(ended) <= set(guilty), "an innocent one was ended"
    assert set(ended) == set(guilty)
    assert deaths <= (most + 1) * max(1, len(guilty))
