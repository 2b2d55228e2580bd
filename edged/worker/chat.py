"""Messages → segments of text to tokenize, by the model's own chat template. Pure: no llama_cpp, the clock is given.

The template runs in jinja2's immutable sandbox with what templates out in the world expect: `bos_token`, `eos_token`,
`add_generation_prompt`, `tools` and `documents` (none), `raise_exception`, `strftime_now`, `tojson` as Hugging Face
has it, loop controls. One that is missing, does not compile, or fails on a plain conversation is replaced by ChatML
(`source` says which it is).

Each segment is tokenized on its own with special tokens enabled (see `edged.worker.guard`). A BOS that the template
wrote is taken off and told apart, so that it is neither doubled nor lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edged.messages import Message
from edged.worker.guard import Guard, choose_mark, fence, split

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_PROBE = "edged test-renders this"


class TemplateRefusalError(Exception):
    """The template does not take these messages: the caller's fault, with the template's reason."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """`bos`: the template began with the BOS token; it is not in the segments."""

    segments: list[str]
    bos: bool


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

    def render(self, messages: Sequence[Message], *, generation: bool = True) -> Rendered:
        """Raises TemplateRefusalError."""
        mark, contents = choose_mark([m.content for m in messages])
        guarded = [self._guard.protect(c, mark) for c in contents]
        roles = [m.role for m in messages]
        segments = split(self._render(_turns(roles, guarded), generation), mark)
        if self._guard.count(segments) != self._expected(roles, contents, generation):
            segments = split(self._render(_turns(roles, [fence(c, mark) for c in guarded]), generation), mark)
        bos = bool(self._bos and segments and segments[0].startswith(self._bos))
        if bos:
            segments[0] = segments[0].removeprefix(self._bos)
        return Rendered([s for s in segments if s], bos)

    def plain(self, text: str) -> list[str]:
        """A raw prompt → segments."""
        mark, (text,) = choose_mark([text])
        return split(self._guard.protect(text, mark), mark)

    def _expected(self, roles: Sequence[str], contents: Sequence[str], generation: bool) -> object:
        """What the template itself writes around contents of the same kind (empty stays empty)."""
        harmless = ["x" if c.strip() else c for c in contents]
        try:
            return self._guard.count([self._render(_turns(roles, harmless), generation)])
        except TemplateRefusalError:
            return None

    def _render(self, turns: list[dict[str, str]], generation: bool = True) -> str:
        try:
            return self._template.render(
                messages=turns,
                add_generation_prompt=generation,
                tools=None,
                documents=None,
                bos_token=self._bos,
                eos_token=self._eos,
                raise_exception=_refuse,
                strftime_now=lambda form: self._now().strftime(form),
            )
        except TemplateRefusalError:
            raise
        except Exception as error:
            raise TemplateRefusalError(f"the chat template failed on these messages: {_line(error)}") from error


def _turns(roles: Sequence[str], contents: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]


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
