"""The form of an answer, made in the prepare thread: what constrains it and what is told apart in it.

* `whole` constrains everything the model writes: a schema, a grammar, required calls; after the thinking, if it thinks.
* `call` constrains a call once its first words have been written (tool_choice `auto`), and reads every call.
* `thinks`: whether the answer begins with thinking.

Every request has automata of its own: they remember what they have seen of the text. What of them is slow (the sorted
vocabulary) is made once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from edged.messages import Shape
from edged.worker import gbnf, schema
from edged.worker.automaton import Automaton
from edged.worker.calling import call_rules, required
from edged.worker.chat import TemplateRefusalError
from edged.worker.grammar import Chain, GrammarError, Node, Repeat, Rule, Until, maybe, one_of, text
from edged.worker.masks import Masks, Pieces
from edged.worker.probing import CLOSE, OPEN, Abilities, CallFormat, Start

_SPACES: Final = Repeat(one_of(" \n"), 0, 4)


class Vocabulary(Protocol):
    """What is needed of the model's tokens."""

    def pieces_and_ends(self) -> tuple[list[bytes], set[int]]: ...


@dataclass(frozen=True, slots=True)
class Gate:
    """A grammar over a vocabulary."""

    automaton: Automaton
    masks: Masks


@dataclass(frozen=True, slots=True)
class Form:
    whole: Gate | None = None
    call: Gate | None = None
    call_format: CallFormat | None = None
    thinks: Start = "no"
    logprobs: int = 0


class FormMaker:
    """For one model."""

    def __init__(self, vocabulary: Vocabulary, abilities: Abilities) -> None:
        self._vocabulary, self._abilities = vocabulary, abilities
        self._pieces: Pieces | None = None

    def tools(self, shape: Shape) -> list[dict[str, Any]] | None:
        """What the template is told. Raises TemplateRefusalError: the model has no tools."""
        if shape.tools is None or shape.tool_choice == "none":
            return None
        if not self._abilities.tools:
            raise TemplateRefusalError("field `tools`: this model's chat template has no tools")
        if self._abilities.calls is None:
            raise TemplateRefusalError("field `tools`: the format of this model's calls is not supported")
        tools: list[dict[str, Any]] = msgspec.json.decode(shape.tools)
        return tools

    def make(self, shape: Shape, *, chat: bool) -> Form:
        """Raises GrammarError, TemplateRefusalError. `chat`: the prompt was messages."""
        abilities = self._abilities
        if shape.thinking and not abilities.switch:
            raise TemplateRefusalError("field `thinking`: this model's chat template has no such switch")
        thinks: Start = abilities.start(shape.thinking) if chat else "no"
        tools = self.tools(shape)
        whole, call = None, None
        if tools is not None and abilities.calls is not None:
            rules = call_rules(abilities.calls, tools, shape.tool_name)
            if shape.tool_choice == "required":
                only = required(abilities.calls, one=shape.tool_name is not None)
                whole = self._gate("field `tools`", {**rules, "root": only}, thinks)
            call = self._gate("field `tools`", {**rules, "root": Rule("call")}, "no")
        elif shape.json_schema is not None:
            whole = self._schema(shape.json_schema, thinks)
        elif shape.grammar is not None:
            whole = self._grammar(shape.grammar, thinks)
        return Form(whole, call, abilities.calls if call else None, thinks, shape.logprobs)

    def _schema(self, source: str, thinks: Start) -> Gate:
        try:
            rules = schema.to_rules(msgspec.json.decode(source))
        except GrammarError as error:
            raise GrammarError(f"field `json_schema`: {error}") from None
        return self._gate("field `json_schema`", rules, thinks)

    def _grammar(self, source: str, thinks: Start) -> Gate:
        try:
            rules = gbnf.parse(source)
        except GrammarError as error:
            raise GrammarError(f"field `grammar`: {error}") from None
        return self._gate("field `grammar`", rules, thinks)

    def _gate(self, field: str, rules: dict[str, Node], thinks: Start) -> Gate:
        try:
            automaton = Automaton(*_after_thinking(rules, thinks))
        except GrammarError as error:
            raise GrammarError(f"{field}: {error}") from None
        if self._pieces is None:
            self._pieces = Pieces(*self._vocabulary.pieces_and_ends())
        return Gate(automaton, Masks(self._pieces, automaton))


def _after_thinking(rules: dict[str, Node], thinks: Start) -> tuple[dict[str, Node], str]:
    """Rules and their root. The new names are none that GBNF could have."""
    if thinks == "no":
        return rules, "root"
    thought: Node = Chain((Until(CLOSE.encode()), _SPACES))
    if thinks == "maybe":
        thought = maybe(Chain((_SPACES, text(OPEN), thought)))
    return {**rules, ".thinking": Chain((thought, Rule("root")))}, ".thinking"
