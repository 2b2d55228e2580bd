"""A caller whose key is gone (protocol 9): what it owns ends, what others own does not notice."""

from __future__ import annotations

import pytest

from edged.broker.instructions import Caller
from edged.messages import Abort, Generate, Start
from unit.rig import A, B, Rig, answers, ended, events, started, told


def expel(rig: Rig, who: str = A):
    return rig.checked(rig.broker.expel(lambda identity: identity != who, rig.now))


@pytest.mark.parametrize("mode", [False, "pub", "reply"])
def test_all_of_a_goes_and_all_of_b_stays(mode: object) -> None:
    rig = Rig(sequences=2)
    for who in (A, B):
        rig.generate("done", who, stream=mode)
        rig.run(rig.rid("done", who))
        rig.done(rig.rid("done", who))
    for who in (A, B):
        rig.generate("runs", who, stream=mode)
        rig.run(rig.rid("runs", who))
    for name in ("next", "after", "waits"):
        rig.generate(name, A, stream=mode)
    rig.generate("waits", B, stream=mode)
    out = expel(rig)
    mine = {fields["id"]: fields["outcome"] for fields in ended(out)}
    assert mine == dict.fromkeys(["runs", "next", "after", "waits"], "forbidden")
    assert {m.rid for m in told(out) if isinstance(m, Abort)}
    assert started(out) == [rig.rid("waits", B)], "the place is free for b"
    if mode is False:
        assert {a["error"]["code"] for a in answers(out)} == {"forbidden"}
    else:
        assert {e["error"]["retryable"] for e in events(out) if e["type"] == "end"} == {False}
    for name in ("done", "runs", "next"):
        assert not answers(rig.result(name, A))[0]["ok"]
    assert answers(rig.result("done", B))[0]["ok"]
    assert answers(rig.result("runs", B))[0]["state"] == "running"
    assert expel(rig) == []


def test_an_errand_of_a_is_given_up() -> None:
    rig = Rig()
    (mine,), (other,) = told(rig.tokenize(A)), told(rig.tokenize(B))
    out = expel(rig)
    assert told(out) == [Abort(mine.rid)]
    assert answers(out) == [], "the connection is cut"
    assert other.rid != mine.rid


def test_a_key_may_have_its_own_share_of_the_queue() -> None:
    rig = Rig(sequences=0, queue=5, queue_per_identity=2)
    rig.ready()

    def ask(name: str, who: str, share: int | None) -> bool:
        request = Generate(id=name, prompt="x")
        out = rig.broker.asked(Caller(who, rig.to(), "high", share), request, name.encode(), rig.now)
        return not answers(out)

    for number in range(3):
        assert ask(f"given{number}", "uid:9", None)
    assert [ask(f"a{n}", A, 1) for n in range(3)] == [True, False, False]
    assert [ask(f"b{n}", B, 4) for n in range(5)] == [True, True, True, True, False]
    assert not ask("c", "uid:3", 4), "limits.queue holds for all"
    assert all(isinstance(m, Start) for m in told(rig.lives.dispatch()))
