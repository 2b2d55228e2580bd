"""Targets: what peers send. Request bodies, frames on `stream`, ZAP requests; and what a worker says on the link."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec
from unit.rig import A, B, Rig

from edged.broker.instructions import Emit, Instruction
from edged.config import Limits
from edged.keyfile import to_z85
from edged.keyring import Known
from edged.link import DownReader, LinkError, UpReader
from edged.subscriptions import Subscriptions
from edged.wire import codec
from edged.wire.auth import ADDRESS, CONNECTION, CONTROL_DOMAIN, DOMAIN, KEY, Auth, Peer
from edged.wire.bans import Bans
from edged.wire.door import Offender
from edged.wire.incoming import Subscription

from .target import check_message, skeleton

# ---- request bodies

LIMITS = Limits(request_bytes=200_000)


def request(body: bytes) -> str:
    """As it comes in on either socket; what is accepted is accepted again when it is written out."""
    try:
        plain = codec.decode(body, LIMITS, socket_type="DEALER")
    except codec.RejectedError as rejected:
        _check_reply(rejected)
        plain = None
    try:
        decoded = codec.decode(body, LIMITS, control=True, socket_type="REQ")
    except codec.RejectedError as rejected:
        _check_reply(rejected)
        raise
    assert plain is None or plain == decoded, "the socket it came in on changes what it says"
    op = next(op for op, kind in ALL_OPS.items() if type(decoded) is kind)
    fields = {key: value for key, value in msgspec.to_builtins(decoded).items() if value is not None}
    again = codec.decode(json.dumps({"op": op, **fields}).encode(), LIMITS, control=True, socket_type="DEALER")
    assert again == decoded, "it is another one when it is written out"
    if op == "generate":
        assert codec.digest(again) == codec.digest(decoded)
    return op


ALL_OPS = {**codec.REQUEST_OPS, **codec.CONTROL_OPS}
_encoder = codec.Encoder("0123abcd")


def _check_reply(rejected: codec.RejectedError) -> None:
    check_message(rejected.message)
    reply = json.loads(_encoder.error(rejected.id, rejected))
    assert reply["id"] is None or 1 <= len(reply["id"]) <= 64
    assert reply["error"]["retryable"] is False


# ---- frames on `stream`

_KINDS = {b"+": b"\1", b"-": b"\0", b"*": b""}


def frames_of(data: bytes, topics: list[bytes]) -> list[Subscription]:
    """A line is: how often, connection, identity, frame. `-`: it does not say. A frame begins with `+` (subscribe),
    `-` (cancel), `*` (anything else); `@0`, `@1`… stand for topics that are there."""
    out: list[Subscription] = []
    for line in data.split(b"\n")[:200]:
        words = line.split(b" ", 3)
        if len(words) == 4 and words[0].isdigit():
            times, connection, identity, frame = words
            for number, topic in enumerate(topics):
                frame = frame.replace(b"@%d" % number, topic)
            one = Subscription(
                data=_KINDS.get(frame[:1], frame[:1]) + frame[1:],
                identity=None if identity == b"-" else {b"a": A, b"b": B}.get(identity, repr(identity)),
                connection=None if connection == b"-" else connection.decode("latin-1")[:20],
                address="localhost:1:1:7",
            )
            out += [one] * min(int(times[:5]), 5000)
    return out[:6000]


class _Stream:
    """Stands for the sockets, and watches what is approved."""

    def __init__(self, frames: list[Subscription], owners: dict[bytes, str]) -> None:
        self.frames, self.owners = frames[::-1], owners
        self.at: Subscription | None = None
        self.approved: list[bytes] = []
        self.rebound = 0
        self.door = self
        self.rescued = False

    def offence(self, who: Offender, why: str, now: float) -> None:
        assert self.at is not None
        assert who.address == self.at.address

    def receive_subscription(self, now: float) -> Subscription | None:
        self.at = self.frames.pop() if self.frames else None
        return self.at

    def approve(self, topic: bytes) -> None:
        assert self.at is not None
        assert self.at.data == b"\1" + topic
        mine = self.at.identity is not None and self.owners.get(topic) == self.at.identity
        assert topic.startswith(b"sys/") or mine, f"{topic!r} approved for {self.at.identity}"
        self.approved.append(topic)

    def remove(self, topic: bytes, *, named: bool) -> None:
        assert self.at is not None
        assert named == (self.at.connection is not None)

    def living(self, connections: Collection[str], now: float) -> list[str]:
        return list(connections)

    def put_out(self, connections: Collection[str], why: str, now: float, *, offence: bool) -> None:
        assert connections

    def rebind_stream(self, now: float) -> None:
        self.rebound += 1
        self.at = None  # an approval would go to nobody knows whom


class _Log:
    def warning(self, event: str, **fields: Any) -> None:
        pass


def subscriptions(data: bytes) -> str:
    """Only `sys/` and the caller's own topics are approved, each of those is made whole, and all frames are read."""
    rig = Rig()
    for name, who in (("live", A), ("other", B), ("kept", A)):
        rig.generate(name, who, stream="pub", prompt="secret")
    owners = {rig.topic(name, who): who for name, who in (("live", A), ("other", B), ("kept", A))}
    rig.cancel("kept")
    stream = _Stream(frames_of(data, list(owners)), owners)
    snapshots: Counter[bytes] = Counter()

    def do(instructions: list[Instruction], _now: float) -> None:
        snapshots.update(
            i.topic.encode() for i in instructions if isinstance(i, Emit) and i.fields["type"] == "snapshot"
        )

    counters: Counter[str] = Counter()
    subject = Subscriptions(stream, rig.broker.topics, do, _Log(), counters)  # type: ignore[arg-type]
    turns = len(stream.frames) + 1
    while stream.frames:
        subject.read(rig.now)
        turns -= 1
        assert turns >= 0, "frames are not taken"
    rig.lives.check()
    assert snapshots == Counter(topic for topic in stream.approved if topic in owners)
    assert counters["tainted"] == stream.rebound
    return f"{bool(stream.approved)} {bool(stream.rebound)} {bool(snapshots)} {bool(counters['subscriptions_refused'])}"


# ---- ZAP

PUBLIC = bytes(range(32))
CLIENTS = {PUBLIC: Known(to_z85(PUBLIC), "kitchen")}


class _Door:
    """Bans, as the door asks for them; there is always room."""

    def __init__(self) -> None:
        self.bans = Bans(60)
        self.let_in: Peer | None = None
        self.admitted = 0

    def admit(self, peer: Peer, address: str, now: float, *, operator: bool) -> tuple[bytes, str] | None:
        held = None if operator else self.bans.status((peer.key, peer.identity), now)
        self.let_in = peer if held is None else None
        self.admitted += held is None
        return None if held is None else (held, "banned for a while")


def zap(data: bytes) -> str:
    """A line is a frame (`\\n` in one is a newline, `@K` the key of the one client that is known); the length of all
    says whether there are keys, and whether TCP may come without. Nobody is let in without a name and a number."""
    frames = [line.replace(b"\\n", b"\n").replace(b"@K", PUBLIC) for line in data.split(b"\n")][:64]
    with_keys, insecure = bool(len(data) & 2), bool(len(data) & 1)
    door = _Door()
    auth = Auth(allow_tcp=insecure, door=door, clients=CLIENTS if with_keys else None)
    answer = auth.answer(frames, 1.0)
    if answer is None:
        return "none"
    delimiter = frames.index(b"")
    assert answer[: delimiter + 1] == frames[: delimiter + 1]
    version, _, status, _, user, metadata = answer[delimiter + 1 :]
    assert version == b"1.0"
    if status != b"200":
        assert status == b"400"
        assert (user, metadata) == (b"", b"")
        return f"{status.decode()} {auth.refused is not None and auth.refused.key is not None}"
    assert frames[delimiter + 1] == b"1.0"
    assert frames[delimiter + 3] in (DOMAIN, CONTROL_DOMAIN)
    address, mechanism = frames[delimiter + 4].decode("ascii", "replace"), frames[delimiter + 6]
    number = _property(CONNECTION, b"1")
    if mechanism == b"CURVE":
        assert with_keys
        assert frames[delimiter + 7 :] == [PUBLIC]
        assert user == b"kitchen"
        assert metadata == number + _property(KEY, to_z85(PUBLIC).encode()) + _property(ADDRESS, address.encode())
    else:
        assert mechanism == b"NULL"
        assert user.startswith((b"uid:", b"ip:"))
        assert user.startswith(b"uid:") or (insecure and not with_keys), "TCP without a key"
        assert len(user) <= 8 + len(address.encode())
        assert metadata == number + _property(KEY, b"") + _property(ADDRESS, address.encode())
    assert door.let_in is not None
    door.bans.offence(door.let_in.key, door.let_in.identity, 2.0)
    again = auth.answer(frames, 3.0)
    assert again is not None
    operator = frames[delimiter + 3] == CONTROL_DOMAIN
    assert (again[delimiter + 3] == b"200") == operator, "a ban is for all but operators"
    return f"200 {user[:4]!r}"


def _property(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + len(value).to_bytes(4, "big") + value


# ---- the link


def link(data: bytes) -> str:
    """The first byte says in how large pieces the rest arrives; what comes out does not depend on it."""
    size, rest = (data[0] or 1, data[1:]) if data else (1, b"")
    pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
    return " / ".join(_link(reader, rest, pieces) for reader in (UpReader, DownReader))


def _link(reader: type[UpReader | DownReader], whole: bytes, pieces: list[bytes]) -> str:
    """A LinkError goes to the log alone, which shows it in one printable line."""
    try:
        messages = reader().feed(whole)
    except LinkError as error:
        return skeleton(str(error))
    bit_by_bit, found = reader(), []
    for piece in pieces:
        found += bit_by_bit.feed(piece)
    assert repr(found) == repr(messages)  # repr: NaN is not itself
    return " ".join(sorted({type(message).__name__ for message in messages}))
