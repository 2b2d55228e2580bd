"""Bytes → typed request, or an error that names what is wrong (protocol 2, 3, 5–8, 10)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged import messages as m
from edged.config import Limits
from edged.errors import RETRYABLE, Code, WireError
from edged.printable import line
from edged.wire import codec
from edged.wire.codec import CONTROL_OPS, REQUEST_OPS, RejectedError
from edged.wire.features import FEATURES

LIMITS = Limits()
MESSAGE_CHARS = 500
GOOD = {"op": "generate", "prompt": "hello"}


def decode(body: bytes | dict[str, Any], limits: Limits = LIMITS, **where: Any) -> m.ClientRequest:
    return codec.decode(body if isinstance(body, bytes) else json.dumps(body).encode(), limits, **where)


def rejected(body: bytes | dict[str, Any], limits: Limits = LIMITS, **where: Any) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        decode(body, limits, **where)
    error = caught.value
    assert len(error.message) <= MESSAGE_CHARS
    assert msgspec.json.decode(codec.Encoder("i").error(error.id, error))["error"]["message"] == error.message
    return error


def bad(body: bytes | dict[str, Any], *named: str, limits: Limits = LIMITS, **where: Any) -> RejectedError:
    """It is a bad_request whose message has the words."""
    error = rejected(body, limits, **where)
    assert error.code == Code.BAD_REQUEST
    for word in named:
        assert word in error.message
    return error


def with_(**fields: Any) -> dict[str, Any]:
    return {**GOOD, **fields}


def spoken(content: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"op": "generate", "messages": [{"role": "user", "content": content, **fields}]}


# ---- not one UTF-8 JSON object ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "empty"),
        (b"hello", "JSON"),
        (b"{", "JSON"),
        (b'{"op":"ping"} x', "JSON"),
        (b'{"op":"ping"}{"op":"ping"}', "JSON"),
        (b"{'op':'ping'}", "JSON"),
        (b'{"op":"ping",}', "JSON"),
        (b'{"op":"pi\nng"}', "JSON"),
        (b'{"op":"ping"}\0', "JSON"),
        ('{"op":"generate","prompt":"你好"}'.encode("gbk"), "UTF-8"),
        (b'{"op":"generate","prompt":"\xff"}', "UTF-8"),
        (b'{"op":"generate","prompt":"\xc0\x80"}', "UTF-8"),
        (b'{"op":"generate","prompt":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"op":"generate","prompt":"\xf5\x80\x80\x80"}', "UTF-8"),
        (b'{"op":"generate","prompt":"\xe4\xbd"}', "UTF-8"),
        (b'\xef\xbb\xbf{"op":"ping"}', "byte order mark"),
        ('{"op":"ping"}'.encode("utf-16"), "UTF-8"),
        ('{"op":"ping"}'.encode("utf-16-le"), "JSON"),
        ('{"op":"ping"}'.encode("utf-16-be"), "JSON"),
        ('{"op":"ping"}'.encode("utf-32-le"), "JSON"),
        (b"[]", "object"),
        (b'[{"op":"ping"}]', "object"),
        (b'"ping"', "object"),
        (b"1", "object"),
        (b"null", "object"),
        (b"true", "object"),
    ],
)
def test_what_is_not_one_json_object_is_refused(body: bytes, named: str) -> None:
    assert bad(body, named).id is None


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", '{"x":NaN}', "[1e999]", "[[Infinity]]"]
)
def test_numbers_are_finite(value: str) -> None:
    bad(f'{{"op":"generate","prompt":"x","temperature":{value}}}'.encode())


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'[{"a":', b'{"op":[', b'{"op":"ping","x":[['])
def test_deep_nesting_is_refused(opened: bytes) -> None:
    wide = Limits(request_bytes=16 << 20)
    bad(opened * 100_000, "deep", limits=wide)


@pytest.mark.parametrize("depth", range(1, 1200, 37))
def test_no_depth_raises(depth: int) -> None:
    bad(b'{"op":"ping","x":' + b"[" * depth + b'"\\ud800"' + b"]" * depth + b"}")
    bad(b'{"op":"generate","prompt":"a","x":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}")


@pytest.mark.parametrize(
    "body",
    [
        b'{"op":"ping","op":"ping"}',
        b'{"op":"ping","\\u006fp":"status"}',
        b'{"op":"generate","messages":[{"role":"user","role":"system","content":"x"}]}',
        b'{"op":"generate","prompt":"x","stop":[{"a":[{"b":1,"b":2}]}]}',
        b'{"op":"ping","\\ud800":1,"\\ud800":2}',
    ],
)
def test_duplicate_keys_are_refused_at_any_depth(body: bytes) -> None:
    bad(body, "twice")


@pytest.mark.parametrize(
    "value",
    [
        r'"\ud800"',
        r'"\udc00"',
        r'"a\uD83Db"',
        r'"\ud83d\ud83d\ude00"',
        r'"\ude00\ud83d"',
        r'["\ud800"]',
        r'[[["x",["\udfff"]]]]',
        r'{"a":["\ud800"]}',
        r'{"\udbff":1}',
    ],
)
def test_lone_surrogates_are_refused_wherever_they_are(value: str) -> None:
    bad(f'{{"op":"generate","prompt":{value}}}'.encode(), "surrogate")
    bad(f'{{"op":"generate","prompt":"x","unknown":{value}}}'.encode(), "surrogate")


@pytest.mark.parametrize(
    ("written", "read"), [(r"\ud83d\ude00", "😀"), (r"\uD83D\uDE00", "😀"), (r"\\ud800", "\\ud800")]
)
def test_surrogate_pairs_are_characters(written: str, read: str) -> None:
    assert decode(f'{{"op":"generate","prompt":"{written}"}}'.encode()).prompt == read


def test_utf8_comes_through() -> None:
    assert decode('{"op":"generate","prompt":"你好 😀 \ufeff ﷽"}'.encode()).prompt == "你好 😀 \ufeff ﷽"


def test_over_request_bytes_is_too_large() -> None:
    small = Limits(request_bytes=256)
    body = json.dumps(GOOD).encode()
    assert decode(body + b" " * (256 - len(body)), small)
    assert rejected(body + b" " * (257 - len(body)), small).code == Code.TOO_LARGE
    assert rejected(b"\xff" * 257, small).code == Code.TOO_LARGE


# ---- fields common to all --------------------------------------------------------------------------------------


def test_op_is_required() -> None:
    bad({}, "op", "missing")
    bad({"v": 1, "id": "x"}, "op", "missing")
    bad({"op": None}, "op")
    bad({"op": 1}, "op")
    bad({"op": ["ping"]}, "op")


def test_v_defaults_to_this_version() -> None:
    assert decode({"op": "ping", "v": 1}) == decode({"op": "ping"})


@pytest.mark.parametrize("version", [0, 2, -1, 10**400])
def test_another_version_is_unsupported(version: int) -> None:
    error = rejected({"op": "ping", "v": version, "id": "a", "newer": 1})
    assert (error.code, error.id) == (Code.UNSUPPORTED_VERSION, "a")


@pytest.mark.parametrize("version", ["1", 1.0, True, None, [1]])
def test_v_is_an_integer(version: Any) -> None:
    bad({"op": "ping", "v": version}, "`v`")


def test_a_number_of_any_length_is_answered() -> None:
    for digits in (20, 400, 4000, 5000, 100_000):
        number = b"9" * digits
        for field in (b"v", b"max_tokens", b"temperature", b"seed", b"prompt", b"x", b"id"):
            for sign in (b"", b"-"):
                rejected(b'{"op":"generate","prompt":"x","' + field + b'":' + sign + number + b"}")


@pytest.mark.parametrize("op", ["", "Ping", "ping ", "generate\0", "x" * 10_000, "😀" * 200, "\x01" * 200, "__class__"])
def test_an_unknown_verb_is_unknown_op(op: str) -> None:
    assert rejected({"op": op}).code == Code.UNKNOWN_OP
    assert rejected({"op": op}, control=True).code == Code.UNKNOWN_OP


@pytest.mark.parametrize("op", sorted(CONTROL_OPS))
def test_control_verbs_are_forbidden_on_request(op: str) -> None:
    assert rejected({"op": op, "id": "a", "nonsense": 1}).code == Code.FORBIDDEN


def test_control_verbs_are_those_of_protocol_8() -> None:
    operators = {"requests", "loglevel", "drain", "resume", "sessions", "reload", "profile", "config"}
    assert operators == set(CONTROL_OPS)


def test_a_profile_is_pinned_or_not() -> None:
    both = rejected({"op": "profile", "profile": "small", "auto": True}, control=True)
    assert both.code == Code.BAD_REQUEST
    assert decode({"op": "profile"}, control=True) == m.ProfileRequest()


def test_control_has_everything_that_request_has() -> None:
    minimal = {"generate": {"prompt": "x"}, "result": {"id": "a"}, "cancel": {"id": "a"}, "tokenize": {"text": "x"}}
    minimal |= {"embed": {"input": ["x"]}, "warm": {"messages": [{"role": "user", "content": "x"}]}}
    minimal["session"] = {"session": "s", "action": "get"}
    for op, kind in REQUEST_OPS.items():
        body = {"op": op, **minimal.get(op, {})}
        assert type(decode(body)) is type(decode(body, control=True)) is kind
    for op, kind in CONTROL_OPS.items():
        body = {"op": op, **{"loglevel": {"level": "debug"}, "config": {"action": "check"}}.get(op, {})}
        assert type(decode(body, control=True)) is kind


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"op": "generate", "prompt": "x", "session": "s"}, "not with `prompt`"),
        ({"op": "generate", "prompt": "x", "reset": True}, "needs `session`"),
        ({"op": "generate", "messages": [{"role": "user", "content": "x"}], "session": "a b"}, "session"),
        ({"op": "session", "session": "s"}, "action"),
        ({"op": "session", "session": "s", "action": "list"}, "action"),
        ({"op": "session", "session": "s", "action": "get", "identity": "uid:0"}, "unknown field `identity`"),
        ({"op": "sessions", "session": "s"}, "needs an `action`"),
        ({"op": "sessions", "session": "s", "action": "get"}, "needs `identity` and `session`"),
        ({"op": "sessions", "identity": "uid:0", "action": "delete"}, "needs `identity` and `session`"),
    ],
)
def test_what_sessions_need(body: dict[str, Any], why: str) -> None:
    found = rejected(body, control=True)
    assert found.code == Code.BAD_REQUEST
    assert why in found.message


def test_cancel_with_identity_is_for_control() -> None:
    body = {"op": "cancel", "id": "a", "identity": "uid:2"}
    assert rejected(body).code == Code.FORBIDDEN
    assert decode(body, control=True).identity == "uid:2"


@pytest.mark.parametrize(
    "body",
    [
        with_(stop="x"),
        with_(nonsense=1),
        with_(session="s"),
        with_(reset=True),
        with_(max_tokens=0),
        {"op": "nope"},
        {"op": "drain"},
        {"op": "ping", "v": 2},
        {"op": 3},
        {"nope": 1},
    ],
)
def test_an_error_echoes_a_valid_id(body: dict[str, Any]) -> None:
    assert rejected({**body, "id": "sensor7-1"}).id == "sensor7-1"
    assert rejected({**body, "id": "not valid"}).id is None
    assert rejected({**body, "id": 7}).id is None
    assert rejected(body).id is None


@pytest.mark.parametrize("text", ["a", "A.z_0:9-", "x" * 64])
def test_ids_of_the_alphabet_are_taken(text: str) -> None:
    assert decode(with_(id=text)).id == text
    assert decode({"op": "result", "id": text}).id == text


@pytest.mark.parametrize("text", ["", "x" * 65, "a b", "a/b", "a\n", "ä", "a\0", "٣", 1, True, ["a"], None])
def test_other_ids_are_refused(text: Any) -> None:
    assert bad(with_(id=text), "id").id is None
    assert bad({"op": "result", "id": text}, "id").id is None
    assert bad({"op": "cancel", "id": text}, "id").id is None
    bad(with_(supersedes=text), "supersedes")


@pytest.mark.parametrize("name", ["id", "prompt", "stream", "detach", "max_tokens", "stop", "priority", "nonsense"])
def test_null_is_not_absent(name: str) -> None:
    bad(with_(**{name: None}), f'"{name}"', "null")


# ---- generate --------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    assert decode(GOOD) == m.Generate(prompt="hello")


def test_exactly_one_of_prompt_and_messages() -> None:
    bad({"op": "generate"}, "prompt", "messages")
    bad({**spoken(), "prompt": "x"}, "prompt", "messages")


def test_empty_prompt_and_messages_are_refused() -> None:
    bad(with_(prompt=""), "prompt")
    bad({"op": "generate", "messages": []}, "messages")
    assert decode(spoken("")).messages[0].content == ""


def test_nul_is_refused() -> None:
    bad(with_(prompt="a\0b"), "prompt", "NUL")
    bad(spoken("a\0"), "messages[0].content", "NUL")
    bad({"op": "tokenize", "text": "\0"}, "text", "NUL")


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_roles(role: str) -> None:
    body = {"op": "generate", "messages": [{"role": role, "content": "x"}]}
    assert decode(body).messages[0].role == role


@pytest.mark.parametrize("role", ["User", "developer", "", None, 1])
def test_an_unknown_role_is_refused(role: Any) -> None:
    bad({"op": "generate", "messages": [{"role": role, "content": "x"}]}, "messages[0].role")


@pytest.mark.parametrize(
    ("turns", "named"),
    [
        ("hi", "messages"),
        ({"role": "user", "content": "x"}, "messages"),
        (["hi"], "messages[0]"),
        ([None], "messages[0]"),
        ([{"role": "user"}], "content"),
        ([{"content": "x"}], "role"),
        ([{"role": "user", "content": None}], "content"),
        ([{"role": "user", "content": ["x"]}], "content"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": "y", "name": "z"}], "messages[1].name"),
    ],
)
def test_messages_are_role_and_content(turns: Any, named: str) -> None:
    bad({"op": "generate", "messages": turns}, named)


@pytest.mark.parametrize("name", ["promptt", "Prompt", "", "v2", "x" * 5000, "😀" * 500, "`", "\n", "op\0"])
def test_unknown_fields_are_refused(name: str) -> None:
    for body in (GOOD, {"op": "ping"}, {"op": "status"}, {"op": "result", "id": "a"}, {"op": "tokenize", "text": "x"}):
        error = bad({**body, name: 1}, "unknown field")
        assert line(name[:20], 200) in error.message
    assert "messages[0]" in bad(spoken(**{name: 1}), "unknown field").message


RANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "stream": ([True, False, "pub", "reply"], ["sub", "", 1, 0, [], "true"]),
    "detach": ([True, False], [1, "true", 0]),
    "max_tokens": ([1, 4096], [0, -1, 4097, 1.5, "1", True, 10**30]),
    "temperature": ([0, 2, 0.0, 1.5], [-0.1, 2.1, "1", True, 10**400, -(10**400)]),
    "top_k": ([0, 1000], [-1, 1001, 1.5, True, 10**30]),
    "top_p": ([0.01, 1], [0, -1, 1.01, 0.0]),
    "min_p": ([0, 1], [-0.1, 1.1]),
    "repeat_penalty": ([0.5, 2], [0.4, 2.1]),
    "presence_penalty": ([-2, 2], [-2.1, 2.1]),
    "frequency_penalty": ([-2, 2], [-2.1, 2.1]),
    "seed": ([0, 2**32 - 1], [-1, 2**32, 2**64, 10**30, 1.5]),
    "stop": ([["a"], ["x" * 64], ["a"] * 8, ["é" * 32]], [[], [""], ["a"] * 9, ["x" * 65], ["é" * 33], "a", [1]]),
    "priority": (["high", "normal", "low"], ["urgent", "", 1, "High"]),
    "deadline_ms": ([1, 86_400_000], [0, -1, -(10**30), 86_400_001, 1.5, "1"]),
}


@pytest.mark.parametrize("name", sorted(RANGES))
def test_ranges(name: str) -> None:
    good, wrong = RANGES[name]
    for value in good:
        found = getattr(decode(with_(**{name: value})), name)
        assert found == ("pub" if value is True and name == "stream" else value)
    for value in wrong:
        bad(with_(**{name: value}), name)


def test_max_tokens_follows_the_limit() -> None:
    bad(with_(max_tokens=11), "max_tokens", "11", "10", limits=Limits(max_tokens=10))
    assert decode(with_(max_tokens=10), Limits(max_tokens=10)).max_tokens == 10


def test_stream_reply_from_req_is_refused() -> None:
    for control in (False, True):
        bad(with_(stream="reply"), "stream", socket_type="REQ", control=control)
        assert decode(with_(stream="reply"), socket_type="DEALER", control=control).stream == "reply"
    for stream in (False, True, "pub"):
        assert decode(with_(stream=stream), socket_type="REQ")


def test_supersedes_is_another() -> None:
    bad(with_(id="a", supersedes="a"), "supersedes")
    assert decode(with_(id="a", supersedes="b")).supersedes == "b"
    assert decode(with_(supersedes="b")).id is None


# ---- the other verbs -------------------------------------------------------------------------------------------


def test_wait_ms() -> None:
    for value in (0, 60_000):
        assert decode({"op": "result", "id": "a", "wait_ms": value}).wait_ms == value
    for value in (-1, 60_001, 1.5, "1", 10**30):
        bad({"op": "result", "id": "a", "wait_ms": value}, "wait_ms")


@pytest.mark.parametrize("op", ["result", "cancel"])
def test_id_is_required(op: str) -> None:
    bad({"op": op}, "id", "missing")


def test_tokenize_takes_exactly_one() -> None:
    bad({"op": "tokenize"}, "text", "messages")
    bad({"op": "tokenize", "text": "x", "messages": [{"role": "user", "content": "x"}]}, "text", "messages")
    bad({"op": "tokenize", "text": ""}, "text")
    bad({"op": "tokenize", "messages": []}, "messages")
    assert decode({"op": "tokenize", "messages": [{"role": "user", "content": "x"}]}).text is None


# ---- anything at all -------------------------------------------------------------------------------------------

NAMES = sorted({"op", "v", "id", *m.Generate.__struct_fields__, "wait_ms", "identity", "text", "level"})
OPS = sorted({*REQUEST_OPS, *CONTROL_OPS})
any_text = st.text(st.characters(codec=None), max_size=80)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), any_text, st.sampled_from(OPS + NAMES))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4), max_leaves=8
)
turns = st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), values, max_size=3), max_size=3)
objects = st.dictionaries(st.sampled_from(NAMES) | any_text, values | turns, max_size=6)
aimed = st.builds(lambda op, fields: {"op": op, **fields}, st.sampled_from(OPS), objects)


def outcome(body: bytes, *, control: bool) -> m.ClientRequest | RejectedError:
    try:
        return codec.decode(body, LIMITS, control=control)
    except RejectedError as error:
        return error


def only_typed_or_rejected(body: bytes, *, control: bool) -> None:
    found = outcome(body, control=control)
    if isinstance(found, RejectedError):
        assert len(found.message) <= MESSAGE_CHARS
        assert json.loads(codec.Encoder("i").error(found.id, found))["error"]["code"] == found.code
    else:
        assert isinstance(found, m.ClientRequest)
        if isinstance(found, m.Generate):
            assert len(codec.digest(found)) == 16


@given(st.binary(max_size=200) | any_text.map(lambda text: text.encode("utf-8", "surrogatepass")), st.booleans())
@settings(max_examples=200)
def test_any_bytes_are_answered(body: bytes, control: bool) -> None:
    only_typed_or_rejected(body, control=control)


@given(aimed | objects | values, st.booleans(), st.booleans())
@settings(max_examples=400)
def test_any_json_is_answered(data: Any, control: bool, escape: bool) -> None:
    body = json.dumps(data, ensure_ascii=escape).encode("utf-8", "surrogatepass")
    only_typed_or_rejected(body, control=control)


@given(st.data())
def test_a_damaged_request_is_answered(data: st.DataObject) -> None:
    whole = json.dumps(with_(id="a", stop=["\n"], messages=[{"role": "user", "content": "😀"}])).encode()
    at = data.draw(st.integers(0, len(whole)))
    until = data.draw(st.integers(at, len(whole)))
    only_typed_or_rejected(whole[:at] + data.draw(st.binary(max_size=6)) + whole[until:], control=False)


# ---- equal bodies ----------------------------------------------------------------------------------------------


def digest(body: bytes | dict[str, Any]) -> bytes:
    request = decode(body)
    assert isinstance(request, m.Generate)
    return codec.digest(request)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (with_(), with_(v=1)),
        (with_(), with_(deadline_ms=5)),
        (with_(deadline_ms=5), with_(deadline_ms=6)),
        (with_(stream=True), with_(stream="pub")),
        (with_(), with_(stream=False)),
        (with_(), with_(priority="normal", detach=False)),
        (with_(temperature=1), with_(temperature=1.0)),
        (with_(temperature=0), with_(temperature=-0.0)),
        (with_(prompt="é"), '{"prompt":"é",  "op":"generate"}'.encode()),
        (with_(prompt="😀"), '{"op":"generate","prompt":"😀"}'.encode()),
        (with_(), json.dumps(dict(reversed(GOOD.items())), indent=3).encode()),
    ],
)
def test_equal_after_decoding_is_equal(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


DIFFERENT: list[dict[str, Any]] = [
    with_(),
    with_(prompt="hello "),
    with_(prompt="é"),
    with_(prompt="e\u0301"),
    spoken("hello"),
    with_(stream=True),
    with_(stream="reply"),
    with_(detach=True),
    with_(max_tokens=1),
    with_(temperature=0),
    with_(top_k=1),
    with_(top_p=0.5),
    with_(min_p=0.5),
    with_(repeat_penalty=1.5),
    with_(presence_penalty=1),
    with_(frequency_penalty=1),
    with_(seed=1),
    with_(stop=["a"]),
    with_(stop=["a", "b"]),
    with_(stop=["ab"]),
    with_(priority="low"),
    with_(supersedes="b"),
]


def test_any_other_difference_is_a_difference() -> None:
    assert len({digest(body) for body in DIFFERENT}) == len(DIFFERENT)


# ---- replies ---------------------------------------------------------------------------------------------------


def test_an_ok_reply() -> None:
    reply = json.loads(codec.Encoder("9f2c61d0").ok("a", {"x": 1}))
    assert reply == {"v": 1, "ok": True, "id": "a", "instance": "9f2c61d0", "x": 1}
    assert list(reply)[:4] == ["v", "ok", "id", "instance"]


@pytest.mark.parametrize("code", list(Code))
def test_an_error_reply(code: Code) -> None:
    error = WireError(code, "why", 1200)
    reply = json.loads(codec.Encoder("9f2c61d0").error(None, error))
    inner = {"code": str(code), "message": "why", "retryable": code in RETRYABLE, "retry_after_ms": 1200}
    assert reply == {"v": 1, "ok": False, "id": None, "instance": "9f2c61d0", "error": inner}


def test_retryable_codes_are_those_of_protocol_10() -> None:
    final = "bad_request unsupported_version unknown_op too_large context_overflow id_conflict not_found forbidden"
    assert set(Code) - RETRYABLE == set(final.split())


def test_ping_lists_what_works() -> None:
    assert list(FEATURES) == sorted(set(FEATURES))


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({}, "field `input` is missing"),
        ({"input": []}, "field `input`"),
        ({"input": ["x"] * 65}, "field `input`"),
        ({"input": "x"}, "field `input`"),
        ({"input": ["x", ""]}, "field `input[1]`"),
        ({"input": ["x", "a\0b"]}, "field `input[1]` contains NUL"),
        ({"input": ["x"], "text": "x"}, "unknown field `text`"),
        ({"input": ["x", 1]}, "field `input[1]`"),
    ],
)
def test_what_embed_does_not_take(field: dict, told: str) -> None:
    error = rejected({"op": "embed", "id": "e", **field})
    assert error.code == Code.BAD_REQUEST
    assert error.id == "e"
    assert told in error.message


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({}, "field `messages` is missing"),
        ({"messages": []}, "field `messages`"),
        ({"messages": [{"role": "user"}]}, "field `messages[0].content` is missing"),
        ({"messages": [{"role": "user", "content": "\0"}]}, "field `messages[0].content` contains NUL"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "field `messages[0].role`"),
        ({"messages": [{"role": "user", "content": "x"}], "session": "s"}, ""),
    ],
)
def test_what_warm_does_not_take(field: dict, told: str) -> None:
    error = rejected({"op": "warm", **field})
    assert error.code == Code.BAD_REQUEST
    assert told in error.message


def test_sixty_four_texts_and_no_more_bytes_than_a_request_has() -> None:
    assert len(decode({"op": "embed", "input": ["x" * 100] * 64}).input) == 64
    assert rejected({"op": "embed", "input": ["x" * 5000] * 64}).code == Code.TOO_LARGE


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_numbers_that_no_encoding_holds_are_told(number: int) -> None:
    for schema in ({"const": number}, {"enum": [1, [number]]}, {"properties": {"a": {"minimum": number}}}):
        bad(spoken() | {"json_schema": schema}, "`json_schema`", "64 bits")
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        bad(spoken() | {"tools": [tool]}, "`tools[0].function.parameters`", "64 bits")
