"""Tool calls with a real model whose template has them: EDGED_BENCH_MODEL, a Qwen2.5."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import GREEDY, PATIENCE_S, Worker

from edged.messages import Done, FunctionCall, Message, Quit, Refused, Sampling, Shape, ToolCall

MODEL = os.environ.get("EDGED_BENCH_MODEL", "")
pytestmark = pytest.mark.skipif(not MODEL or not Path(MODEL).is_file(), reason="no model with tools: EDGED_BENCH_MODEL")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 30}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
TOOLS = json.dumps([WEATHER, CLOCK])
ASK = "What is the weather in Paris, in celsius? Use the tool."


@pytest.fixture(scope="module")
def qwen() -> Iterator[Worker]:
    worker = Worker(MODEL)
    worker.ready()
    yield worker
    worker.send(Quit())
    assert worker.process.wait(PATIENCE_S) == 0
    worker.sock.close()


def check(calls: list[ToolCall]) -> None:
    for call in calls:
        arguments = json.loads(call.function.arguments)
        if call.function.name == "get_weather":
            assert set(arguments) == {"city", "unit"}
            assert arguments["unit"] in ("celsius", "fahrenheit")
        else:
            assert (call.function.name, arguments) == ("get_time", {})


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0, seed=3), Sampling(1.5, top_k=0, seed=4)])
def test_required_calls_are_calls(qwen: Worker, sampling: Sampling) -> None:
    shape = Shape(tools=TOOLS, tool_choice="required")
    answer = qwen.ask(ASK, max_tokens=200, sampling=sampling, shape=shape)
    assert isinstance(answer.end, Done), answer.end
    assert answer.text.strip() == ""
    if answer.end.reason == "stop":
        assert answer.end.tool_calls
        check(answer.end.tool_calls)
        again = qwen.ask(ASK, max_tokens=200, sampling=sampling, shape=shape)
        assert again.end.tool_calls == answer.end.tool_calls, "ids too"


def test_a_named_function_is_called_once(qwen: Worker) -> None:
    answer = qwen.ask(ASK, max_tokens=100, shape=Shape(tools=TOOLS, tool_choice="required", tool_name="get_time"))
    assert [c.function.name for c in answer.end.tool_calls] == ["get_time"]
    assert answer.end.reason == "stop"


def test_auto_calls_or_speaks(qwen: Worker) -> None:
    for question in (ASK, "Say hello."):
        answer = qwen.ask(question, max_tokens=80, shape=Shape(tools=TOOLS))
        assert isinstance(answer.end, Done)
        assert "<tool_call>" not in answer.text
        check(answer.end.tool_calls or [])


def test_none_tells_nothing_of_tools(qwen: Worker) -> None:
    answer = qwen.ask("Say hello.", max_tokens=8, shape=Shape(tools=TOOLS, tool_choice="none"))
    assert answer.ids == qwen.ask("Say hello.", max_tokens=8).ids


def test_a_conversation_with_calls_goes_on(qwen: Worker) -> None:
    call = ToolCall("call_1", FunctionCall("get_weather", '{"city": "Paris", "unit": "celsius"}'))
    turns = [Message("user", ASK), Message("assistant", "", [call]), Message("tool", "21", tool_call_id="call_1")]
    answer = qwen.ask(turns, max_tokens=40, shape=Shape(tools=TOOLS))
    assert isinstance(answer.end, Done)
    assert answer.text or answer.end.tool_calls


def test_parameters_that_cannot_be_enforced_are_refused(qwen: Worker) -> None:
    odd = json.dumps([{"type": "function", "function": {"name": "f", "parameters": {"patternProperties": {}}}}])
    answer = qwen.ask("Hi", shape=Shape(tools=odd))
    assert isinstance(answer.end, Refused)
    assert "`patternProperties`" in answer.end.message
