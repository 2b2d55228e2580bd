"""Tool calls: the grammar of one in a model's own format, and what a written one says. Pure.

A call is text of the format the template showed (`CallFormat`), with one of the tools' names and arguments as that
tool's `parameters` say. A schema that cannot be enforced is refused, unless its tool says `"strict": false`: then its
arguments are any object.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from edged.messages import FunctionCall, ToolCall
from edged.worker import jsontext
from edged.worker.grammar import NOTHING, Chain, Choice, GrammarError, Node, Repeat, Rule, text
from edged.worker.probing import CallFormat
from edged.worker.schema import Converter

MOST: Final = 16
"""Calls in one answer."""

_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def call_rules(form: CallFormat, tools: list[dict[str, Any]], name: str | None) -> dict[str, Node]:
    """Rules with `call`: one call of any tool, or of the one named. Raises GrammarError."""
    rules: dict[str, Node] = dict(jsontext.BASE)
    options: list[Node] = []
    for index, tool in enumerate(tools):
        function = tool["function"]
        if name is None or function["name"] == name:
            arguments = _arguments(function, index, rules)
            options.append(
                Chain((jsontext.literal(function["name"]), _key(form.arguments_key, first=False), arguments))
            )
    space = jsontext.SPACE
    body = Chain((text("{"), space, _key(form.name_key, first=True), Choice(tuple(options)), space, text("}")))
    before, after = form.before.strip(), form.after.strip()
    rules["call"] = Chain(
        (
            Chain((text(before), space)) if before else NOTHING,
            body,
            Chain((space, text(after))) if after else NOTHING,
        )
    )
    return rules


def required(form: CallFormat, *, one: bool) -> Node:
    """The whole answer: calls and nothing else."""
    call = Rule("call")
    if one or not form.several:
        return call
    return Chain((call, Repeat(Chain((jsontext.SPACE, call)), 0, MOST - 1)))


def _key(name: str, *, first: bool) -> Node:
    space = jsontext.SPACE
    start = NOTHING if first else Chain((space, text(","), space))
    return Chain((start, jsontext.literal(name), space, text(":"), space))


def _arguments(function: dict[str, Any], index: int, rules: dict[str, Node]) -> Node:
    schema = function.get("parameters") or _NO_ARGUMENTS
    if "$ref" not in schema and schema.setdefault("type", "object") != "object":
        raise GrammarError(f"tool `{function['name']}`: `parameters` must be of type object")
    converter = Converter(schema, rules, f"t{index}")
    try:
        node = converter.visit(schema, "#", 0)
    except GrammarError as error:
        if function.get("strict") is False:
            return Rule("object")
        raise GrammarError(f"tool `{function['name']}`, `parameters` {error}") from None
    rules.update(converter.made)
    return node


def read_call(data: bytes, form: CallFormat, seed: int, index: int) -> ToolCall:
    """A call as the grammar wrote it. Its id depends on seed, place and call alone: carried on, it is the same."""
    written = data.decode()
    value, _ = json.JSONDecoder().raw_decode(written, written.index("{", len(form.before.strip())))
    name, arguments = value[form.name_key], json.dumps(value[form.arguments_key], ensure_ascii=False)
    mark = hashlib.blake2b(f"{seed}:{index}:{name}:{arguments}".encode(), digest_size=9).hexdigest()
    return ToolCall(f"call_{mark}", FunctionCall(name, arguments))
