"""Turns of a conversation in the broker: who waits for whom, and what a slow or bad store does to an end."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from edged.broker import lookups
from edged.broker import sessions as rules
from edged.broker.admission import Queue
from edged.broker.instructions import Ask, Caller, Instruction, Tell
from edged.broker.start import scope_of
from edged.broker.talk import Talk
from edged.broker.transcript import (
    Append,
    Delete,
    Deleted,
    Enumerate,
    Enumerated,
    Failed,
    Fetch,
    Fetched,
    Get,
    Got,
    Look,
    Looked,
    Opened,
    Stored,
)
from edged.config import Defaults
from edged.messages import Forget, FunctionCall, Generate, Message, Prefilled, SessionRequest, SessionsRequest, ToolCall
from edged.wire import codec
from unit.rig import A, B, Rig, answer, code, ended, events, kinds, popped, request, started, told

USER = [{"role": "user", "content": "hi"}]


class Talks(Rig):
    """A rig whose store is the test."""

    def __init__(self, sequences: int = 1, defaults: Defaults | None = None, **limits: Any) -> None:
        super().__init__(sequences, defaults, **limits)
        self.recalled(Opened([]))

    def recalled(self, found: Any) -> list[Instruction]:
        return self.checked(self.broker.recalled(found, self.now))

    def turn(self, name: str | None = "a", session: str = "s", **fields: Any) -> list[Instruction]:
        return self.generate(name, session=session, **{"messages": USER, **fields})

    def given(self, name: str = "a", session: str = "s", **fields: Any) -> int:
        """A turn that the worker has; returns its rid."""
        look = asked(self.turn(name, session, **fields))
        fetch = asked(self.recalled(Looked(look.number)))
        assert isinstance(fetch, Fetch)
        rid = self.rid(name, fields.get("who", A))
        assert started(self.recalled(Fetched(fetch.number, [], [], 0, 0))) == [rid]
        return rid

    def storing(self, name: str = "a", session: str = "s", **fields: Any) -> Append:
        rid = self.given(name, session, **fields)
        self.run(rid, "hello")
        append = asked(self.done(rid))
        assert isinstance(append, Append)
        return append

    def ask(self, body: Any, who: str = A) -> list[Instruction]:
        return self.checked(self.broker.asked(Caller(who, self.to()), body, b"", self.now))


def questions(out: list[Instruction]) -> list[Any]:
    return [i.question for i in out if isinstance(i, Ask)]


def asked(out: list[Instruction]) -> Any:
    (one,) = questions(out)
    return one


def test_a_turn_goes_its_way() -> None:
    rig = Talks()
    to = rig.to()
    look = asked(rig.turn(to=to))
    assert look == Look(look.number, A, "s", "a")
    fetch = asked(rig.recalled(Looked(look.number)))
    assert fetch == Fetch(fetch.number, A, "s", rig.config.limits.request_bytes)
    old = [Message("user", "1"), Message("assistant", "2")]
    (start,) = told(rig.recalled(Fetched(fetch.number, [Message("system", "kind")], [old], 3, 4)))
    assert (start.session, start.head, start.turns) == (True, 1, [2])
    assert [m.content for m in start.messages] == ["kind", "1", "2", "hi"]
    rig.run(start.rid, "hello")
    out = rig.done(start.rid)
    append = asked(out)
    assert ended(out) == []
    assert (append.session, append.reset, append.turn.window) == ("s", False, 3)
    assert msgspec.json.decode(append.turn.messages) == [*USER, {"role": "assistant", "content": "hello"}]
    assert "text" not in msgspec.json.decode(append.turn.reply)
    assert answer(rig.result("a"))["state"] == "running"
    found = answer(rig.recalled(Stored(append.number, A, "s")), to)
    assert (found["text"], found["session"], found["dropped_turns"]) == ("hello", "s", 3)
    assert "stored" not in found


def test_without_an_id_there_is_nothing_to_look_for() -> None:
    assert isinstance(asked(Talks().turn(None)), Fetch)


def test_an_end_waits_a_second_for_its_commit() -> None:
    rig = Talks()
    to = rig.to()
    append = rig.storing(to=to)
    assert ended(rig.wait(rules.STORE_S - 0.01)) == []
    late = rig.wait(0.01)
    assert answer(late, to)["stored"] is False
    assert rig.lives.pace.counters["turns_not_stored"] == 1
    assert rig.recalled(Stored(append.number, A, "s")) == []
    assert rig.broker.lives.sessions.refusal(A, Generate(session="s"), rig.config.limits) is None


def test_an_end_is_not_later_than_its_deadline_allows() -> None:
    rig = Talks()
    rig.now = 1.0
    rig.storing(deadline_ms=100)
    rig.wait(0.1 + rules.LATE_S - 0.01)
    (one,) = ended(rig.wait(0.02))
    assert one["outcome"] == "stop"


def test_a_failed_write_is_told() -> None:
    rig = Talks()
    to = rig.to()
    append = rig.storing(to=to)
    out = rig.recalled(Failed(append.number, "database or disk is full"))
    assert answer(out, to)["stored"] is False
    assert [i.fields["id"] for i in out if getattr(i, "event", "") == "turn_not_stored"] == ["a"]
    assert isinstance(asked(rig.turn("b")), Look), "the session is free"


def test_cancel_while_it_is_stored_lets_the_answer_stand() -> None:
    rig = Talks()
    append = rig.storing()
    assert answer(rig.cancel("a"))["state"] == "finished"
    assert answer(rig.recalled(Stored(append.number, A, "s")))["finish_reason"] == "stop"


def test_what_is_stored_is_not_superseded() -> None:
    rig = Talks()
    append = rig.storing()
    rig.turn("b", supersedes="a")
    out = rig.recalled(Stored(append.number, A, "s"))
    assert answer(out)["finish_reason"] == "stop"


def test_the_worker_has_a_place_free_while_a_turn_is_stored() -> None:
    rig = Talks()
    rig.storing()
    for n in range(3):
        assert len(started(rig.generate(f"p{n}"))) == 1
    assert started(rig.generate("p3")) == []


def test_a_store_that_hangs_keeps_nobody_from_the_worker() -> None:
    rig = Talks()
    for n in range(5):
        rig.recalled(Looked(asked(rig.turn(f"t{n}", f"s{n}")).number))
    assert rig.lives.sessions.fetching == 3
    for n in range(3):
        assert len(started(rig.generate(f"p{n}"))) == 1


def test_a_failed_read_is_retryable_and_frees_the_session() -> None:
    rig = Talks()
    to = rig.to()
    look = asked(rig.turn(to=to))
    assert code(rig.recalled(Failed(look.number, "EIO")), to) == "unavailable"
    fetch = asked(rig.recalled(Looked(asked(rig.turn(to=to)).number)))
    out = rig.recalled(Failed(fetch.number, "EIO"))
    assert code(out, to) == "unavailable"
    assert told(out) == []
    assert not rig.lives.sessions.busy((A, "s"))


def test_a_dead_worker_means_it_is_fetched_again() -> None:
    rig = Talks()
    fetch = asked(rig.recalled(Looked(asked(rig.turn()).number)))
    rig.lost()
    assert rig.recalled(Fetched(fetch.number, [], [], 0, 0)) == []
    again = asked(rig.ready())
    assert isinstance(again, Fetch)
    assert again.number != fetch.number
    assert len(started(rig.recalled(Fetched(again.number, [], [], 0, 0)))) == 1


def test_a_turn_that_ran_is_carried_on_without_its_transcript() -> None:
    rig = Talks()
    rid = rig.given()
    rig.prompted(rid)
    rig.heard(Prefilled(rid, 4, 4, 0, 2))
    rig.sample(rid, "half")
    rig.lost("SIGKILL")
    out = rig.ready()
    assert [i for i in out if isinstance(i, Ask)] == []
    (start,) = told(out)
    assert (start.session, start.turns, start.head, start.carried is not None) == (True, [], 0, True)
    rig.heard(Prefilled(rid, 4, 4, 0))
    append = asked(rig.done(rid))
    assert isinstance(append, Append)
    assert append.turn.window == 2


def test_a_turn_that_another_model_cannot_go_on_with_is_stored_as_it_is() -> None:
    rig = Talks()
    to = rig.to()
    rid = rig.given(to=to)
    rig.generate("other")
    rig.run(rid, "half")
    rig.lost("reload")
    append = asked(rig.ready(model="other"))
    assert isinstance(append, Append)
    assert rig.request("a").state == "storing"
    result = answer(rig.recalled(Stored(append.number, A, "s")), to)
    assert (result["text"], result["finish_reason"], result["model"]) == ("half", "length", "tiny")


def test_a_turn_without_text_is_fetched_again_for_another_model() -> None:
    rig = Talks()
    rid = rig.given()
    rig.run(rid, "")
    rig.lost("reload")
    again = asked(rig.ready(model="other"))
    assert isinstance(again, Fetch)
    (start,) = told(rig.recalled(Fetched(again.number, [], [], 0, 0)))
    assert (start.rid, start.carried) == (rid, None)


def test_turns_of_a_session_go_in_order_and_pass_nobody() -> None:
    rig = Talks()
    first = rig.given("a")
    rig.recalled(Looked(asked(rig.turn("b")).number))
    rig.recalled(Looked(asked(rig.turn("c")).number))
    assert len(started(rig.generate("p"))) == 1
    rig.run(first)
    append = asked(rig.done(first))
    fetch = asked(rig.recalled(Stored(append.number, A, "s")))
    (start,) = told(rig.recalled(Fetched(fetch.number, [], [], 1, 1)))
    assert start.rid == rig.rid("b")


def test_the_newer_takes_the_place_on_the_session() -> None:
    rig = Talks()
    rig.given("a")
    rig.recalled(Looked(asked(rig.turn("b")).number))
    rig.recalled(Looked(asked(rig.turn("c")).number))
    look = questions(rig.turn("d", supersedes="b"))[0]
    rig.recalled(Looked(look.number))
    fetch = asked(rig.cancel("a"))
    (start,) = told(rig.recalled(Fetched(fetch.number, [], [], 0, 0)))
    assert start.rid == rig.rid("d")


@pytest.mark.parametrize("own", [["x"], ["kind", "x"]])
def test_other_system_messages_later_are_refused(own: list[str]) -> None:
    rig = Talks()
    to = rig.to()
    messages = [*({"role": "system", "content": text} for text in own), *USER]
    fetch = asked(rig.recalled(Looked(asked(rig.turn(messages=messages, to=to)).number)))
    out = rig.recalled(Fetched(fetch.number, [Message("system", "kind")], [[Message("user", "1")]], 0, 1))
    assert code(out, to) == "bad_request"
    assert rig.lives.results.find(A, "a") is None


def test_the_same_system_message_is_not_repeated() -> None:
    rig = Talks()
    messages = [{"role": "system", "content": "kind"}, *USER]
    fetch = asked(rig.recalled(Looked(asked(rig.turn(messages=messages)).number)))
    head = [Message("system", "kind")]
    (start,) = told(rig.recalled(Fetched(fetch.number, head, [[Message("user", "1")]], 0, 1)))
    assert [m.content for m in start.messages] == ["kind", "1", "hi"]


def test_a_stored_reply_is_told_anew() -> None:
    rig = Talks()
    look = asked(rig.turn(stream="reply"))
    reply = {"text": "hello", "finish_reason": "stop", "usage": {"completion_tokens": 2}, "session": "s"}
    out = rig.recalled(Looked(look.number, rig.request("a").digest, reply))
    assert kinds(out) == ["token", "end"]
    assert (events(out)[0]["text"], events(out)[0]["n"], events(out)[1]["text"]) == ("hello", 2, "hello")
    other = asked(rig.turn("b", stream="reply"))
    out = rig.recalled(Looked(other.number, b"another", reply))
    assert events(out)[0]["error"]["code"] == "id_conflict"
    assert rig.lives.results.find(A, "b") is None


def test_sessions_are_counted_at_acceptance() -> None:
    rig = Talks(sessions_per_identity=2)
    rig.recalled(Opened([(A, "s")]))
    rig.turn("a", "s")
    rig.turn("b", "t")
    assert code(rig.turn("c", "u")) == "too_large"
    assert rig.lives.table.find(A, "c") is None
    assert isinstance(asked(rig.turn("c", "u", who=B)), Look)
    rig.cancel("b")
    assert isinstance(asked(rig.turn("c", "u")), Look)


def test_a_box_has_an_end() -> None:
    rig = Talks()
    rig.recalled(Opened([(f"ip:{n}", "s") for n in range(rules.IN_ALL)]))
    assert code(rig.turn()) == "too_large"
    assert isinstance(asked(rig.turn(who="ip:7")), Look)


def test_without_a_database_only_sessions_are_refused() -> None:
    rig = Rig()
    out = rig.generate("a", session="s", messages=USER)
    assert code(out) == "unavailable"
    rig.broker.recalled(Opened([], "written by a newer edged"), 0.0)
    out = rig.generate("a", session="s", messages=USER)
    assert answer(out)["error"]["message"] == "written by a newer edged"
    assert len(started(rig.generate("p"))) == 1


def test_a_store_that_never_answers_fills_no_memory() -> None:
    rig = Talks(queue=1000, queue_per_identity=1000)
    count = 0
    while True:
        out = rig.turn(f"t{count}")
        if not questions(out):
            break
        count += 1
        rig.cancel(f"t{count - 1}")
    assert (count, code(out)) == (rules.UNANSWERED, "unavailable")


def test_what_is_not_written_is_bounded() -> None:
    rig = Talks(sequences=64)
    long = [{"role": "user", "content": "x" * 200_000}]
    stored = 0
    for n in range(30):
        rid = rig.given(f"t{n}", f"s{n}", messages=long)
        rig.run(rid)
        out = rig.done(rid)
        stored += bool(questions(out))
        assert bool(questions(out)) == (ended(out) == [])
    assert stored == rules.UNWRITTEN_BYTES // 200_000
    assert rig.lives.pace.counters["turns_not_stored"] == 30 - stored


def test_tool_calls_enter_the_transcript() -> None:
    rig = Talks()
    rid = rig.given()
    rig.run(rid, "x")
    one = rig.request("a")
    call = ToolCall("c1", FunctionCall("f", "{}"))
    fields = {"text": "", "finish_reason": "stop", "tool_calls": msgspec.to_builtins([call])}
    (ask,) = rig.lives.sessions.store(one, fields, rig.config.limits, rig.now)
    assert msgspec.json.decode(ask.question.turn.messages)[-1]["tool_calls"][0]["id"] == "c1"


# ---- the verbs -------------------------------------------------------------------------------------------------


def test_lookups() -> None:
    rig = Talks()
    one = asked(rig.ask(SessionRequest("s", "get")))
    assert one == Get(one.number, A, "s", lookups.SHOWN_BYTES)
    assert answer(rig.recalled(Got(one.number, {"turns": []}))) == {"ok": True, "id": None, "session": "s", "turns": []}
    one = asked(rig.ask(SessionRequest("s", "get")))
    assert code(rig.recalled(Got(one.number, None))) == "not_found"
    one = asked(rig.ask(SessionsRequest("q", "s", B, "delete")))
    assert one == Delete(one.number, B, "s")
    one = asked(rig.ask(SessionsRequest("q")))
    assert one == Enumerate(one.number, None, lookups.LISTED)
    assert answer(rig.recalled(Enumerated(one.number, [], 3))) == {"ok": True, "id": "q", "sessions": [], "omitted": 3}
    one = asked(rig.ask(SessionRequest("s", "get")))
    assert code(rig.recalled(Failed(one.number, "EIO"))) == "unavailable"


def test_a_busy_session_is_not_deleted() -> None:
    rig = Talks()
    rig.turn()
    assert code(rig.ask(SessionRequest("s", "delete"))) == "busy"
    assert code(rig.ask(SessionsRequest(None, "s", A, "delete"), B)) == "busy"
    assert isinstance(asked(rig.ask(SessionRequest("s", "delete"), B)), Delete)
    assert isinstance(asked(rig.ask(SessionRequest("s", "get"))), Get)


def test_the_worker_forgets_what_was_deleted() -> None:
    rig = Talks()
    question = asked(rig.ask(SessionRequest("s", "delete"), B))
    for found in (True, False):
        out = rig.broker.recalled(Deleted(question.number, B, "s", found), 0.0)
        told = [i.message for i in out if isinstance(i, Tell)]
        assert told == ([Forget(scope_of(B))] if found else [])


def test_lookups_are_bounded_and_end() -> None:
    rig = Talks()
    many = [rig.ask(SessionRequest("s", "get")) for _ in range(lookups.MAX_PER_IDENTITY + 1)]
    assert code(many[-1]) == "busy"
    others = [rig.ask(SessionRequest("s", "get"), f"uid:{n}") for n in range(lookups.MAX_PENDING)]
    assert sum(1 for out in others if not questions(out)) == lookups.MAX_PER_IDENTITY
    out = rig.wait(lookups.DEADLINE_S)
    assert len([i for i in out if i.error.code == "deadline_exceeded"]) == lookups.MAX_PENDING
    assert rig.broker.next_wake() == float("inf")


# ---- the queue -------------------------------------------------------------------------------------------------


def held(rid: int, who: str = A, *, is_held: bool = True) -> Any:
    one = request(rid, who)
    one.talk, one.held = Talk((who, "s"), reset=False), is_held
    return one


def test_the_queue_passes_over_what_is_held() -> None:
    queue = Queue()
    one, two, three, four = held(1), request(2), request(3, B), held(4, B)
    for waiting in (one, two, three, four):
        queue.push(waiting)
    assert [queue.position(r) for r in (two, three)] == [0, 1]
    assert [queue.position(r) for r in (one, four)] == [0, 3]
    assert [popped(queue), popped(queue), popped(queue), len(queue)] == [two, three, None, 2]
    one.held = False
    assert popped(queue, sessions=False) is None
    assert [popped(queue), popped(queue), len(queue)] == [one, None, 1]


def test_held_ones_cost_others_neither_turn_nor_place() -> None:
    for order in itertools.permutations(range(4)):
        queue = Queue()
        all_of_them = [held(1), request(2), request(3, B), request(4)]
        for index in order:
            queue.push(all_of_them[index])
        going = [r for r in all_of_them if not r.held]
        expected = sorted(going, key=queue.position)
        assert [popped(queue) for _ in going] == expected


def test_the_digest_stays_the_same_over_versions() -> None:
    """It is stored with each turn: another one would make a repeated id a conflict."""
    one = Generate(id="a", session="s", messages=[Message("user", "hi")], stream="pub", max_tokens=5, temperature=0.5)
    assert codec.digest(one).hex() == "0d5afb983bc2ce26dc23790cc0573790"
