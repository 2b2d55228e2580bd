"""The ZAP handler's rules: who is let in, as whom (protocol 9)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.keyfile import to_z85
from edged.keyring import Clients, Known
from edged.wire.auth import ADDRESS, CONNECTION, CONTROL_DOMAIN, DOMAIN, KEY, Auth, Peer, peer_of

IPC = b"localhost:1000:1001:4321"


def ask(address: bytes = IPC, *, version: bytes = b"1.0", domain: bytes = DOMAIN, mechanism: bytes = b"NULL") -> list:
    return [b"peer", b"", version, b"7", domain, address, b"", mechanism]


class Door:
    """Refuses what it is told to, and writes down who was asked for."""

    def __init__(self, refusal: tuple[bytes, str] | None = None) -> None:
        self.refusal = refusal
        self.asked: list[tuple[Peer, str, bool]] = []
        self.admitted = 0

    def admit(self, peer: Peer, address: str, now: float, *, operator: bool) -> tuple[bytes, str] | None:
        self.asked.append((peer, address, operator))
        self.admitted += 1
        return self.refusal


def auth(*, allow_tcp: bool = False, clients: Clients | None = None, door: Door | None = None) -> Auth:
    return Auth(allow_tcp=allow_tcp, door=door or Door(), clients=clients)


ADA, BOB = b"a" * 32, b"b" * 32
CLIENTS = {raw: Known(to_z85(raw), identity) for raw, identity in ((ADA, "name:ada"), (BOB, f"key:{to_z85(BOB)}"))}


def curve(*credentials: bytes, address: bytes = b"10.0.0.7") -> list[bytes]:
    return [*ask(address, mechanism=b"CURVE"), *credentials]


def status(answer: list[bytes] | None) -> bytes:
    assert answer is not None
    head, rest = answer[:4], answer[4:]
    assert head == [b"peer", b"", b"1.0", b"7"]
    code, text, user, metadata = rest
    assert text
    if code != b"200":
        assert (user, metadata) == (b"", b"")
    return code


def metadata(answer: list[bytes] | None) -> dict[str, str]:
    """Read as ZMTP 3.1 says."""
    assert answer is not None
    data, found = answer[-1], {}
    while data:
        name, (length,) = data[1 : 1 + data[0]], struct.unpack_from(">I", data, 1 + data[0])
        at = 5 + data[0]
        assert len(data) >= at + length
        found[name.decode()], data = data[at : at + length].decode(), data[at + length :]
    return found


def connection(answer: list[bytes] | None) -> str:
    return metadata(answer)[CONNECTION]


def test_on_ipc_the_caller_is_the_uid() -> None:
    answer = auth().answer(ask(), 0.0)
    assert status(answer) == b"200"
    assert answer[6] == b"uid:1000"


def test_every_connection_has_a_number_of_its_own() -> None:
    one = auth()
    assert len({connection(one.answer(ask(), 0.0)) for _ in range(300)}) == 300


def test_every_name_that_is_believed_is_said_for_everybody() -> None:
    """What is left open here the peer's own READY fills."""
    for one, asked in (
        (auth(), ask()),
        (auth(), ask(domain=CONTROL_DOMAIN)),
        (auth(allow_tcp=True), ask(b"10.0.0.7")),
        (auth(clients=CLIENTS), curve(ADA)),
    ):
        said = metadata(one.answer(asked, 0.0))
        assert set(said) == {CONNECTION, KEY, ADDRESS}
        assert said[KEY] == (to_z85(ADA) if ADA in asked else "")
        assert said[ADDRESS] == asked[5].decode()


def test_tcp_only_where_it_is_allowed() -> None:
    assert status(auth().answer(ask(b"10.0.0.7"), 0.0)) == b"400"
    answer = auth(allow_tcp=True).answer(ask(b"10.0.0.7"), 0.0)
    assert status(answer) == b"200"
    assert answer[6] == b"ip:10.0.0.7"


@pytest.mark.parametrize("allow_tcp", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        {"version": b"1.1"},
        {"version": b""},
        {"domain": b""},
        {"domain": b"global"},
        {"mechanism": b"PLAIN"},
        {"mechanism": b"CURVE"},
        {"mechanism": b""},
        {"address": b""},
    ],
)
def test_what_is_not_ours_is_refused(wrong: dict[str, bytes], allow_tcp: bool) -> None:
    assert status(auth(allow_tcp=allow_tcp).answer(ask(**wrong), 0.0)) == b"400"


@pytest.mark.parametrize(
    "address",
    [
        b"localhost:1000:1001",
        b"localhost::1:1",
        b"localhost:-1:1:1",
        b"localhost:1:2:3:4",
        b"xlocalhost:1:2:3",
        b"localhost:1:2:3\n",
        b"localhost:1:2:3 ",
        "localhost:١:٢:٣".encode(),
        b"\xff\xff",
    ],
)
def test_an_ipc_address_is_exactly_that(address: bytes) -> None:
    assert status(auth().answer(ask(address), 0.0)) == b"400"


@pytest.mark.parametrize("frames", [[], [b"peer"], [b"peer", b""], [b"peer", b"", b"1.0", b"7", DOMAIN, IPC, b""]])
def test_what_is_not_a_request_is_dropped(frames: list[bytes]) -> None:
    assert auth().answer(frames, 0.0) is None


def test_with_a_key_the_caller_is_its_owner() -> None:
    one = auth(clients=CLIENTS)
    for raw, identity in ((ADA, b"name:ada"), (BOB, f"key:{to_z85(BOB)}".encode())):
        answer = one.answer(curve(raw), 0.0)
        assert status(answer) == b"200"
        assert answer[6] == identity
        assert metadata(answer)[KEY] == to_z85(raw)
    assert one.refused is None


@pytest.mark.parametrize(
    "credentials",
    [[], [b""], [b"c" * 32], [ADA[:-1]], [ADA + b"a"], [ADA, ADA], [b"", ADA], [to_z85(ADA).encode()]],
)
def test_any_other_key_is_refused(credentials: list[bytes]) -> None:
    one = auth(clients=CLIENTS)
    assert status(one.answer(curve(*credentials), 0.0)) == b"400"
    assert one.refused is not None
    assert one.refused.key == (to_z85(b"c" * 32) if credentials == [b"c" * 32] else None)
    assert status(one.answer([*ask(b"10.0.0.7", mechanism=b"PLAIN"), *credentials], 0.0)) == b"400"


def test_with_keys_nobody_comes_over_tcp_without() -> None:
    one = auth(allow_tcp=True, clients=CLIENTS)
    assert status(one.answer(ask(b"10.0.0.7"), 0.0)) == b"400"
    assert status(one.answer([*ask(b"10.0.0.7"), ADA], 0.0)) == b"400"
    assert status(one.answer(ask(), 0.0)) == b"200"


def test_a_key_is_nothing_where_there_are_none() -> None:
    assert status(auth(allow_tcp=True).answer(curve(ADA), 0.0)) == b"400"
    assert status(auth(allow_tcp=True, clients={}).answer(curve(ADA), 0.0)) == b"400"


def test_credentials_change_nothing() -> None:
    assert status(auth().answer([*ask(), b"key", b"more"], 0.0)) == b"200"


@given(
    st.lists(st.binary(max_size=34) | st.sampled_from([b"", b"CURVE", ADA, *ask()]), max_size=12)
    | st.lists(st.sampled_from([b"", ADA, BOB, b"c" * 32]), max_size=2).map(lambda found: curve(*found)),
    st.booleans(),
    st.booleans(),
)
def test_no_frames_raise_or_get_in_by_accident(frames: list[bytes], allow_tcp: bool, with_keys: bool) -> None:
    answer = auth(allow_tcp=allow_tcp, clients=CLIENTS if with_keys else None).answer(frames, 0.0)
    if answer is not None and b"200" in answer[-4:-3]:
        rest = frames[frames.index(b"") + 1 :]
        assert (rest[0], rest[2]) == (b"1.0", DOMAIN)
        assert rest[5:] in ([b"CURVE", ADA], [b"CURVE", BOB]) or rest[3] == IPC or (allow_tcp and not with_keys)


def test_the_door_is_asked_for_who_is_known_and_for_nobody_else() -> None:
    door = Door((b"300", "too many connections"))
    one = auth(clients=CLIENTS, door=door)
    assert status(one.answer(curve(b"c" * 32), 1.0)) == b"400"
    assert door.asked == []
    assert status(one.answer(curve(ADA), 1.0)) == b"300"
    assert (one.refused.address, one.refused.why, one.refused.key) == ("10.0.0.7", "too many connections", to_z85(ADA))
    assert status(one.answer(ask(), 1.0)) == b"300"
    assert [(peer.identity, address) for peer, address, _ in door.asked] == [
        ("name:ada", "10.0.0.7"),
        ("uid:1000", IPC.decode()),
    ]


def test_the_domain_tells_operators() -> None:
    door = Door()
    auth(door=door).answer(ask(domain=CONTROL_DOMAIN), 0.0)
    auth(door=door).answer(ask(), 0.0)
    assert [operator for _, _, operator in door.asked] == [True, False]


def test_peer_of() -> None:
    assert peer_of("localhost:0:0:1", allow_tcp=False) == Peer("uid:0", "pid:1")
    assert peer_of("::1", allow_tcp=True) == Peer("ip:::1", "ip:::1")
    assert peer_of("::1", allow_tcp=False) is None
