"""Bytes ⇄ messages of the client wire (protocol 2, 3, 5–8, 10). Pure.

JSON goes through the standard library's parser, because it can be told of duplicate keys, NaN and the like
(msgspec takes the last of two equal keys); the decoded object is then typed by msgspec, which names the path of
what is wrong. Nothing in here raises anything but `RejectedError`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from edged import __version__
from edged import messages as m
from edged.config import Limits
from edged.errors import Code, WireError
from edged.printable import line
from edged.wire import shapes

PROTOCOL: Final = 1

REQUEST_OPS: Final[Mapping[str, type[m.ClientRequest]]] = {
    "generate": m.Generate,
    "result": m.Result,
    "cancel": m.Cancel,
    "ping": m.Ping,
    "status": m.Status,
    "history": m.HistoryRequest,
    "tokenize": m.TokenizeRequest,
    "embed": m.EmbedRequest,
    "warm": m.WarmRequest,
    "session": m.SessionRequest,
}
CONTROL_OPS: Final[Mapping[str, type[m.ClientRequest]]] = {
    "requests": m.Requests,
    "loglevel": m.LogLevel,
    "drain": m.Drain,
    "resume": m.Resume,
    "sessions": m.SessionsRequest,
    "reload": m.Reload,
    "profile": m.ProfileRequest,
    "config": m.ConfigRequest,
}

STOP_BYTES: Final = 64
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ID: Final = re.compile(r"[A-Za-z0-9._:\-]{1,64}\Z")
_MESSAGE_MAX: Final = 400


class RejectedError(WireError):
    """A body that is answered by an error; `id` is the request's own when it could be read."""

    def __init__(self, code: Code, message: str, request_id: str | None = None) -> None:
        super().__init__(code, message)
        self.id = request_id


class _BadJsonError(ValueError):
    """Found while parsing JSON."""


def decode(body: bytes, limits: Limits, *, control: bool = False, socket_type: str = "") -> m.ClientRequest:
    """One body frame → one typed request.

    `control`: it came in on that socket. `socket_type`: the peer's, as its handshake told ("REQ", "DEALER").
    Raises RejectedError.
    """
    data = _parse(body, limits.request_bytes)
    found = data.get("id")
    request_id = found if isinstance(found, str) and _ID.match(found) else None
    try:
        return _typed(data, limits, control=control, socket_type=socket_type)
    except RejectedError as rejected:
        rejected.id = request_id
        raise


def _parse(body: bytes, request_bytes: int) -> dict[str, Any]:
    if len(body) > request_bytes:
        raise RejectedError(Code.TOO_LARGE, f"the body has {len(body)} bytes, limits.request_bytes is {request_bytes}")
    if not body:
        raise RejectedError(Code.BAD_REQUEST, "the body is empty; it must be one JSON object")
    if body.startswith(b"\xef\xbb\xbf"):
        raise RejectedError(Code.BAD_REQUEST, "the body begins with a byte order mark; send plain UTF-8")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RejectedError(Code.BAD_REQUEST, f"the body is not UTF-8 (byte {error.start})") from None
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE_ESCAPE.search(text):
            _no_surrogates(data)
    except RecursionError:
        raise RejectedError(Code.BAD_REQUEST, "the body is nested too deeply") from None
    except _BadJsonError as error:
        raise RejectedError(Code.BAD_REQUEST, str(error)) from None
    except ValueError as error:
        raise RejectedError(Code.BAD_REQUEST, f"the body is not JSON: {_short(str(error))}") from None
    if not isinstance(data, dict):
        raise RejectedError(Code.BAD_REQUEST, "the body must be one JSON object")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _BadJsonError(f"field {_quote(key)} stands twice")
            seen.add(key)
    return out


def _no_constant(name: str) -> Any:
    raise _BadJsonError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _BadJsonError(f"number {_short(text, 40)} is out of range")
    return value + 0.0  # −0.0 equals 0.0, so it has to look the same in `digest`


def _no_surrogates(value: Any) -> None:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _BadJsonError("a string has a lone surrogate; it is not Unicode text") from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _no_surrogates(key)
            _no_surrogates(item)
    elif isinstance(value, list):
        for item in value:
            _no_surrogates(item)


def _typed(data: dict[str, Any], limits: Limits, *, control: bool, socket_type: str) -> m.ClientRequest:
    version = data.pop("v", PROTOCOL)
    if not isinstance(version, int) or isinstance(version, bool):
        raise RejectedError(Code.BAD_REQUEST, "field `v` must be an integer")
    if version != PROTOCOL:
        message = (
            f"this server speaks protocol version {PROTOCOL} (edged {__version__}), not {_short(str(version), 20)}"
        )
        raise RejectedError(Code.UNSUPPORTED_VERSION, message)
    kind = _kind(data, control=control)
    for name in [name for name, value in data.items() if value is None]:
        raise RejectedError(Code.BAD_REQUEST, f"field {_quote(name)} is null; leave it out instead")
    if kind in (m.Generate, m.TokenizeRequest, m.WarmRequest):
        _need_content(data)
    try:
        request: m.ClientRequest = msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise RejectedError(Code.BAD_REQUEST, _short(_friendly(str(error)))) from None
    match request:
        case m.Generate():
            return _generate(request, limits, socket_type)
        case m.TokenizeRequest():
            _one_of("text", request.text, request.messages)
            _no_nul(request.text, request.messages, "text")
        case m.WarmRequest():
            _no_nul(None, request.messages, "messages")
        case m.EmbedRequest():
            for index, text in enumerate(request.input):
                _no_nul(text, None, f"input[{index}]")
        case m.SessionsRequest():
            _sessions(request)
        case m.ProfileRequest(profile=str(), auto=True):
            raise RejectedError(Code.BAD_REQUEST, "give at most one of `profile` and `auto`")
        case m.Cancel(identity=str()) if not control:
            raise RejectedError(Code.FORBIDDEN, "`cancel` with `identity` is for the control socket")
    return request


def _kind(data: dict[str, Any], *, control: bool) -> type[m.ClientRequest]:
    op = data.pop("op", None)
    if op is None:
        raise RejectedError(Code.BAD_REQUEST, "field `op` is missing")
    if not isinstance(op, str):
        raise RejectedError(Code.BAD_REQUEST, "field `op` must be a string")
    if op in REQUEST_OPS:
        return REQUEST_OPS[op]
    if op not in CONTROL_OPS:
        raise RejectedError(Code.UNKNOWN_OP, f"op {_quote(op)}: no such verb")
    if not control:
        raise RejectedError(Code.FORBIDDEN, f"`{op}` is for the control socket")
    return CONTROL_OPS[op]


def _need_content(data: dict[str, Any]) -> None:
    """A message may lack its content when it has tool calls; OpenAI's clients write null then."""
    turns = data.get("messages")
    for index, turn in enumerate(turns if isinstance(turns, list) else []):
        if isinstance(turn, dict) and turn.get("tool_calls") and turn.get("content", "") is None:
            del turn["content"]
        if isinstance(turn, dict) and "content" not in turn and not turn.get("tool_calls"):
            raise RejectedError(Code.BAD_REQUEST, f"field `messages[{index}].content` is missing")


def _ordinary_numbers(value: Any, name: str) -> None:
    """In what is passed on as it is: a whole number of more than 64 bits fits no other encoding."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise RejectedError(Code.BAD_REQUEST, f"field `{name}` has a whole number of more than 64 bits")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _ordinary_numbers(item, name)


def _generate(request: m.Generate, limits: Limits, socket_type: str) -> m.Generate:
    _ordinary_numbers(request.json_schema, "json_schema")
    for index, tool in enumerate(request.tools or []):
        _ordinary_numbers(tool.function.parameters, f"tools[{index}].function.parameters")
    _one_of("prompt", request.prompt, request.messages)
    _no_nul(request.prompt, request.messages, "prompt")
    if request.session is not None and request.prompt is not None:
        raise RejectedError(Code.BAD_REQUEST, "field `session` goes with `messages`, not with `prompt`")
    if request.reset and request.session is None:
        raise RejectedError(Code.BAD_REQUEST, "field `reset` needs `session`")
    for index, stop in enumerate(request.stop or []):
        if len(stop.encode()) > STOP_BYTES:
            raise RejectedError(Code.BAD_REQUEST, f"field `stop[{index}]` has more than {STOP_BYTES} bytes")
    if request.max_tokens is not None and request.max_tokens > limits.max_tokens:
        message = (
            f"field `max_tokens` is {_short(str(request.max_tokens), 24)}, limits.max_tokens is {limits.max_tokens}"
        )
        raise RejectedError(Code.BAD_REQUEST, message)
    objection = shapes.objection(request, limits)
    if objection is not None:
        raise RejectedError(Code.BAD_REQUEST, objection)
    if request.supersedes is not None and request.supersedes == request.id:
        raise RejectedError(Code.BAD_REQUEST, "field `supersedes` names the request itself")
    if request.stream == "reply" and socket_type == "REQ":
        raise RejectedError(
            Code.BAD_REQUEST, 'field `stream`: "reply" needs a DEALER socket, a REQ gets one reply only'
        )
    return msgspec.structs.replace(request, stream="pub") if request.stream is True else request


def _sessions(request: m.SessionsRequest) -> None:
    if request.action == "list" and request.session is not None:
        raise RejectedError(Code.BAD_REQUEST, "field `session` needs an `action`: get or delete")
    if request.action != "list" and (request.session is None or request.identity is None):
        raise RejectedError(Code.BAD_REQUEST, f"`{request.action}` needs `identity` and `session`")


def _one_of(name: str, text: str | None, turns: list[m.Message] | None) -> None:
    if (text is None) == (turns is None):
        raise RejectedError(Code.BAD_REQUEST, f"give exactly one of `{name}` and `messages`")


def _no_nul(text: str | None, turns: list[m.Message] | None, name: str) -> None:
    if text is not None and "\0" in text:
        raise RejectedError(Code.BAD_REQUEST, f"field `{name}` contains NUL")
    for index, turn in enumerate(turns or []):
        if "\0" in turn.content:
            raise RejectedError(Code.BAD_REQUEST, f"field `messages[{index}].content` contains NUL")
    objection = shapes.messages_objection(turns or [])
    if objection is not None:
        raise RejectedError(Code.BAD_REQUEST, objection)


def _friendly(message: str) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.max_tokens`" → "field `max_tokens`: expected int, got str"."""
    what, _, at = message.partition(" - at `")
    path = at.rstrip("`").removeprefix("$").removeprefix(".")
    if what.startswith("Object contains unknown field"):
        name = what.partition("`")[2].rpartition("`")[0]
        return f"unknown field `{path + '.' if path else ''}{_short(name, 64)}`"
    if what.startswith("Object missing required field"):
        name = what.partition("`")[2].rpartition("`")[0]
        return f"field `{path + '.' if path else ''}{name}` is missing"
    return f"field `{path}`: {what[:1].lower()}{what[1:].replace('`', '')}" if path else what


def _quote(text: str) -> str:
    return line(json.dumps(_cut(text, 64), ensure_ascii=False), 200)


def _short(text: str, limit: int = _MESSAGE_MAX) -> str:
    """As it may be shown to whoever sent it, or logged."""
    return line(text, limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def digest(request: m.Generate) -> bytes:
    """What makes two `generate` bodies equal: all decoded fields but `deadline_ms` (`v` is gone already).

    And but `id`: who sent none the first time and repeats with the one that the ticket named sends the same body.
    """
    same = msgspec.structs.replace(request, id=None, deadline_ms=None)
    return hashlib.blake2b(msgspec.msgpack.encode(same), digest_size=16).digest()


class Encoder:
    """Replies and events → JSON bytes; knows the daemon's `instance`."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._json = msgspec.json.Encoder()

    def ok(self, request_id: str | None, fields: Mapping[str, Any]) -> bytes:
        head: dict[str, Any] = {"v": PROTOCOL, "ok": True}
        if request_id is not None:
            head["id"] = request_id
        return self._json.encode(head | {"instance": self.instance, **fields})

    def error(self, request_id: str | None, error: WireError) -> bytes:
        return self._json.encode(
            {"v": PROTOCOL, "ok": False, "id": request_id, "instance": self.instance, "error": error.fields()}
        )

    def event(self, fields: Mapping[str, Any]) -> bytes:
        return self._json.encode(fields)
