"""What may stand in a request and in a configuration file: taken from edged's own types, so a new field is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edged.config import Config
from edged.models.partial import Record
from edged.wire.codec import CONTROL_OPS, REQUEST_OPS

from .jsontree import Grammar, Pairs

TURN = Pairs([("role", "user"), ("content", "hi")])
CALL = Pairs([("id", "c1"), ("type", "function"), ("function", Pairs([("name", "f"), ("arguments", "{}")]))])
TOOL = Pairs([("type", "function"), ("function", Pairs([("name", "f"), ("parameters", Pairs([("type", "object")]))]))])

FITTING: Mapping[str, tuple[Any, ...]] = {
    "op": (*REQUEST_OPS, *CONTROL_OPS, "Generate", "nothing"),
    "v": (1, 1, 1, 2, 0, "1"),
    "id": ("a", "probe-1", "a" * 64, "A.b_c:d-e"),
    "prompt": ("hi", "x", "ä🙂"),
    "messages": ([TURN], [Pairs([("role", "system"), ("content", "be brief")]), TURN]),
    "role": ("system", "user", "assistant", "tool"),
    "content": ("hi", "", "a\n\tb"),
    "tool_calls": ([CALL], []),
    "tool_call_id": ("c1",),
    "stream": (True, False, "pub", "reply"),
    "detach": (True, False),
    "max_tokens": (1, 16, 4096),
    "temperature": (0, 0.7, 2),
    "top_k": (0, 20, 1000),
    "top_p": (0.1, 1),
    "min_p": (0, 1),
    "repeat_penalty": (0.5, 1, 2),
    "presence_penalty": (-2, 0, 2),
    "frequency_penalty": (-2, 0, 2),
    "seed": (0, 7, 2**32 - 1),
    "stop": (["\n"], ["a", "b"], ["x" * 64]),
    "priority": ("high", "normal", "low"),
    "deadline_ms": (1, 1000, 86_400_000),
    "supersedes": ("a", "b"),
    "session": ("s",),
    "reset": (True, False),
    "logit_bias": ([[1, -100]], [[1, 1.5], [2, 2]]),
    "logprobs": (0, 3, 20),
    "json_schema": (Pairs([("type", "object")]), Pairs()),
    "grammar": ('root ::= "a"',),
    "tools": ([TOOL],),
    "tool_choice": ("none", "auto", "required", Pairs([("function", Pairs([("name", "f")])), ("type", "function")])),
    "thinking": (True, False),
    "wait_ms": (0, 100),
    "identity": ("uid:1",),
    "text": ("hi",),
    "input": (["hi", "there"],),
    "action": ("get", "delete", "list", "check", "apply"),
    "level": ("debug", "info"),
    "profile": ("default",),
    "auto": (True, False),
}


def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


REQUEST = Grammar("op", {op: ("v", *_fields(kind)) for op, kind in {**REQUEST_OPS, **CONTROL_OPS}.items()}, FITTING)


def _sections(kind: type[Any]) -> dict[str, tuple[Any, ...]]:
    """Every key of the configuration with its default and values that are near it."""
    out: dict[str, tuple[Any, ...]] = {}
    for field in msgspec.structs.fields(kind):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        if isinstance(default, msgspec.Struct):
            inner = _sections(type(default))
            out |= inner
            whole = [(key, values[0]) for key, values in inner.items()]
            out[field.encode_name] = (Pairs(), Pairs(whole), *(Pairs([pair]) for pair in whole))
        else:
            plain = msgspec.to_builtins(default)
            near = (plain * 2, plain + 1, plain / 2) if type(plain) in (int, float) else ()
            out[field.encode_name] = (plain, *near)
    return out


_OTHERS: dict[str, tuple[Any, ...]] = {
    "request": (["tcp://127.0.0.1:5555"], ["ipc:///run/x"], ["ipc://relative"]),
    "control": ("ipc:///run/c", "tcp://127.0.0.1:1"),
    "profiles": ([Pairs([("name", "a")]), Pairs([("name", "b"), ("context", 512)])],),
    "path": ("/models/a.gguf", "~/a.gguf", "~nobody-here/a"),
    "runtime_dir": ("/run/edged", "relative"),
    "allow_insecure_tcp": (True,),
    "knobs": (["duty"], ["duty", "duty"]),
}
_KEYS = _sections(Config)
CONFIG = Grammar(
    "",
    {"": tuple(_fields(Config)), "one": ("model", "listen", "watchdog"), "many": tuple(_KEYS)},
    {key: (*_KEYS.get(key, ()), *_OTHERS.get(key, ())) for key in {**_KEYS, **_OTHERS}},
)

SCHEMA = Grammar(
    "",
    {
        "object": ("type", "properties", "required", "additionalProperties", "$defs", "$ref"),
        "array": ("type", "items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
        "string": ("type", "minLength", "maxLength", "format", "enum", "const"),
        "number": ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        "any": ("anyOf", "oneOf", "allOf", "title", "description", "default", "$id", "$schema"),
    },
    {
        "type": ("object", "array", "string", "integer", "number", "boolean", "null", ["string", "null"]),
        "properties": (Pairs([("a", Pairs([("type", "string")]))]), Pairs([("a", Pairs([("$ref", "#")]))])),
        "required": (["a"], []),
        "additionalProperties": (True, False, Pairs([("type", "number")])),
        "items": (Pairs([("type", "string")]), True, Pairs([("$ref", "#")])),
        "prefixItems": ([Pairs([("type", "string")]), True],),
        "minItems": (0, 2, 9999),
        "maxItems": (0, 3, 10_000),
        "uniqueItems": (True, False),
        "minLength": (0, 1, 9999),
        "maxLength": (0, 3, 10_000),
        "format": ("date", "time", "date-time", "uuid", "email"),
        "enum": (["a", 1, None, True, 1.5, [1], Pairs([("a", 1)])],),
        "const": ("a", 1, None, 1e300),
        "minimum": (0, -5, 3, 1.5, 10**18),
        "maximum": (0, 99, -3, 1.5, 10**18),
        "exclusiveMinimum": (0, -5, 3),
        "exclusiveMaximum": (0, 99, -3),
        "anyOf": ([Pairs([("type", "string")]), Pairs([("type", "number")])],),
        "oneOf": ([Pairs([("type", "string")]), Pairs([("type", "number")])],),
        "allOf": ([Pairs([("type", "string")])],),
        "$ref": ("#", "#/$defs/a", "#/properties/a", "#/~1/~0", "http://x/"),
        "$defs": (Pairs([("a", Pairs([("type", "integer")]))]),),
    },
)

RECORD = Grammar(
    "",
    {"download": _fields(Record), "sums": ("m.gguf", "other.gguf"), "hashes": ("/models/m.gguf",)},
    {
        "place": ("https://x/",),
        "size": (5, 10, 4096, -1),
        "validator": ('"etag"', None),
        "sha256": ("ab" * 32, None),
        "flushed": (0, 5, -5),
        "boot": ("b", ""),
        "m.gguf": (Pairs([("size", 5), ("mtime_ns", 1), ("inode", 2), ("sha256", "ab" * 32), ("against", "")]),),
        "/models/m.gguf": ([1, 2, 3, "ab" * 32],),
    },
)
