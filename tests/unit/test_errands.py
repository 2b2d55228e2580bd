"""`tokenize`, `embed`, `warm`: bounded, answered exactly once, whatever the worker does."""

from __future__ import annotations

import msgspec
import pytest

from edged.broker import errands
from edged.broker.errands import EMBED, KIND_OF, MAX_HELD, MAX_REPLY, TOKENIZE, TOKENIZE_S, WARM, Kind
from edged.broker.start import scope_of
from edged.messages import (
    Abort,
    Drain,
    Embed,
    Embedded,
    EmbedRequest,
    Message,
    Refused,
    Resume,
    Tokenize,
    Tokenized,
    TokenizeRequest,
    Warm,
    Warmed,
    WarmRequest,
)
from unit.rig import A, B, Rig, answer, answers, code, told

TURNS = [Message("user", "some text")]
BODIES = {
    TOKENIZE: TokenizeRequest("t", "some text"),
    EMBED: EmbedRequest(["some text", "another"], "e"),
    WARM: WarmRequest(TURNS, "w"),
}
DONE = {
    TOKENIZE: lambda rid: Tokenized(rid, [1], True),
    EMBED: lambda rid: Embedded(rid, [b"[1.0,0.0]", b"[0.6,0.8]"], 3),
    WARM: lambda rid: Warmed(rid, 4, 1),
}
each = pytest.mark.parametrize("kind", list(BODIES), ids=lambda kind: kind.name)
work = pytest.mark.parametrize("kind", [EMBED, WARM], ids=lambda kind: kind.name)


def asked(rig: Rig, kind: Kind, who: str = A) -> int:
    (message,) = told(rig.ask(BODIES[kind], who))
    return message.rid


def test_every_kind_is_tried() -> None:
    assert set(KIND_OF.values()) == set(BODIES)


def test_tokenize_asks_the_worker_and_answers_the_caller() -> None:
    rig = Rig()
    to = rig.to()
    (message,) = told(rig.ask(BODIES[TOKENIZE], to=to))
    assert message == Tokenize(message.rid, "some text", None)
    out = rig.heard(Tokenized(message.rid, [1, 2, 3], True))
    assert answer(out, to) == {"ok": True, "id": "t", "tokens": [1, 2, 3], "count": 3, "fits": True}


def test_embed_asks_the_worker_and_answers_the_caller() -> None:
    rig = Rig()
    to = rig.to()
    (message,) = told(rig.ask(BODIES[EMBED], to=to))
    assert message == Embed(message.rid, ["some text", "another"])
    found = answer(rig.heard(DONE[EMBED](message.rid)), to)
    assert msgspec.json.decode(msgspec.json.encode(found)) == {
        "ok": True,
        "id": "e",
        "embeddings": [[1.0, 0.0], [0.6, 0.8]],
        "model": rig.lives.model,
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


def test_warm_asks_the_worker_in_the_callers_scope() -> None:
    rig = Rig()
    to = rig.to()
    (message,) = told(rig.ask(BODIES[WARM], to=to))
    assert message == Warm(message.rid, TURNS, scope_of(A))
    assert answer(rig.heard(Warmed(message.rid, 40, 30)), to) == {
        "ok": True,
        "id": "w",
        "tokens": 40,
        "cached_tokens": 30,
    }


@each
@pytest.mark.parametrize(
    ("said", "passed_on"),
    [(c, c) for c in ("bad_request", "context_overflow", "too_large", "low_memory", "unavailable")]
    + [("internal", "internal"), ("nonsense", "internal"), ("worker_lost", "internal")],
)
def test_a_refusal_is_passed_on(kind: Kind, said: str, passed_on: str) -> None:
    rig = Rig()
    assert code(rig.heard(Refused(asked(rig, kind), said, "why"))) == passed_on


@each
def test_one_answer_only(kind: Kind) -> None:
    rig = Rig()
    rid = asked(rig, kind)
    assert answers(rig.heard(DONE[kind](rid)))
    assert rig.heard(DONE[kind](rid)) == []
    assert rig.heard(Refused(rid, "internal", "x")) == []
    assert rig.lost() == []


def test_an_answer_of_another_kind_is_internal() -> None:
    rig = Rig()
    assert code(rig.heard(Warmed(asked(rig, EMBED), 1, 1))) == "internal"


def test_vectors_over_the_bound_are_too_large() -> None:
    rig = Rig()
    out = rig.heard(Embedded(asked(rig, EMBED), [b"0" * (MAX_REPLY // 2), b"0" * (MAX_REPLY // 2 + 1)], 2))
    assert code(out) == "too_large"


@each
def test_a_callers_share_is_bounded(kind: Kind) -> None:
    rig = Rig()
    rids = [asked(rig, kind) for _ in range(kind.share)]
    assert code(rig.ask(BODIES[kind])) == "busy"
    asked(rig, kind, B)
    for other in set(BODIES) - {kind}:
        asked(rig, other)
    rig.heard(DONE[kind](rids[0]))
    asked(rig, kind)


@each
def test_all_together_are_bounded(kind: Kind) -> None:
    rig = Rig()
    for n in range(kind.most):
        asked(rig, kind, f"uid:{n}")
    assert code(rig.ask(BODIES[kind], "uid:99")) == "busy"


def test_their_texts_are_bounded_together_but_one_is_always_taken() -> None:
    rig = Rig()
    large = EmbedRequest(["x" * (MAX_HELD + 1)])
    (first,) = told(rig.ask(large))
    assert code(rig.ask(BODIES[TOKENIZE], B)) == "busy"
    rig.heard(DONE[EMBED](first.rid))
    assert told(rig.ask(BODIES[TOKENIZE], B))


@each
def test_without_an_answer_there_is_a_deadline(kind: Kind) -> None:
    rig = Rig()
    rid = asked(rig, kind)
    within_s = TOKENIZE_S if kind is TOKENIZE else rig.lives.config.defaults.deadline_ms / 1000
    assert rig.wait(within_s - 0.01) == []
    out = rig.wait(0.02)
    assert code(out) == "deadline_exceeded"
    assert told(out) == [Abort(rid)]
    assert rig.wait(100) == []
    assert len(rig.broker.errands) == 0


@each
def test_when_the_worker_dies_all_are_answered(kind: Kind) -> None:
    rig = Rig()
    asked(rig, kind)
    asked(rig, kind, B)
    assert [a["error"]["code"] for a in answers(rig.lost())] == ["worker_lost"] * 2
    assert code(rig.ask(BODIES[kind])) == "unavailable"
    rig.ready()
    asked(rig, kind)


@each
def test_at_the_stop_all_are_answered(kind: Kind) -> None:
    rig = Rig()
    asked(rig, kind)
    assert code(rig.broker.stopped(rig.now)) == "shutting_down"


@each
def test_while_loading(kind: Kind) -> None:
    assert code(Rig(sequences=0).ask(BODIES[kind])) == "loading"


@each
def test_when_unavailable(kind: Kind) -> None:
    rig = Rig()
    rig.lost()
    rig.broker.unavailable("no worker", 300.0, rig.now)
    assert code(rig.ask(BODIES[kind])) == "unavailable"


@work
def test_draining_and_stopping_refuse_work_and_end_none(kind: Kind) -> None:
    rig = Rig()
    rid = asked(rig, kind)
    rig.ask(Drain())
    assert code(rig.ask(BODIES[kind])) == "unavailable"
    asked(rig, TOKENIZE)
    assert answers(rig.heard(DONE[kind](rid)))[0]["ok"]
    rig.ask(Resume())
    rig.broker.gate.stopping = True
    assert code(rig.ask(BODIES[kind])) == "shutting_down"


@each
def test_while_the_worker_does_not_read(kind: Kind) -> None:
    rig = Rig()
    rig.broker.gate.clogged = True
    assert code(rig.ask(BODIES[kind])) == "busy"


def test_an_errand_holds_no_text() -> None:
    fields = errands._Pending.__slots__
    assert set(fields) == {"kind", "caller", "id", "size", "until", "within_s"}
