"""Rules between the fields of `generate` that say what the answer must look like (protocol 3). Pure.

The schemas and grammars themselves are the worker's affair; here is what can be told without a model.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from edged.config import Limits
from edged.messages import ChosenTool, Generate, Message, Tool


def objection(request: Generate, limits: Limits) -> str | None:
    """What is wrong, naming the field; None: nothing."""
    return (
        _combination(request)
        or _sizes(request, limits)
        or (_tools(request.tools or [], request.tool_choice) if request.tools else None)
        or _bias(request)
    )


def _combination(request: Generate) -> str | None:
    constrained = [name for name in ("json_schema", "grammar") if getattr(request, name) is not None]
    if request.tools and request.tool_choice != "none":
        constrained.append("tools")
    if len(constrained) > 1:
        return f"give at most one of `{constrained[0]}` and `{constrained[1]}`"
    if request.tool_choice is not None and request.tools is None:
        return "field `tool_choice` needs `tools`"
    forced = request.tool_choice == "required" or isinstance(request.tool_choice, ChosenTool)
    if request.stop and (forced or (constrained and constrained[0] != "tools")):
        return f"`stop` would cut the output that `{'tool_choice' if forced else constrained[0]}` constrains"
    if request.messages is None:
        for name in ("tools", "thinking"):
            if getattr(request, name) is not None:
                return f"field `{name}` needs `messages`"
    return None


def _sizes(request: Generate, limits: Limits) -> str | None:
    sizes = {
        "json_schema": 0 if request.json_schema is None else len(msgspec.json.encode(request.json_schema)),
        "grammar": len((request.grammar or "").encode()),
        "tools": 0 if request.tools is None else len(msgspec.json.encode(request.tools)),
    }
    for name, size in sizes.items():
        if size > limits.grammar_bytes:
            return f"field `{name}` has {size} bytes, limits.grammar_bytes is {limits.grammar_bytes}"
    if "\0" in (request.grammar or ""):
        return "field `grammar` contains NUL"
    return None


def _tools(tools: list[Tool], choice: object) -> str | None:
    names = Counter(tool.function.name for tool in tools)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        return f"field `tools`: function `{twice}` stands twice"
    if isinstance(choice, ChosenTool) and choice.function.name not in names:
        return "field `tool_choice` names none of `tools`"
    if b"\\u0000" in msgspec.json.encode(tools):
        return "field `tools` contains NUL"
    return None


def _bias(request: Generate) -> str | None:
    tokens = Counter(token for token, _ in request.logit_bias or [])
    twice = next((token for token, count in tokens.items() if count > 1), None)
    return None if twice is None else f"field `logit_bias`: token {twice} stands twice"


def messages_objection(messages: list[Message]) -> str | None:
    """What is wrong with the tool fields of messages."""
    for index, turn in enumerate(messages):
        if turn.tool_calls is not None and turn.role != "assistant":
            return f"field `messages[{index}].tool_calls` is for the role assistant"
        if turn.tool_call_id is not None and turn.role != "tool":
            return f"field `messages[{index}].tool_call_id` is for the role tool"
        texts = [turn.tool_call_id or ""]
        texts += [t for c in turn.tool_calls or [] for t in (c.id, c.function.name, c.function.arguments)]
        if any("\0" in text for text in texts):
            return f"field `messages[{index}]` contains NUL"
    return None
