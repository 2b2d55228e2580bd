"""Messages → segments of text to tokenize, by the model's own chat template. Pure: no llama_cpp, the clock is given.

The template runs in jinja2's immutable sandbox with what templates out in the world expect: `bos_token`, `eos_token`,
`add_generation_prompt`, `tools`, `documents` (none), `enable_thinking` when given, `raise_exception`, `strftime_now`,
`tojson` as Hugging Face has it, loop controls. One that is missing, does not compile, or fails on a plain conversation
is replaced by ChatML (`source` says which it is).

Each segment is tokenized on its own with special tokens enabled (see `edged.worker.guard`). A BOS that the template
wrote is taken off and told apart, so that it is neither doubled nor lost.

Tools and earlier calls are users' text as well: every string in them is guarded. A call's arguments are given as an
object, as Hugging Face does it, or as their JSON text when they are none or the template fails on objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edged.messages import Message
from edged.worker.guard import Guard, choose_mark, fence, split
from edged.worker.probing import probe

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_PROBE = "edged test-renders this"
_NO_WORD = re.compile(r"[^A-Za-z0-9_\-]")

Turn = dict[str, Any]


class TemplateRefusalError(Exception):
    """The template does not take these messages: the caller's fault, with the template's reason."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """`bos`: the template began with the BOS token; it is not in the segments."""

    segments: list[str]
    bos: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a rendering is given beside the messages; `generation`: with the head of an answer."""

    tools: list[dict[str, Any]] | None = None
    thinking: bool | None = None
    generation: bool = True


class ChatTemplate:
    """One model's template, checked by rendering a plain conversation."""

    def __init__(
        self,
        template: str | None,
        *,
        bos: str = "",
        eos: str = "",
        specials: Iterable[str] = (),
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._bos, self._eos, self._now = bos, eos, now
        specials = tuple(specials)
        self._guard = Guard(specials)
        self.source: Literal["model", "chatml"] = "model"
        self.warning: str | None = None
        try:
            if not template:
                raise TemplateRefusalError("the model has none")
            self._template = _compile(template)
            if _PROBE not in self._render([{"role": "user", "content": _PROBE}]):
                raise TemplateRefusalError("it leaves the message out")
        except (TemplateRefusalError, jinja2.TemplateError) as error:
            self.source = "chatml"
            self.warning = f"chat template: {_line(error)}; ChatML is used instead"
            self._template = _compile(CHATML)
        render = lambda turns, **more: self._render(turns, _Asked(**more))  # noqa: E731
        self.abilities = probe(render, (template or "") if self.source == "model" else "", specials)

    def render(
        self,
        messages: Sequence[Message],
        tools: list[dict[str, Any]] | None = None,
        thinking: bool | None = None,
        *,
        generation: bool = True,
    ) -> Rendered:
        """Raises TemplateRefusalError."""
        if any(m.tool_calls for m in messages) and not self.abilities.shows_calls:
            raise TemplateRefusalError("this model's chat template does not show `tool_calls`")
        asked = _Asked(tools, thinking, generation)
        try:
            segments = self._guarded(_turns(messages, parse=True), asked)
        except TemplateRefusalError:
            if not any(m.tool_calls for m in messages):
                raise
            segments = self._guarded(_turns(messages, parse=False), asked)
        bos = bool(self._bos and segments and segments[0].startswith(self._bos))
        if bos:
            segments[0] = segments[0].removeprefix(self._bos)
        return Rendered([s for s in segments if s], bos)

    def _guarded(self, turns: list[Turn], asked: _Asked) -> list[str]:
        mark, _ = choose_mark([*_strings(turns), *_strings(asked.tools)])
        turns, tools = (_map(v, lambda s: s.replace(mark, "")) for v in (turns, asked.tools))

        def protect(text: str) -> str:
            return self._guard.protect(text, mark)

        def fenced(text: str) -> str:
            """Names stay as they are: templates compare them."""
            return fence(protect(text), mark) if _NO_WORD.search(text) else text

        def segments(turns: list[Turn], tools: list[dict[str, Any]] | None) -> list[str]:
            return split(self._render(turns, replace(asked, tools=tools)), mark)

        out = segments(_map(turns, protect), _map(tools, protect))
        if self._guard.count(out) != self._expected(turns, replace(asked, tools=tools)):
            apart = [_map(t, fenced) | {"content": fence(protect(t["content"]), mark)} for t in turns]
            out = segments(apart, _map(tools, fenced))
        return out

    def plain(self, text: str) -> list[str]:
        """A raw prompt → segments."""
        mark, (text,) = choose_mark([text])
        return split(self._guard.protect(text, mark), mark)

    def _expected(self, turns: list[Turn], asked: _Asked) -> object:
        """What the template itself writes around texts of the same kind (empty stays empty)."""
        harmless = [
            _map(t, _harmless) | {"content": "x" if t["content"].strip() else t["content"], "role": t["role"]}
            for t in turns
        ]
        try:
            asked = replace(asked, tools=_map(asked.tools, _harmless))
            return self._guard.count([self._render(harmless, asked)])
        except TemplateRefusalError:
            return None

    def _render(self, turns: list[Turn], asked: _Asked = _Asked()) -> str:
        switch = {} if asked.thinking is None else {"enable_thinking": asked.thinking, "thinking": asked.thinking}
        try:
            return self._template.render(
                messages=turns,
                add_generation_prompt=asked.generation,
                tools=asked.tools,
                documents=None,
                bos_token=self._bos,
                eos_token=self._eos,
                raise_exception=_refuse,
                strftime_now=lambda form: self._now().strftime(form),
                **switch,
            )
        except TemplateRefusalError:
            raise
        except Exception as error:
            raise TemplateRefusalError(f"the chat template failed on these messages: {_line(error)}") from error


def _turns(messages: Sequence[Message], *, parse: bool) -> list[Turn]:
    return [_turn(m, parse=parse) for m in messages]


def _turn(message: Message, *, parse: bool) -> Turn:
    turn: Turn = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": _arguments(call.function.arguments) if parse else call.function.arguments,
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn


def _arguments(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _map(value: Any, change: Callable[[str], str]) -> Any:
    """The same with every string changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map(item, change) for item in value]
    return value


def _harmless(text: str) -> str:
    return _NO_WORD.sub("x", text)


class _Generation(Extension):
    """{% generation %}…{% endgeneration %} marks answers for training; here it only has to be let through."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _compile(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _Generation],
    )
    environment.filters["tojson"] = _tojson
    try:
        return environment.from_string(template)
    except RecursionError as error:
        raise TemplateRefusalError("it is nested too deeply") from error


def _tojson(value: Any, indent: int | None = None, separators: tuple[str, str] | None = None, **more: Any) -> str:
    """json.dumps as templates expect it: no HTML escapes, no ASCII escapes."""
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, **more)


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusalError(str(message))


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"
