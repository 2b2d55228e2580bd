"""Drives a `Broker` without a daemon: events in, instructions out, time as a number that only the test moves."""

from __future__ import annotations

import itertools
from array import array
from typing import Any

import msgspec

from edged.broker.admission import Queue
from edged.broker.broker import Asked, Broker, Output
from edged.broker.instructions import Address, Caller, Emit, Instruction, Note, Raw, Refuse, Reply, Tell
from edged.broker.streams import Stream
from edged.broker.table import Request
from edged.config import Config, Defaults, Limits
from edged.errors import WireError
from edged.messages import (
    Cancel,
    Done,
    Generate,
    Prefilled,
    Priority,
    Prompted,
    Refused,
    Result,
    Sampled,
    Sampling,
    Start,
    TokenizeRequest,
)
from edged.wire import codec

A, B, C = "uid:1", "uid:2", "uid:3"


class PlainEncoder:
    """Replies as JSON, without version and instance."""

    def ok(self, request_id: str | None, fields: dict[str, Any], /) -> bytes:
        return msgspec.json.encode({"ok": True, "id": request_id, **fields})

    def error(self, request_id: str | None, error: WireError, /) -> bytes:
        return msgspec.json.encode({"ok": False, "id": request_id, "error": error.fields()})


def address(name: str, socket: str = "request") -> Address:
    return Address(socket, (name.encode(), b""))


def body(instruction: Instruction) -> tuple[Address, dict[str, Any]] | None:
    """What a peer reads of a reply, an error or a kept result."""
    match instruction:
        case Reply(to=to, id=request_id, fields=fields):
            return to, {"ok": True, "id": request_id, **fields}
        case Refuse(to=to, id=request_id, error=error):
            return to, {"ok": False, "id": request_id, "error": error.fields()}
        case Raw(to=to, body=data):
            return to, msgspec.json.decode(data)
    return None


def answers(out: list[Instruction], to: Address | None = None) -> list[dict[str, Any]]:
    """The bodies, in order; of one address only when `to` is given."""
    found = [pair for pair in map(body, out) if pair is not None]
    return [fields for where, fields in found if to is None or where == to]


def answer(out: list[Instruction], to: Address | None = None) -> dict[str, Any]:
    (one,) = answers(out, to)
    return one


def code(out: list[Instruction], to: Address | None = None) -> str:
    """The code of the only answer, which is an error."""
    one = answer(out, to)
    assert one["ok"] is False
    return one["error"]["code"]


def emits(out: list[Instruction]) -> list[Emit]:
    return [i for i in out if isinstance(i, Emit)]


def events(out: list[Instruction]) -> list[dict[str, Any]]:
    return [e.fields for e in emits(out)]


def kinds(out: list[Instruction]) -> list[str]:
    return [e["type"] for e in events(out)]


def told(out: list[Instruction]) -> list[Any]:
    return [i.message for i in out if isinstance(i, Tell)]


def started(out: list[Instruction]) -> list[int]:
    return [m.rid for m in told(out) if isinstance(m, Start)]


def ended(out: list[Instruction]) -> list[dict[str, Any]]:
    return [i.fields for i in out if isinstance(i, Note) and i.event == "request_end"]


def popped(queue: Queue, *, sessions: bool = True) -> Request | None:
    """The next to be admitted goes."""
    one = queue.first(sessions=sessions)
    if one is not None:
        queue.take(one)
    return one


class Rig:
    """A broker with a ready worker of `sequences` (0: still loading)."""

    def __init__(
        self, sequences: int = 1, defaults: Defaults | None = None, *, topics_from: int = 1, **limits: Any
    ) -> None:
        self.config = Config(limits=Limits(**limits), defaults=defaults or Defaults())
        numbers = itertools.count(topics_from)
        self.broker = Broker(self.config, PlainEncoder(), lambda: f"{next(numbers):032x}", lambda: 7)
        self.now = 0.0
        self._tags = itertools.count(1)
        if sequences:
            assert self.ready(sequences) == []

    @property
    def lives(self) -> Any:
        return self.broker.lives

    def to(self) -> Address:
        """An address that nobody had before."""
        return address(f"peer-{next(self._tags)}")

    def generate(
        self,
        request_id: str | None = None,
        who: str = A,
        to: Address | None = None,
        max_priority: Priority = "high",
        **fields: Any,
    ) -> list[Instruction]:
        if "messages" not in fields:
            fields.setdefault("prompt", "hello")
        request = msgspec.convert({"id": request_id, **fields}, Generate)
        if request.stream is True:
            request = msgspec.structs.replace(request, stream="pub")
        caller = Caller(who, to or self.to(), max_priority)
        return self.checked(self.broker.asked(caller, request, codec.digest(request), self.now))

    def result(self, request_id: str, who: str = A, wait_ms: int = 0, to: Address | None = None) -> list[Instruction]:
        return self.checked(self.broker.asked(Caller(who, to or self.to()), Result(request_id, wait_ms), b"", self.now))

    def cancel(self, request_id: str, who: str = A, identity: str | None = None) -> list[Instruction]:
        return self.checked(self.broker.asked(Caller(who, self.to()), Cancel(request_id, identity), b"", self.now))

    def tokenize(self, who: str = A, to: Address | None = None) -> list[Instruction]:
        return self.ask(TokenizeRequest("t", "some text"), who, to)

    def ask(self, request: Asked, who: str = A, to: Address | None = None) -> list[Instruction]:
        """Any verb but `generate`."""
        return self.checked(self.broker.asked(Caller(who, to or self.to()), request, b"", self.now))

    def heard(self, output: Output) -> list[Instruction]:
        return self.checked(self.broker.heard(output, self.now))

    def rid(self, request_id: str, who: str = A) -> int:
        return self.request(request_id, who).rid

    def request(self, request_id: str, who: str = A) -> Request:
        found = self.lives.table.find(who, request_id)
        assert found is not None
        return found

    def topic(self, request_id: str, who: str = A) -> bytes:
        return self.request(request_id, who).stream.topic.encode()

    def prompted(self, rid: int, tokens: int = 4) -> list[Instruction]:
        return self.heard(Prompted(rid, array("I", range(tokens)).tobytes(), 0, []))

    def prefill(self, rid: int, done: int = 4, total: int = 4) -> list[Instruction]:
        return self.heard(Prefilled(rid, done, total, 0))

    def sample(self, rid: int, text: str, ids: int = 1) -> list[Instruction]:
        return self.heard(Sampled(rid, [1] * ids, text))

    def done(self, rid: int, reason: str = "stop", stop: str | None = None) -> list[Instruction]:
        return self.heard(Done(rid, reason, stop))

    def run(self, rid: int, text: str = "hi") -> list[Instruction]:
        """Starts, reads the prompt and says something."""
        return self.prompted(rid) + self.prefill(rid, 0) + self.prefill(rid) + self.sample(rid, text)

    def fail(self, rid: int) -> list[Instruction]:
        """Ends in a retryable error."""
        return self.heard(Refused(rid, "internal", "a bug of the worker"))

    def subscribe(
        self, topic: bytes, who: str | None = A, connection: str | None = "1"
    ) -> tuple[bool, list[Instruction]]:
        approved, out = self.broker.topics.subscribe(topic, who, connection, self.now)
        return approved, self.checked(out)

    def unsubscribe(self, topic: bytes, connection: str | None = None) -> None:
        self.broker.topics.unsubscribe(topic, connection, self.now)

    def lost(self, cause: str = "SIGABRT") -> list[Instruction]:
        return self.checked(self.broker.worker_lost(cause, self.now))

    def ready(self, sequences: int = 1, model: str = "tiny") -> list[Instruction]:
        return self.checked(self.broker.worker_ready(model, sequences, f"file of {model}", self.now))

    def wait(self, seconds: float) -> list[Instruction]:
        """Lets time pass as the daemon's loop would: a tick at each wake and one at the end."""
        out: list[Instruction] = []
        until, idle = self.now + seconds, 0
        while (wake := self.broker.next_wake()) <= until:
            idle = idle + 1 if wake <= self.now else 0
            assert idle < 4, "the loop would spin"
            self.now = max(self.now, wake)
            out += self.checked(self.broker.tick(self.now))
        self.now = until
        return out + self.checked(self.broker.tick(self.now))

    def checked(self, out: list[Instruction]) -> list[Instruction]:
        self.lives.check()
        return out


def request(
    rid: int, identity: str = A, priority: Priority = "normal", *, received: float = 0.0, **stream: Any
) -> Request:
    """A request by itself, for the parts of the broker."""
    name = f"r{rid}"
    return Request(
        rid=rid,
        identity=identity,
        id=name,
        digest=b"",
        body=Generate(id=name, prompt="x", priority=priority),
        sampling=Sampling(seed=7),
        max_tokens=16,
        received=received,
        deadline_ms=1000,
        stream=Stream(**{"id": name, "topic": f"tok/{rid}/", "mode": False, **stream}),
    )
