"""What the codec and the broker know of answers in a form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edged.broker.endings import logprob_entry, result_fields
from edged.broker.streams import Stream
from edged.broker.table import Request
from edged.config import Limits
from edged.errors import Code
from edged.messages import FunctionCall, Generate, Sampling, Shape, TokenLogprob, ToolCall, TopLogprob
from edged.wire.codec import RejectedError, decode
from edged.wire.features import FEATURES

LIMITS = Limits()
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "stop"}}
HI = [{"role": "user", "content": "hi"}]


def body(**fields: Any) -> bytes:
    fields = {"op": "generate", "messages": HI} | fields
    return json.dumps({k: v for k, v in fields.items() if v is not ...}).encode()


def rejected(**fields: Any) -> str:
    with pytest.raises(RejectedError) as caught:
        decode(body(**fields), LIMITS)
    assert caught.value.code is Code.BAD_REQUEST
    return str(caught.value)


def chosen(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    "fields",
    [
        {"json_schema": {"type": "object"}},
        {"json_schema": {"default": None}},
        {"grammar": 'root ::= "a"'},
        {"tools": [TOOL, OTHER], "tool_choice": chosen("stop")},
        {"tools": [TOOL], "stop": ["x"]},
        {"tools": [TOOL], "tool_choice": "none", "grammar": 'root ::= "a"'},
        {"thinking": False},
        {"logprobs": 20, "logit_bias": [[1, -100], [2, 0.5]]},
        {"prompt": "x", "messages": ..., "grammar": "x", "logprobs": 1},
    ],
)
def test_what_is_taken(fields: dict[str, Any]) -> None:
    assert isinstance(decode(body(**fields), LIMITS), Generate)


def test_an_assistant_that_calls_may_have_no_content() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = {"role": "tool", "content": "7", "tool_call_id": "c"}
    with_null, without = ({"role": "assistant", "tool_calls": [call]} | c for c in ({"content": None}, {}))
    one, two = (decode(body(messages=[*HI, turn, result]), LIMITS) for turn in (with_null, without))
    assert one == two
    assert "content" in rejected(messages=[{"role": "assistant", "content": None}])
    assert "content" in rejected(messages=[{"role": "assistant", "content": None, "tool_calls": []}])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"json_schema": {}, "grammar": "x"}, "at most one of `json_schema` and `grammar`"),
        ({"json_schema": {}, "tools": [TOOL]}, "at most one of `json_schema` and `tools`"),
        ({"grammar": ""}, "`grammar`"),
        ({"grammar": "a\0"}, "NUL"),
        ({"json_schema": []}, "`json_schema`"),
        ({"json_schema": {}, "stop": ["x"]}, "`stop` would cut"),
        ({"grammar": "x", "stop": ["x"]}, "`stop` would cut"),
        ({"tools": [TOOL], "tool_choice": "required", "stop": ["x"]}, "`stop` would cut"),
        ({"tool_choice": "auto"}, "`tool_choice` needs `tools`"),
        ({"tools": []}, "`tools`"),
        ({"tools": [TOOL, TOOL]}, "`look` stands twice"),
        ({"tools": [TOOL], "tool_choice": chosen("other")}, "names none"),
        ({"tools": [TOOL], "tool_choice": "any"}, "`tool_choice`"),
        ({"tools": [TOOL], "prompt": "x", "messages": ...}, "`tools` needs `messages`"),
        ({"thinking": True, "prompt": "x", "messages": ...}, "`thinking` needs `messages`"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
        ({"tools": [{"type": "function", "function": {"name": "a", "description": "\0"}}]}, "NUL"),
        ({"logit_bias": [[1, 1], [1, 2]]}, "token 1 stands twice"),
        ({"logit_bias": [[-1, 1]]}, "logit_bias"),
        ({"logit_bias": [[1, 101]]}, "logit_bias"),
        ({"logprobs": 21}, "`logprobs`"),
        ({"grammar": "x" * 65_537}, "limits.grammar_bytes is 65536"),
        ({"json_schema": {"a": "é" * 40_000}}, "limits.grammar_bytes is 65536"),
        ({"tools": [{"type": "function", "function": {"name": "a", "description": "x" * 70_000}}]}, "grammar_bytes"),
        ({"messages": [{"role": "user", "content": "x", "tool_call_id": "c"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "messages[0].tool_calls"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], named: str) -> None:
    assert named in rejected(**fields)


def test_nul_in_calls_is_refused() -> None:
    call = {"id": "c", "function": {"name": "look", "arguments": '{"a": "\0"}'}}
    assert "NUL" in rejected(messages=[{"role": "assistant", "tool_calls": [call]}])


def test_features() -> None:
    assert {"json_schema", "grammar", "tools", "thinking", "logprobs", "logit_bias"} <= set(FEATURES)
    assert list(FEATURES) == sorted(FEATURES)


def entry(number: int) -> TokenLogprob:
    return TokenLogprob(number, "é", -0.5, [TopLogprob(number, "é", -0.5)])


def test_an_event_carries_the_logprobs_of_its_tokens() -> None:
    stream = Stream(id="x", topic="t", mode="pub")
    assert stream.token("", 1, 0.0, [1]) is None
    first = stream.token("a", 1, 0.0, [2])
    second = stream.token("b", 1, 0.0, [3])
    assert first is not None
    assert second is not None
    assert (first["n"], first["logprobs"], second["logprobs"]) == (2, [1, 2], [3])
    plain = Stream(id="x", topic="t", mode="pub").token("a", 1, 0.0)
    assert plain is not None
    assert "logprobs" not in plain


def result(**more: Any) -> dict[str, Any]:
    request = Request(
        rid=1,
        identity="uid:1",
        id="x",
        digest=b"",
        body=Generate(prompt="x"),
        sampling=Sampling(),
        max_tokens=1,
        received=0.0,
        deadline_ms=1,
        stream=Stream(id="x", topic="t", mode=False),
        **more,
    )
    return result_fields(request, reason="stop", stop=None, model="m", now=1.0)


def test_a_result_has_what_applies() -> None:
    assert not {"tool_calls", "reasoning", "logprobs"} & result().keys()
    call = ToolCall("c", FunctionCall("look", "{}"))
    full = result(tool_calls=[call], reasoning="hm", logprobs=[logprob_entry(entry(7))], shape=Shape(logprobs=1))
    assert full["tool_calls"] == [call]
    assert full["reasoning"] == "hm"
    assert json.loads(bytes(full["logprobs"][0])) == {
        "id": 7,
        "token": "é",
        "logprob": -0.5,
        "top": [{"id": 7, "token": "é", "logprob": -0.5}],
    }
    assert result(shape=Shape(logprobs=3))["logprobs"] == []
