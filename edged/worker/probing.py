"""What a chat template can do, found out by rendering conversations of our own with it. Pure.

*Thinking*: rendered with `enable_thinking` (or `thinking`) true and false it differs → it knows the switch. A template
that mentions `</think>` belongs to a model that thinks, unless the rendered prompt ends with it; one whose prompt ends
with `<think>` has begun for the model.

*Tools*: the description of a tool must show. *Calls*: an answer that calls a tool is rendered, and the JSON object in
it that has the tool's name is looked at: its keys, what stands before it in the answer and after it. Other formats
(XML, Python calls) are not supported, nor such whose marks are control tokens, which are not text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

Render = Callable[..., str]
"""(turns, tools=None, generation=True, thinking=None) → text; raises Exception of any kind."""

OPEN, CLOSE = "<think>", "</think>"

_ASK: Final = {"role": "user", "content": "probe question"}
_NAME: Final = "probe_tool"
_ARGUMENTS: Final = {"probe_key": "probe_value"}
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "probe description",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}, "required": ["probe_key"]},
    },
}


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A call is `before` {"name_key": …, "arguments_key": {…}} `after`. `several`: one answer may have more of them."""

    before: str
    after: str
    name_key: str
    arguments_key: str
    several: bool

    @property
    def trigger(self) -> str:
        """Text that only a call begins with; without a mark before it, the object's own first words."""
        return self.before.strip() or f'{{"{self.name_key}": "'

    @property
    def marked(self) -> bool:
        return bool(self.before.strip())


Start = Literal["no", "maybe", "open"]
"""How an answer begins: without thinking, perhaps with `<think>`, or inside it."""


@dataclass(frozen=True, slots=True)
class Abilities:
    tools: bool = False
    calls: CallFormat | None = None
    shows_calls: bool = False  # of earlier answers, in whatever format
    switch: bool = False  # thinking can be switched
    starts: tuple[Start, Start, Start] = ("no", "no", "no")  # not given, False, True

    def start(self, thinking: bool | None) -> Start:
        return self.starts[0 if thinking is None else 1 + thinking]


def probe(render: Render, source: str, controls: Iterable[str]) -> Abilities:
    """`controls`: the texts of control tokens."""
    plain, off, on = (_try(render, [_ASK], thinking=thinking) for thinking in (None, False, True))
    with_tool = _try(render, [_ASK], tools=[_TOOL])
    tools = with_tool is not None and "probe description" in with_tool
    starts = tuple(_start(text, source) for text in (plain, off, on))
    call = _called(render, 1)
    return Abilities(
        tools=tools,
        calls=_format(render, call, set(controls)) if tools and call else None,
        shows_calls=call is not None,
        switch=off != on,
        starts=(starts[0], starts[1], starts[2]),
    )


def _try(render: Render, turns: list[Any], **more: Any) -> str | None:
    try:
        return render(turns, **more)
    except Exception:  # noqa: BLE001 - a template may fail in any way; then it cannot do this
        return None


def _start(text: str | None, source: str) -> Start:
    if text is None or CLOSE not in source or text.rstrip().endswith(CLOSE):
        return "no"
    return "open" if text.rstrip().endswith(OPEN) else "maybe"


def _called(render: Render, count: int) -> str | None:
    """A conversation that ends with calls; None when they do not show."""
    turn = {"role": "assistant", "content": "", "tool_calls": [_call(f"{_NAME}_{i}") for i in range(count)]}
    text = _try(render, [_ASK, turn], tools=[_TOOL], generation=False)
    return text if text is not None and f"{_NAME}_{count - 1}" in text else None


def _call(name: str) -> dict[str, Any]:
    return {"id": "call_probe", "type": "function", "function": {"name": name, "arguments": _ARGUMENTS}}


def _format(render: Render, called: str, controls: set[str]) -> CallFormat | None:
    said = _try(render, [_ASK, {"role": "assistant", "content": "PROBE"}], tools=[_TOOL], generation=False)
    found = _objects(called)
    if said is None or "PROBE" not in said or len(found) != 1:
        return None
    start, end, keys = found[0]
    head, _, tail = said.rpartition("PROBE")
    if not called.startswith(head) or not called.endswith(tail) or len(head) > start:
        head = _common(called, said)
        if not called.endswith(tail) or len(head) > start:
            return None
    before, after = called[len(head) : start], called[end : len(called) - len(tail)]
    if any(c and c in before + after for c in controls):
        return None
    if not before.strip() and after.strip():
        return None
    two = _called(render, 2)
    several = two is not None and len(_objects(two)) == 2
    return CallFormat(before, after, *keys, several=several)


def _common(one: str, other: str) -> str:
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:same]


def _objects(text: str) -> list[tuple[int, int, tuple[str, str]]]:
    """Objects that are a call of the probe's: where they stand, and their keys."""
    decoder, at, out = json.JSONDecoder(), 0, []
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            at += 1
            continue
        names = [k for k, v in value.items() if isinstance(v, str) and v.startswith(f"{_NAME}_")]
        arguments = [k for k, v in value.items() if v == _ARGUMENTS]
        if len(names) == len(arguments) == 1 and list(value) == [names[0], arguments[0]]:
            out.append((at, end, (names[0], arguments[0])))
            at = end
        else:
            at += 1
    return out
