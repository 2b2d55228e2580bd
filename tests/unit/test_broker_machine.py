"""Anything that clients, the worker, the network and the clock may do, in any order, against a plain model.

Workers die of anything and are replaced on purpose, by the same model or another; the board gets hot and cools down.
The model knows nothing of the broker's inside: it keeps what was asked, what was answered, what the worker was told
and what it said, who is to blame, and who may hear it. Every text the worker makes carries the number of its request,
so that a text that reaches another caller is seen.
"""

from __future__ import annotations

import itertools
import re
from array import array
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edged.broker.broker import Broker
from edged.broker.instructions import Address, Caller, Emit, Instruction, Note, Tell
from edged.broker.lives import PREPARE_AHEAD
from edged.broker.streams import SILENCE_S
from edged.config import Config, Defaults, Limits
from edged.errors import RETRYABLE, Code
from edged.level import Level
from edged.messages import (
    PRIORITIES,
    Abort,
    Cancel,
    Discard,
    Done,
    Drain,
    Embed,
    Embedded,
    EmbedRequest,
    Generate,
    Gone,
    Message,
    Prefilled,
    Priority,
    Prompted,
    Refused,
    Result,
    Resume,
    Sampled,
    Start,
    Tokenize,
    Tokenized,
    TokenizeRequest,
    Warm,
    Warmed,
    WarmRequest,
)
from edged.wire import codec
from unit.rig import A, B, PlainEncoder, body

IDENTITIES = (A, B)
BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "pub": {"stream": "pub"},
    "reply": {"stream": "reply", "priority": "low"},
    "detached": {"stream": "pub", "detach": True},
    "instead": {"stream": "reply", "supersedes": "plain"},
    "rather": {"supersedes": "pub", "priority": "high"},
}
"""The body that an id mostly has, so that the same request often comes again."""
TWISTS: tuple[dict[str, Any], ...] = ({"prompt": "y"}, {"stream": "pub"}, {"supersedes": "reply"}, {"detach": True})
IDS = tuple(BODIES)
LIMITS = Limits(
    queue=4, queue_per_identity=3, waiters=2, orphan_grace_ms=2000, result_ttl_s=60, results_kept_bytes=10 << 20
)
MOST_SEQUENCES = 2
GRACE = LIMITS.orphan_grace_ms / 1000
MARK = re.compile(r"<(\d+)>")
BLAMED = ("SIGSEGV", "SIGABRT", "stalled")
CAUSES = (*BLAMED, "SIGKILL", "oom", "reload", "heat")
ANEW = RETRYABLE - {Code.WORKER_LOST}
"""Here every worker says what its prompts are, so `worker_lost` is a verdict."""
TOTAL = 40
"""Tokens of every prompt."""


@dataclass
class Life:
    """What the model knows of one accepted request."""

    rid: int
    identity: str
    id: str
    digest: bytes
    mode: str | bool
    detach: bool
    priority: Priority
    topic: str
    deadline: float
    to: Address | None = None
    seq: int = -1
    events: str = ""  # text of the token events, or of the worker's words where there are none
    ids: list[int] = field(default_factory=list)
    n: int = 0
    prompt: bytes = b""
    model: str = ""  # that read the prompt
    runs: bool = False
    carried: bool = False
    restarts: int = 0
    read: int = 0
    blamed: int = 0
    blamed_at: int = 0
    ended: float | None = None
    outcome: str = ""
    listeners: set[str] = field(default_factory=set)
    alone_since: float | None = None

    @property
    def proven(self) -> bool:
        return self.read + len(self.ids) - self.blamed_at >= 32

    @property
    def suspect(self) -> bool:
        return self.blamed == LIMITS.max_restarts and not self.proven

    def carried_on(self, cause: str) -> bool:
        """What a death means to one that the worker had; whether it goes on."""
        if cause in BLAMED:
            self.blamed = 1 if self.proven else self.blamed + 1
            self.blamed_at = self.read + len(self.ids)
        self.restarts += 1
        self.carried, self.runs = self.carried or self.runs, False
        return cause not in BLAMED or self.blamed <= LIMITS.max_restarts

    def afresh(self) -> None:
        self.blamed = 0 if self.proven else self.blamed
        self.ids, self.prompt, self.carried, self.read, self.blamed_at = [], b"", False, 0, 0


@dataclass
class Question:
    """A request of a client that is answered exactly once, at `due` at the latest."""

    identity: str
    op: str
    id: str | None
    due: float
    answers: list[dict[str, Any]] = field(default_factory=list)


class BrokerMachine(RuleBasedStateMachine):
    @initialize(sequences=st.integers(1, 2))
    def begin(self, sequences: int) -> None:
        numbers = itertools.count(1)
        self.now = 0.0
        self.broker = Broker(
            Config(limits=LIMITS, defaults=Defaults(deadline_ms=20_000)),
            PlainEncoder(),
            lambda: f"{next(numbers):032x}",
            lambda: 7,
        )
        self.tags = itertools.count(1)
        self.connections = itertools.count(1)
        self.questions: dict[Address, Question] = {}
        self.lives: dict[int, Life] = {}
        self.sequences = sequences
        self.worker: dict[int, Start] | None = None  # what the worker has; None: there is none
        self.forgotten: list[int] = []
        self.errands: list[Tokenize | Embed | Warm] = []
        self.leaving: dict[int, Life | None] = {}  # aborted, and the worker did not say `Gone`; None: an errand
        self.cause = ""  # why requests may end as cancelled just now
        self.kept_story: list[Emit] = []
        self.level = Level.NORMAL
        self.model = "one"
        self.do(self.broker.worker_ready("one", sequences, "one", self.now))
        self.worker = {}

    # ---- doing what the broker says ------------------------------------------------------------------------------

    def do(self, out: list[Instruction], cause: str = "") -> None:
        self.cause = cause
        for instruction in out:
            match instruction:
                case Tell(message=message):
                    self.tell(message)
                case Emit():
                    self.emitted(instruction)
                case Note(event=event, fields=fields):
                    assert event == "request_end"
                    self.note(fields)
                case _:
                    where, fields = body(instruction)
                    self.replied(where, fields)
        for life in self.living():
            self.look(life)
        for request in self.broker.lives.table:
            assert request.rid in self.lives, "accepted without an answer or a trace"

    def tell(self, message: Any) -> None:
        if isinstance(message, Discard):
            assert not any(start.name == message.name for start in (self.worker or {}).values())
            return
        if self.worker is None:
            assert isinstance(message, Abort), "work for no worker"
            return
        match message:
            case Start():
                self.meet(message.rid)
                self.given(self.lives[message.rid], message)
                assert message.rid not in self.worker
                assert message.rid not in self.forgotten
                assert self.lives[message.rid].ended is None
                self.worker[message.rid] = message
                assert len(self.worker) <= self.sequences + PREPARE_AHEAD
            case Abort():
                assert message.rid not in self.leaving
                self.leaving[message.rid] = self.lives.get(message.rid)
                self.errands = [errand for errand in self.errands if errand.rid != message.rid]
                if self.worker.pop(message.rid, None) is not None:
                    self.forgotten.append(message.rid)
            case Tokenize() | Embed() | Warm():
                assert not any(self.lives[rid].suspect for rid in self.worker), "an errand beside a suspect"
                self.errands.append(message)

    def given(self, life: Life, start: Start) -> None:
        """What it may be given and whether it may be given now."""
        if not life.carried:
            assert start.carried is None
        else:
            assert life.model == self.model, "token ids of another model"
            assert (start.carried.prompt, start.carried.ids) == (life.prompt, array("I", life.ids).tobytes())
        assert self.level < Level.CRITICAL
        if not life.carried and life.model == "":
            assert self.level < Level.HOT or life.priority == "high"
            assert self.level < Level.WARM or life.priority != "low"
        others = [self.lives[rid] for rid in self.worker] + self.left()
        assert not life.suspect or not (self.errands or None in self.leaving.values()), "a suspect beside an errand"
        assert not any(other.suspect for other in others), "beside a suspect"
        assert not life.suspect or all(other.proven for other in others), "a suspect beside one that may be guilty"

    def left(self) -> list[Life]:
        """Requests that the worker may still be at, as they were when they were aborted."""
        return [life for life in self.leaving.values() if life is not None]

    def replied(self, where: Address, fields: dict[str, Any]) -> None:
        question = self.questions[where]
        question.answers.append(fields)
        assert len(question.answers) == 1, "answered twice"
        assert question.id is None or fields["id"] == question.id
        self.private(question.identity, fields)

    def private(self, identity: str, fields: dict[str, Any]) -> None:
        """No text, topic or id of another."""
        for rid in MARK.findall(fields.get("text", "")):
            assert self.lives[int(rid)].identity == identity
        if "topic" in fields:
            assert identity in {r.identity for r in self.broker.lives.table if r.stream.topic == fields["topic"]} | {
                life.identity for life in self.lives.values() if life.topic == fields["topic"]
            }

    def emitted(self, emit: Emit) -> None:
        if emit.rid == 0:
            self.kept_story.append(emit)
            return
        self.meet(emit.rid)
        life, fields = self.lives[emit.rid], emit.fields
        assert life.mode is not False or fields["type"] == "snapshot"
        assert fields["id"] == life.id
        assert emit.topic in (None, life.topic)
        if emit.to is not None:
            assert self.questions[emit.to].identity == life.identity
            assert life.mode == "reply"
        self.private(life.identity, fields)
        if fields["type"] == "snapshot":
            assert life.ended is None
            assert fields["text"] == life.events
            assert life.mode is False or fields["seq"] == life.seq
            if emit.to is not None:
                life.to = emit.to
            return
        assert life.outcome == "", "an event after the end"
        assert emit.to == life.to
        assert (emit.topic is not None) == (life.mode == "pub" or bool(life.listeners))
        assert fields["seq"] == life.seq + 1
        life.seq += 1
        if fields["type"] == "restart":
            assert fields["reason"] == self.cause
            self.told_of.append(life.rid)
        if fields["type"] == "token":
            life.events += fields["text"]
            life.n += fields["n"]
        if fields["type"] == "end":
            life.outcome = "error" if "error" in fields else fields["finish_reason"]
            assert fields.get("text", life.events) == life.events

    def note(self, fields: dict[str, Any]) -> None:
        self.meet(fields["rid"], known=True)
        life = self.lives[fields["rid"]]
        assert life.ended is None, "ended twice"
        life.ended = self.now
        outcome = fields["outcome"]
        if life.mode is not False:
            assert life.outcome, "no end on the stream"
        if self.worker is not None and self.cause not in ("done", "refused"):
            assert life.rid not in self.worker, "the worker was not told"
        if outcome == "cancelled" and self.cause == "tick":
            self.orphan(life)
        life.outcome = outcome

    def orphan(self, life: Life) -> None:
        """Cancelled by the clock: nobody listened for the whole grace."""
        assert life.mode is not False
        assert not life.detach
        assert not life.listeners
        assert life.to is None
        assert life.alone_since is not None
        assert life.alone_since + GRACE <= self.now

    def meet(self, rid: int, *, known: bool = False) -> None:
        """Takes an accepted request into the model."""
        if rid in self.lives:
            return
        assert not known, "ended before it was accepted"
        request = self.broker.lives.table.get(rid)
        assert request is not None
        for other in self.lives.values():
            assert (other.identity, other.id) != (request.identity, request.id) or other.ended is not None, "runs twice"
        self.lives[rid] = Life(
            rid=rid,
            identity=request.identity,
            id=request.id,
            digest=request.digest,
            mode=request.stream.mode,
            detach=request.body.detach,
            priority=request.body.priority,
            topic=request.stream.topic,
            deadline=request.deadline,
            to=request.stream.to,
            alone_since=self.now,
        )

    def living(self) -> list[Life]:
        return [life for life in self.lives.values() if life.ended is None]

    def look(self, life: Life) -> None:
        """Since when nobody listens."""
        waits = any(
            q.identity == life.identity and q.id == life.id and not q.answers and q.op in ("result", "generate")
            for q in self.questions.values()
        )
        if life.listeners or life.to is not None or waits:
            life.alone_since = None
        elif life.alone_since is None:
            life.alone_since = self.now

    def ask(self, identity: str, op: str, request: Any, due: float, socket: str = "request", **who: Any) -> Question:
        to = Address(socket, (f"{next(self.tags)}".encode(), b""))
        question = self.questions[to] = Question(identity, op, request.id, due)
        digest = codec.digest(request) if isinstance(request, Generate) else b""
        before = set(self.broker.lives.table)
        out = self.broker.asked(Caller(identity, to, **who), request, digest, self.now)
        for new in set(self.broker.lives.table) - before:
            self.meet(new.rid)
        self.do(out, op)
        return question

    # ---- clients -------------------------------------------------------------------------------------------------

    @rule(
        asked=st.lists(
            st.tuples(
                st.sampled_from(IDENTITIES),
                st.sampled_from(IDS),
                st.sampled_from([{}] * 8 + list(TWISTS)),
                st.sampled_from([None, None, 3000, 30_000]),
                st.sampled_from(["high", "high", "high", "normal"]),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def generate(self, asked: list[tuple[str, str, dict[str, Any], int | None, Priority]]) -> None:
        for identity, name, twist, deadline_ms, max_priority in asked:
            self.generated(identity, name, BODIES[name] | twist, deadline_ms, max_priority)

    @rule(
        identity=st.sampled_from(IDENTITIES),
        stream=st.sampled_from([False, "pub", "reply"]),
        priority=st.sampled_from(PRIORITIES),
        supersedes=st.sampled_from([None, *IDS]),
    )
    def generate_without_an_id(self, identity: str, **fields: Any) -> None:
        self.generated(identity, None, fields, None, "high")

    def generated(
        self, identity: str, name: str | None, fields: dict[str, Any], deadline_ms: int | None, max_priority: Priority
    ) -> None:
        request = Generate(id=name, deadline_ms=deadline_ms, **{"prompt": "x", **fields})
        supersedes = request.supersedes
        digest = codec.digest(request)
        live = next((x for x in self.living() if (x.identity, x.id) == (identity, name)), None)
        past = [x for x in self.lives.values() if (x.identity, x.id) == (identity, name) and x.ended is not None]
        kept = past[-1] if past else None
        if kept is not None and kept.ended + LIMITS.result_ttl_s <= self.now:
            kept = None
        known = live or kept
        count = len(self.lives)
        old = next((x for x in self.living() if (x.identity, x.id) == (identity, supersedes)), None)
        due = live.deadline if live else self.now + (deadline_ms or 20_000) / 1000
        question = self.ask(identity, "generate", request, due, max_priority=max_priority)
        new = len(self.lives) - count
        first = question.answers[0] if question.answers else None
        assert (first is None) <= (request.stream is False), "a stream waits for its ticket"
        refused = first is not None and not first["ok"]
        if known is not None and known.digest != digest:
            assert (new, first["error"]["code"]) == (0, "id_conflict")
        elif known is not None and (live or known.outcome not in ANEW):
            assert new == 0, "ran twice"
            assert live or first is not None
        else:
            assert new == (not refused)
            if refused:
                assert first["error"]["code"] in ("busy", "forbidden", "unavailable", "overheated")
                assert first["error"]["code"] != "overheated" or self.level > Level.WARM
        if old is not None:
            assert (old.ended is not None) == (new == 1), "superseded by nothing, or not at all"
            if refused:
                assert first["error"]["code"] != "busy"
        if new == 1:
            life = next(reversed(self.lives.values()))
            assert life.deadline == due
            assert first is None or first["deadline_ms"] == round((due - self.now) * 1000)
        if live and first is not None and first["ok"] and live.mode == "reply":
            assert self.questions[live.to] is question, "the newest connection takes the stream over"
        self.story_of(kept if known is kept and not refused and new == 0 else None, request.stream == "reply", question)

    def story_of(self, kept: Life | None, expected: bool, question: Question) -> None:
        story, self.kept_story = self.kept_story, []
        if kept is None or not expected:
            assert not story
            return
        assert all(e.topic is None and self.questions[e.to] is question for e in story)
        self.told_whole(kept, story)

    def told_whole(self, kept: Life, story: list[Emit]) -> None:
        shot, end = (e.fields for e in story)
        assert (shot["type"], shot["state"], shot["text"], end["type"]) == ("snapshot", "finished", kept.events, "end")
        assert end["seq"] == shot["seq"] + 1
        assert kept.mode is False or end["seq"] == kept.seq
        assert end["id"] == shot["id"] == kept.id

    @rule(
        identity=st.sampled_from(IDENTITIES),
        name=st.sampled_from(IDS),
        wait_ms=st.sampled_from([0, 1000, 9000, 60_000]),
    )
    def result(self, identity: str, name: str, wait_ms: int) -> None:
        question = self.ask(identity, "result", Result(name, wait_ms), self.now + wait_ms / 1000)
        live = any((x.identity, x.id) == (identity, name) for x in self.living())
        if question.answers and question.answers[0].get("state"):
            assert live
        if wait_ms == 0 or not live:
            assert question.answers

    @rule(
        identity=st.sampled_from(IDENTITIES),
        name=st.sampled_from(IDS),
        other=st.sampled_from([None, None, *IDENTITIES]),
    )
    def cancel(self, identity: str, name: str, other: str | None) -> None:
        owner = other or identity
        live = [x for x in self.living() if (x.identity, x.id) == (owner, name)]
        others = [x for x in self.living() if x not in live]
        socket = "control" if other else "request"
        question = self.ask(identity, "cancel", Cancel(name, other), self.now, socket)
        for life in live:
            assert question.answers[0]["state"] == life.outcome == "cancelled"
        assert all(x.ended is None for x in others)

    @rule(
        what=st.sampled_from(["tokenize", "embed", "warm", "resume", "resume", "drain"]),
        identity=st.sampled_from(IDENTITIES),
    )
    def something_else(self, what: str, identity: str) -> None:
        match what:
            case "tokenize":
                self.ask(identity, "tokenize", TokenizeRequest(None, "text"), self.now + 10)
            case "embed":
                self.ask(identity, "embed", EmbedRequest(["text", "other"]), self.now + 20)
            case "warm":
                self.ask(identity, "warm", WarmRequest([Message("user", "text")]), self.now + 20)
            case "drain":
                self.ask(A, "drain", Drain(), self.now, "control")
            case _:
                self.ask(A, "resume", Resume(), self.now, "control")

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), identity=st.sampled_from([*IDENTITIES, None]), shape=st.sampled_from(["{}", "{}", "{}x", ""]))
    def subscribe(self, data: st.DataObject, identity: str | None, shape: str) -> None:
        life = data.draw(st.sampled_from(list(self.lives.values())[-12:]))
        if data.draw(st.booleans()):
            identity = life.identity
        topic = shape.format(life.topic)
        connection = str(next(self.connections))
        exact = topic == life.topic
        if exact and life.ended is None:
            life.listeners.add(connection)
        approved, out = self.broker.topics.subscribe(topic.encode(), identity, connection, self.now)
        self.do(out)
        story, self.kept_story = self.kept_story, []
        if not exact or identity != life.identity:
            assert (approved, out) == (False, [])
        elif life.ended is None:
            assert approved
            assert [i.fields["type"] for i in out] == ["snapshot"]
            assert out[0].to is None
        elif approved:
            assert all(e.topic == topic and e.to is None for e in story)
            self.told_whole(life, story)
        else:
            anew = [x for x in self.lives.values() if (x.identity, x.id) == (life.identity, life.id)][-1]
            assert anew is not life or life.ended + LIMITS.result_ttl_s <= self.now

    @precondition(lambda self: any(x.listeners for x in self.living()))
    @rule(data=st.data(), named=st.booleans())
    def unsubscribe(self, data: st.DataObject, named: bool) -> None:
        life = data.draw(st.sampled_from([x for x in self.living() if x.listeners]))
        one = data.draw(st.sampled_from(sorted(life.listeners)))
        life.listeners.discard(one)
        self.broker.topics.unsubscribe(life.topic.encode(), one if named else None, self.now)
        self.do([])

    @rule()
    def rebound(self) -> None:
        for life in self.living():
            life.listeners.clear()
            life.alone_since = self.now + SILENCE_S
        self.broker.topics.rebound(self.now)
        self.do([])

    @precondition(lambda self: any(x.to for x in self.living()))
    @rule(data=st.data())
    def unreachable(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from([x for x in self.living() if x.to]))
        life.to = None
        self.broker.topics.unreachable(life.rid, self.now)
        self.do([])

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def lagged(self, data: st.DataObject) -> None:
        self.broker.topics.lagged(data.draw(st.sampled_from(list(self.lives))))

    # ---- the worker ----------------------------------------------------------------------------------------------

    def hear(self, output: Any, cause: str = "") -> None:
        self.do(self.broker.heard(output, self.now), cause)

    @precondition(lambda self: self.worker)
    @rule(
        data=st.data(), steps=st.lists(st.sampled_from(["read", "say", "say", "say", "done"]), min_size=1, max_size=6)
    )
    def work(self, data: st.DataObject, steps: list[str]) -> None:
        for step in steps:
            if self.worker:
                life = self.lives[data.draw(st.sampled_from(sorted(self.worker)))]
                getattr(self, f"worker_{step}")(data, life)

    def worker_prompted(self, life: Life) -> None:
        """A worker tells it once of each request that it was not given carried."""
        if life.carried or life.prompt:
            return
        life.prompt, life.model = array("I", [life.rid, len(self.model)]).tobytes(), self.model
        self.hear(Prompted(life.rid, life.prompt, 0, []))

    def worker_read(self, data: st.DataObject, life: Life) -> None:
        self.worker_prompted(life)
        done = data.draw(st.integers(0, TOTAL))
        if done:
            life.runs, life.read = True, max(life.read, done)
        self.hear(Prefilled(life.rid, done, TOTAL, 0))

    def worker_say(self, data: st.DataObject, life: Life) -> None:
        self.worker_prompted(life)
        said = data.draw(st.sampled_from(["<{}>", "<{}>", "é😀", ""])).format(life.rid)
        ids = [len(life.ids) + n for n in range(data.draw(st.sampled_from([0, 1, 2, 3, 20])))]
        life.ids += ids
        life.runs = True
        if life.mode is False:
            life.events += said
        self.hear(Sampled(life.rid, ids, said))

    def worker_done(self, data: st.DataObject, life: Life) -> None:
        reason = data.draw(st.sampled_from(["stop", "length"]))
        del self.worker[life.rid]
        self.hear(Done(life.rid, reason, None), "done")
        assert (life.ended, life.outcome) == (self.now, reason)
        kept = msgspec.json.decode(self.broker.lives.results.find(life.identity, life.id).body)
        assert (kept["text"], kept["usage"]["completion_tokens"]) == (life.events, len(life.ids))
        assert kept["restarts"] == life.restarts
        assert life.mode is False or life.n <= len(life.ids)

    @precondition(lambda self: self.worker)
    @rule(data=st.data(), code=st.sampled_from(["context_overflow", "bad_request", "internal", "nonsense"]))
    def refuse(self, data: st.DataObject, code: str) -> None:
        rid = data.draw(st.sampled_from(sorted(self.worker)))
        del self.worker[rid]
        self.hear(Refused(rid, code, "why"), "refused")
        assert self.lives[rid].ended == self.now

    @precondition(lambda self: self.forgotten)
    @rule(data=st.data(), kind=st.sampled_from([0, 1, 2, 3]))
    def late_words(self, data: st.DataObject, kind: int) -> None:
        rid = data.draw(st.sampled_from(self.forgotten))
        words = (Prefilled(rid, 1, 4, 0), Sampled(rid, [1], "late"), Done(rid, "stop", None), Refused(rid, "x", "y"))
        assert self.broker.heard(words[kind], self.now) == []

    @precondition(lambda self: self.leaving)
    @rule(data=st.data(), count=st.integers(1, 3))
    def lets_go(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.leaving))):
            rid = data.draw(st.sampled_from(sorted(self.leaving)))
            del self.leaving[rid]
            self.hear(Gone(rid))

    @precondition(lambda self: self.errands)
    @rule(refuse=st.booleans())
    def errand_done(self, refuse: bool) -> None:
        errand = self.errands.pop(0)
        match errand:
            case Tokenize(rid=rid):
                done = Tokenized(rid, [1, 2], True)
            case Embed(rid=rid, inputs=texts):
                done = Embedded(rid, [b"[1.0]"] * len(texts), 2)
            case Warm(rid=rid):
                done = Warmed(rid, 2, 1)
        self.hear(Refused(errand.rid, "bad_request", "why") if refuse else done)

    @precondition(lambda self: self.worker is not None and (self.worker or self.errands or self.leaving))
    @rule(cause=st.sampled_from(CAUSES))
    def worker_dies(self, cause: str) -> None:
        had = [self.lives[rid] for rid in self.worker]
        self.worker = None
        self.errands.clear()
        self.leaving.clear()
        self.forgotten.clear()
        self.told_of: list[int] = []
        expected = {life.rid: life.carried_on(cause) for life in had}
        for life in had:
            if not life.carried:
                life.prompt = b""
        self.do(self.broker.worker_lost(cause, self.now), cause)
        assert {rid: self.lives[rid].outcome == "" for rid in expected} == expected, (cause, had)
        assert sorted(self.told_of) == sorted(x.rid for x in had if x.carried and x.mode is not False)
        for life in had:
            if life.outcome:
                kept = msgspec.json.decode(self.broker.lives.results.find(life.identity, life.id).body)
                assert (kept["error"]["code"], kept["error"]["retryable"]) == ("worker_lost", False)

    @precondition(lambda self: self.worker is None)
    @rule(sequences=st.integers(1, 2), model=st.sampled_from(["one", "one", "another"]))
    def worker_returns(self, sequences: int, model: str) -> None:
        other = [life for life in self.living() if life.carried and life.model != model]
        texts = {life.rid: life.events for life in other}
        for life in other:
            if not life.events:
                life.afresh()
        self.worker, self.sequences, self.model = {}, sequences, model
        self.do(self.broker.worker_ready(model, sequences, model, self.now))
        assert all(self.lives[rid].outcome == ("length" if text else "") for rid, text in texts.items())

    @precondition(lambda self: self.worker)
    @rule(
        data=st.data(),
        rounds=st.lists(
            st.tuples(st.sampled_from(["", "read", "say", "say"]), st.sampled_from([*CAUSES, *BLAMED, *BLAMED])),
            min_size=1,
            max_size=5,
        ),
        model=st.sampled_from(["one", "one", "one", "another"]),
        news=st.booleans(),
    )
    def hard_times(self, data: st.DataObject, rounds: list[tuple[str, str]], model: str, news: bool) -> None:
        """One death after the other, with whatever the worker got to between them."""
        if news:
            who = data.draw(st.sampled_from(IDENTITIES))
            self.generated(who, None, {"stream": "pub", "detach": True}, None, "high")
        for number, (step, cause) in enumerate(rounds):
            for rid in sorted(self.worker or ()):
                if step and data.draw(st.booleans()):
                    getattr(self, f"worker_{step}")(data, self.lives[rid])
            if not self.worker:
                return
            self.worker_dies(cause)
            self.worker_returns(2, model if number == len(rounds) - 1 else self.model)

    @precondition(lambda self: self.worker is None)
    @rule()
    def unloaded(self) -> None:
        self.broker.unloaded()
        self.broker.trying_again()

    @rule(level=st.sampled_from([Level.NORMAL, *Level]))
    def pressed(self, level: Level) -> None:
        self.level = level
        self.do(self.broker.pressed(level, Code.OVERHEATED if level else None, 5000, "hot", self.now))

    @precondition(lambda self: self.worker is None)
    @rule(sure=st.sampled_from([True, False, False]))
    def given_up(self, sure: bool) -> None:
        if sure:
            self.do(self.broker.unavailable("died too often", self.now + 30, self.now), "unavailable")
            assert not self.living()

    # ---- time ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.001, 0.5, 0.5, 1.9, 1.9, 2.1, 5.0, 21.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        until, idle = self.now + seconds, 0
        while (wake := self.broker.next_wake()) <= until:
            idle = idle + 1 if wake <= self.now else 0
            assert idle < 4, "the loop would spin"
            self.now = max(self.now, wake)
            self.do(self.broker.tick(self.now), "tick")
            self.on_time()
        self.now = until
        self.do(self.broker.tick(self.now), "tick")
        self.on_time()

    def on_time(self) -> None:
        for life in self.living():
            assert life.deadline > self.now, "over its deadline"
            if life.mode is not False and not life.detach and life.alone_since is not None:
                assert life.alone_since + GRACE > self.now, "an orphan lives"
        for question in self.questions.values():
            assert question.answers or question.due > self.now, "nobody answered"
        for request in self.broker.lives.table:
            if request.stream.mode is not False and request.waits:
                assert self.now - request.stream.last_event < 5, "nothing heard while it waits"

    # ---- after each step -----------------------------------------------------------------------------------------

    @invariant()
    def parts_agree(self) -> None:
        self.broker.lives.check()
        assert {r.rid for r in self.broker.lives.table} == {x.rid for x in self.living()}

    @invariant()
    def the_worker_has_what_the_table_says(self) -> None:
        with_worker = {r.rid for r in self.broker.lives.table if r.state in ("given", "running")}
        assert with_worker == set(self.worker or ())
        assert len(with_worker) <= self.sequences + PREPARE_AHEAD

    @invariant()
    def a_worker_that_owes_something_is_watched(self) -> None:
        assert self.broker.has_work == bool(self.worker or self.errands or self.leaving)

    @invariant()
    def nobody_waits_while_there_is_room(self) -> None:
        tried = any(life.blamed for life in self.living()) or any(life.suspect for life in self.left())
        if self.level is Level.NORMAL and not tried:
            room = self.worker is not None and len(self.worker) < self.sequences + PREPARE_AHEAD
            assert not room or len(self.broker.lives.queue) == 0

    @invariant()
    def the_worker_alone_is_never_without_work(self) -> None:
        """Whoever is on trial: an idle worker gets whatever may go, as soon as it has let go of everything else."""
        if self.worker == {} and not self.errands and not self.leaving and self.level is Level.NORMAL:
            assert len(self.broker.lives.queue) == 0

    @invariant()
    def the_queue_is_bounded(self) -> None:
        room = MOST_SEQUENCES + PREPARE_AHEAD  # what was given may return, of a larger worker before this one too
        assert len(self.broker.lives.queue) <= LIMITS.queue + room

    @invariant()
    def texts_are_those_of_the_events(self) -> None:
        for life in self.living():
            request = self.broker.lives.table.get(life.rid)
            assert (request.stream.text, len(request.ids)) == (life.events, len(life.ids))
            assert (request.restarts, request.blamed > LIMITS.max_restarts) == (life.restarts, False)
            assert request.carried == (life.carried and bool(life.prompt))
            assert life.mode is False or request.stream.seq == life.seq
            assert len(request.waiters) <= LIMITS.waiters

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        for _ in range(3):
            self.time_passes(31.0)
        assert not self.living()
        assert len(self.broker.lives.table) == len(self.broker.lives.queue) == 0
        assert all(len(q.answers) == 1 for q in self.questions.values())
        assert all(life.outcome for life in self.lives.values())
        self.time_passes(LIMITS.result_ttl_s)
        assert len(self.broker.lives.results) == 0
        assert self.broker.next_wake() == float("inf")


BrokerMachine.TestCase.settings = settings(
    max_examples=300,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestBrokerMachine = BrokerMachine.TestCase
