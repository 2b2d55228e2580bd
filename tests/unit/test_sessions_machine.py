"""Conversations of two callers, with a worker that dies and a store that is slow, fails or is lost with the daemon.

The store is the real one on a database in memory; it answers at once, or (`slow`) when the machine says so.
Every text names its caller, session and id, so that a history that reaches another session is seen.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edged.broker.broker import Broker
from edged.broker.instructions import Address, Ask, Caller, Emit, Instruction, Note, Tell
from edged.broker.lives import PREPARE_AHEAD
from edged.broker.transcript import Append, Enumerate, Failed, Get, Look, Opened, Question
from edged.config import Config, Defaults, Limits
from edged.messages import (
    Abort,
    Cancel,
    Discard,
    Done,
    Forget,
    Generate,
    Gone,
    Message,
    Prefilled,
    Prompted,
    Sampled,
    SessionRequest,
    SessionsRequest,
    Start,
)
from edged.transcripts import schema
from edged.transcripts.store import Store
from edged.wire import codec
from unit.rig import A, B, PlainEncoder, body

LIMITS = Limits(queue=8, queue_per_identity=6, sessions_per_identity=2, orphan_grace_ms=60_000, result_ttl_s=30)
IDENTITIES = (A, B)
NAMES = ("s", "t", "u")
IDS = tuple("abcd")
DEADLINE_S = 20.0


@dataclass
class Life:
    rid: int
    identity: str
    id: str
    session: str | None
    reset: bool
    digest: bytes
    given: Start | None = None
    prompt: str = ""  # the model that read it
    runs: bool = False
    carried: bool = False
    dropped: int = 0
    done: str = ""  # the reason that the worker gave
    text: str = ""
    outcome: str = ""


@dataclass
class Peer:
    identity: str
    answers: list[dict[str, Any]] = field(default_factory=list)


class SessionsMachine(RuleBasedStateMachine):
    @initialize(sequences=st.integers(1, 2))
    def begin(self, sequences: int) -> None:
        self.now = 0.0
        self.sequences = sequences
        connection = sqlite3.connect(":memory:", isolation_level=None)
        schema._prepare(connection)
        self.store = Store(connection)
        self.tags = itertools.count(1)
        self.tokens = itertools.count(1)
        self.peers: dict[Address, Peer] = {}
        self.slow = False
        self.boot()

    def boot(self) -> None:
        """A daemon, started on what is on the disk."""
        config = Config(limits=LIMITS, defaults=Defaults(deadline_ms=round(1000 * DEADLINE_S)))
        self.broker = Broker(config, PlainEncoder(), lambda: f"{next(self.tokens):032x}", lambda: 7)
        self.lives: dict[int, Life] = {}
        self.asked: list[Question] = []
        self.worker: dict[int, Start] | None = {}
        self.leaving: list[int] = []
        self.model = "tiny"
        self.do(self.broker.worker_ready("tiny", self.sequences, "tiny", self.now))
        self.do(self.broker.recalled(Opened(self.store.names()), self.now))

    # ---- doing what the broker says ------------------------------------------------------------------------------

    def do(self, out: list[Instruction]) -> None:
        for instruction in out:
            match instruction:
                case Tell(message=Start() as start):
                    self.started(start)
                case Tell(message=Abort(rid=rid)):
                    if self.worker is not None:
                        self.worker.pop(rid, None)
                        self.leaving.append(rid)
                case Tell(message=Forget() | Discard()):
                    pass
                case Ask(question=question):
                    self.asked.append(question)
                case Note(event="request_end", fields=fields):
                    self.ended(fields["rid"], fields["outcome"])
                case Note() | Emit():
                    pass
                case _:
                    where, fields = body(instruction)
                    self.peers[where].answers.append(fields)
                    assert len(self.peers[where].answers) == 1, "answered twice"

    def life(self, rid: int) -> Life:
        """Taken into the model when it is first heard of."""
        if rid not in self.lives:
            request = self.broker.lives.table.get(rid)
            self.lives[rid] = Life(
                rid, request.identity, request.id, request.body.session, request.body.reset, request.digest
            )
        return self.lives[rid]

    def transcript(self, identity: str, session: str) -> list[dict[str, Any]]:
        found = self.store.answer(Get(0, identity, session, 1 << 20)).fields
        return [] if found is None else found["turns"]

    def window(self, identity: str, session: str) -> int:
        found = self.store.answer(Get(0, identity, session, 1 << 20)).fields
        return 0 if found is None else found.get("dropped_turns", 0)

    def started(self, start: Start) -> None:
        assert self.worker is not None, "work for no worker"
        life = self.life(start.rid)
        assert start.rid not in self.worker
        assert not life.outcome
        self.worker[start.rid] = start
        assert (start.carried is not None) == life.carried
        if life.carried:
            assert life.prompt == self.model
            assert not start.turns, "its prompt is known"
            return
        life.given, life.dropped, life.prompt = start, 0, ""
        assert start.session == (life.session is not None)
        if life.session is None:
            return
        others = [x for x in self.lives.values() if x.rid in self.worker and x is not life]
        assert (life.identity, life.session) not in {(x.identity, x.session) for x in others}, "two turns at a time"
        mine = f"{life.identity}/{life.session}/"
        assert all(m.content.startswith(mine) or m.role == "system" for m in start.messages), "another's history"
        history = start.messages[start.head : len(start.messages) - 1]
        assert len(history) == sum(start.turns)
        known = [] if life.reset else self.transcript(life.identity, life.session)
        assert len(known) - len(start.turns) == (0 if life.reset else self.window(life.identity, life.session))
        told = [m for one in known[len(known) - len(start.turns) :] for m in one["messages"]]
        assert [(m.role, m.content) for m in history] == [(m["role"], m["content"]) for m in told]
        assert start.messages[-1].content == mine + life.id

    def ended(self, rid: int, outcome: str) -> None:
        life = self.life(rid)
        assert life.outcome == "", "ended twice"
        life.outcome = outcome
        kept = self.broker.lives.results.find(life.identity, life.id)
        if outcome in ("id_conflict", "bad_request"):
            assert kept is None, "a refusal leaves no trace"
            return
        fields = msgspec.json.decode(kept.body)
        if life.session is None:
            return
        ids = [one["id"] for one in self.transcript(life.identity, life.session)]
        if outcome not in ("stop", "length"):
            assert not life.done
        elif fields.get("stored") is not False:
            assert life.id in ids, "told before it was stored"
        if life.done:
            assert fields["text"] == life.text
            assert fields["session"] == life.session
            first = fields.get("dropped_turns", 0)
            assert first >= life.dropped
        elif outcome in ("stop", "length"):
            assert self.store.answer(Look(0, life.identity, life.session, life.id)).digest == life.digest
            assert fields["text"] == f"{life.identity}/{life.session}/{life.id} said"  # the stored reply

    def ask(self, identity: str, request: Any, socket: str = "request") -> Peer:
        to = Address(socket, (f"{next(self.tags)}".encode(), b""))
        peer = self.peers[to] = Peer(identity)
        digest = codec.digest(request) if isinstance(request, Generate) else b""
        out = self.broker.asked(Caller(identity, to), request, digest, self.now)
        for accepted in self.broker.lives.table:
            self.life(accepted.rid)
        self.do(out)
        return peer

    # ---- clients -------------------------------------------------------------------------------------------------

    @rule(
        asked=st.lists(
            st.fixed_dictionaries(
                {
                    "identity": st.sampled_from([A, A, B]),
                    "session": st.sampled_from(["s", "s", "s", "t", "u", None]),
                    "name": st.sampled_from(IDS),
                    "stream": st.sampled_from([False, "pub"]),
                    "reset": st.sampled_from([False] * 9 + [True]),
                    "system": st.sampled_from([None] * 6 + ["x", "y"]),
                    "supersedes": st.sampled_from([None] * 5 + list(IDS)),
                    "deadline_ms": st.sampled_from([None, None, None, 600]),
                    "priority": st.sampled_from(["normal", "normal", "high"]),
                }
            ),
            min_size=1,
            max_size=4,
        )
    )
    def generate(self, asked: list[dict[str, Any]]) -> None:
        for fields in asked:
            self.generated(**fields)
        self.settle()

    def generated(self, identity: str, session: str | None, name: str, reset: bool, system: Any, **fields: Any) -> None:
        text = f"{identity}/{session}/{name}"
        messages = [Message("user", text)]
        if session is not None and system is not None:
            messages.insert(0, Message("system", system))
        if fields["supersedes"] == name:
            fields["supersedes"] = None
        before = set(self.lives)
        request = Generate(
            id=name, messages=messages, session=session, reset=bool(session) and reset, detach=True, **fields
        )
        peer = self.ask(identity, request)
        new = set(self.lives) - before
        refused = [a["error"]["code"] for a in peer.answers if not a["ok"]]
        if refused == ["too_large"]:
            assert not new
            names = {n for who, n in self.store.names() if who == identity}
            names |= {x.session for x in self.living() if x.identity == identity} - {None}
            names |= {q.session for q in self.asked if isinstance(q, Append) and q.identity == identity}
            assert len(names) >= LIMITS.sessions_per_identity

    @rule(identity=st.sampled_from(IDENTITIES), name=st.sampled_from(IDS))
    def cancel(self, identity: str, name: str) -> None:
        peer = self.ask(identity, Cancel(name))
        self.settle()
        assert len(peer.answers) == 1

    @precondition(lambda self: self.broker.lives.sessions.away)
    @rule()
    def cancel_what_is_stored(self) -> None:
        for request in self.broker.lives.table:
            if request.state == "storing":
                assert self.ask(request.identity, Cancel(request.id)).answers[0]["state"] == "finished"
                assert self.lives[request.rid].outcome == ""

    @rule(
        identity=st.sampled_from(IDENTITIES),
        session=st.sampled_from(NAMES),
        action=st.sampled_from(["get", "get", "delete"]),
        operator=st.booleans(),
    )
    def look_up(self, identity: str, session: str, action: Any, operator: bool) -> None:
        request: Any = SessionRequest(session, action)
        if operator:
            request = SessionsRequest(None, session, identity, action)
        alive = any((x.identity, x.session) == (identity, session) for x in self.living())
        peer = self.ask(identity, request, "control" if operator else "request")
        if action == "delete" and alive:
            assert peer.answers[0]["error"]["code"] == "busy"
        self.settle()

    def living(self) -> list[Life]:
        return [life for life in self.lives.values() if not life.outcome]

    # ---- the worker ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.worker)
    @rule(
        data=st.data(),
        steps=st.lists(
            st.tuples(
                st.sampled_from(["stop", "stop", "stop", "length", "read", "say"]), st.sampled_from([0, 0, 1, 2])
            ),
            min_size=1,
            max_size=6,
        ),
    )
    def work(self, data: st.DataObject, steps: list[tuple[str, int]]) -> None:
        for what, drop in steps:
            if self.worker:
                self.worked(data.draw(st.sampled_from(sorted(self.worker))), what, drop)
                self.settle()

    def worked(self, rid: int, what: str, drop: int) -> None:
        life, start = self.lives[rid], self.worker[rid]
        life.dropped = max(life.dropped, min(drop, len(start.turns)))
        if not life.prompt:
            life.prompt = self.model
            self.do(self.broker.heard(Prompted(rid, b"....", 0, []), self.now))
        life.runs = True
        self.do(self.broker.heard(Prefilled(rid, 4, 4, 0, life.dropped), self.now))
        if what == "read":
            return
        life.text = f"{life.identity}/{life.session}/{life.id} said"
        if not self.broker.lives.table.get(rid).stream.text:
            self.do(self.broker.heard(Sampled(rid, [1], life.text), self.now))
        if what == "say":
            return
        life.done = what
        del self.worker[rid]
        self.do(self.broker.heard(Done(rid, what, None), self.now))

    @precondition(lambda self: self.leaving)
    @rule()
    def lets_go(self) -> None:
        while self.leaving:
            self.do(self.broker.heard(Gone(self.leaving.pop(0)), self.now))
            self.settle()

    @precondition(lambda self: self.worker is not None)
    @rule(sure=st.sampled_from([True, False, False]), cause=st.sampled_from(["SIGSEGV", "SIGKILL", "reload"]))
    def worker_dies(self, sure: bool, cause: str) -> None:
        if sure:
            for rid in self.worker:
                life = self.lives[rid]
                life.carried, life.runs = life.carried or life.runs, False
            self.worker = None
            self.leaving.clear()
            self.do(self.broker.worker_lost(cause, self.now))
            self.settle()

    @precondition(lambda self: self.worker is None)
    @rule(model=st.sampled_from(["tiny", "tiny", "other"]))
    def worker_returns(self, model: str) -> None:
        """What another model cannot go on with ends by `length` when it has text, and is stored as it is."""
        for life in self.living():
            if life.carried and life.prompt != model and life.done == "":
                life.carried, life.done = False, "length" if life.text else ""
        self.worker, self.model = {}, model
        self.do(self.broker.worker_ready(model, self.sequences, model, self.now))
        self.settle()

    @precondition(lambda self: self.worker)
    @rule(
        step=st.sampled_from(["read", "say", "say"]),
        cause=st.sampled_from(["SIGSEGV", "SIGKILL", "reload"]),
        model=st.sampled_from(["tiny", "other"]),
        drop=st.sampled_from([0, 0, 1]),
    )
    def dies_at_work(self, step: str, cause: str, model: str, drop: int) -> None:
        for rid in sorted(self.worker):
            self.worked(rid, step, drop)
        self.worker_dies(True, cause)
        self.worker_returns(model)

    # ---- the store -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        while self.asked and not self.slow:
            self.answered(self.asked.pop(0))

    @rule(slow=st.booleans())
    def slows_down(self, slow: bool) -> None:
        self.slow = slow
        self.settle()

    @precondition(lambda self: self.asked)
    @rule(count=st.integers(1, 6), fails=st.sampled_from([False] * 4 + [True]))
    def store_answers(self, count: int, fails: bool) -> None:
        for _ in range(min(count, len(self.asked))):
            self.answered(self.asked.pop(0), fails=fails)
            fails = False

    def answered(self, question: Question, *, fails: bool = False) -> None:
        if fails:
            self.do(self.broker.recalled(Failed(question.number, "the disk is full"), self.now))
            return
        if isinstance(question, Append):
            self.commits(question)
        self.do(self.broker.recalled(self.store.answer(question), self.now))

    def commits(self, question: Append) -> None:
        """Only turns that the worker finished, each id once."""
        name = question.turn.id
        there = [] if question.reset else [t["id"] for t in self.transcript(question.identity, question.session)]
        assert name not in there, "stored twice"
        whose = (question.identity, question.session, name)
        life = [x for x in self.lives.values() if (x.identity, x.session, x.id) == whose and x.done][-1]
        assert question.turn.window == len(there) - len(life.given.turns) + life.dropped

    @rule(sure=st.sampled_from([True, False, False]), flushed=st.integers(0, 3))
    def daemon_dies(self, sure: bool, flushed: int) -> None:
        """What was handed over and not committed is lost, and so is everybody's connection."""
        if not sure:
            return
        for question in self.asked[:flushed]:
            if isinstance(question, Append):
                self.commits(question)
            self.store.answer(question)
        self.peers.clear()
        self.boot()
        self.settle()

    # ---- time ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.01, 0.01, 0.4, 0.4, 1.1, 5.0, 21.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        until, idle = self.now + seconds, 0
        while (wake := self.broker.next_wake()) <= until:
            idle = idle + 1 if wake <= self.now else 0
            assert idle < 4, "the loop would spin"
            self.now = max(self.now, wake)
            self.do(self.broker.tick(self.now))
        self.now = until
        self.do(self.broker.tick(self.now))
        self.settle()
        for request in self.broker.lives.table:
            assert request.deadline + 1 > self.now, "over its deadline"

    # ---- after each step -----------------------------------------------------------------------------------------

    @invariant()
    def parts_agree(self) -> None:
        self.broker.lives.check()
        assert {r.rid for r in self.broker.lives.table} == {x.rid for x in self.living()}

    @invariant()
    def each_id_once(self) -> None:
        for row in self.store.answer(Enumerate(0, None, 99)).rows:
            ids = Counter(t["id"] for t in self.transcript(row["identity"], row["session"]))
            assert max(ids.values()) == 1

    @invariant()
    def nobody_has_too_many(self) -> None:
        for identity, count in Counter(who for who, _ in self.store.names()).items():
            assert count <= LIMITS.sessions_per_identity, identity

    @invariant()
    def the_worker_has_no_more_than_it_should(self) -> None:
        if self.worker is not None:
            assert len(self.worker) <= 2 * (self.sequences + PREPARE_AHEAD)

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """With room at the worker and nothing asked of the store, who waits has one before it on its session."""
        lives = self.broker.lives
        on_trial = any(request.blamed for request in [*lives.table, *lives.leaving.values()])
        if self.worker is None or self.asked or lives.free() <= 0 or on_trial:
            return
        for request in lives.table:
            if request.state == "queued":
                assert request.held
                assert any(r.talk and r.talk.key == request.talk.key and r.state != "queued" for r in lives.table)

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        for _ in range(3):
            self.time_passes(21.0)
        assert not self.living()
        assert all(len(peer.answers) == 1 for peer in self.peers.values())
        assert self.broker.lives.sessions.away == 0
        self.slow = False
        self.settle()
        assert self.broker.lives.sessions.asked == {}


SessionsMachine.TestCase.settings = settings(
    max_examples=250,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestSessionsMachine = SessionsMachine.TestCase
