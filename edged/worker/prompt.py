"""From what was asked to the tokens of a prompt and what is known of them. Pure: tokenizing is given.

* *public*: the tokens that the leading system messages alone determine (with the tools, which stand there): what they
  are rendered to by themselves. Where there are none, what the template puts before any first word.
* *cuts*, for models whose memory cannot be trimmed: where the next prompt will branch off. After the system message,
  and where the head of the answer begins: what was thought, or written otherwise, is not in the next prompt.
* *Whole turns* of a session's history are left out, oldest first, when prompt and a first piece of the answer do not
  fit: down to three quarters of the context at once, since what follows has to be read anew each time that happens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edged.messages import Message, Shape, Start, Warm
from edged.worker.chat import TemplateRefusalError
from edged.worker.jobs import GROWTH
from edged.worker.prefix import common

KEPT = 0.75
"""Part of the context that a history may fill after turns were left out."""

HEADS = 16
"""Beginnings whose tokens are remembered."""

PLAIN = Shape()


@dataclass(frozen=True, slots=True)
class Prompt:
    """`dropped`: turns of the history that were left out. `ids`: of a carried request's answer."""

    tokens: list[int]
    public: int = 0
    cuts: tuple[int, ...] = ()
    dropped: int = 0
    ids: Sequence[int] = ()


class Tokens(Protocol):
    """Text or messages → token ids; `generation`: with the head of an answer. Raises TemplateRefusalError."""

    def __call__(
        self, text: str | None, messages: Sequence[Message] | None, shape: Shape = ..., *, generation: bool = ...
    ) -> list[int]: ...


class Prompts:
    """`count`: tokens of a text; `cells`: the context; `exact`: its memory cannot be trimmed."""

    def __init__(self, tokens: Tokens, count: Callable[[str], int], *, cells: int, exact: bool) -> None:
        self._tokens, self._count, self._cells, self._exact = tokens, count, cells, exact
        self._heads: OrderedDict[object, list[int]] = OrderedDict()

    def make(self, job: Start | Warm) -> Prompt:
        """Raises TemplateRefusalError."""
        if isinstance(job, Warm):
            tokens = self._tokens(None, job.messages, generation=False)
            public = self._public(job.messages, PLAIN, job.scope, tokens)
            return Prompt(tokens, public, self._cuts(public, len(tokens)))
        if job.messages is None:
            return Prompt(self._tokens(job.prompt, None))
        messages, dropped = self._fitting(job, job.messages)
        tokens = self._tokens(None, messages, job.shape)
        public = self._public(messages, job.shape, job.scope, tokens)
        turn = common(tokens, self._tokens(None, messages, job.shape, generation=False)) if self._exact else 0
        return Prompt(tokens, public, self._cuts(public, turn, before=len(tokens)), dropped)

    def _cuts(self, *places: int, before: int | None = None) -> tuple[int, ...]:
        if not self._exact:
            return ()
        return tuple(sorted({p for p in places if p > 0 and (before is None or p < before)}))

    def _public(self, messages: Sequence[Message], shape: Shape, scope: str, tokens: list[int]) -> int:
        head = [m for i, m in enumerate(messages) if all(n.role == "system" for n in messages[: i + 1])]
        key = (scope, tuple(m.content for m in head), shape.tools, shape.tool_choice == "none", shape.thinking)
        shared = self._heads.pop(key, None)
        if shared is None:
            shared = self._beginning(head, shape)
        self._heads[key] = shared
        while len(self._heads) > HEADS:
            self._heads.popitem(last=False)
        return len(shared) if tokens[: len(shared)] == shared else 0

    def _beginning(self, head: list[Message], shape: Shape) -> list[int]:
        try:
            one, other = (self._tokens(None, [*head, Message("user", word)], shape) for word in ("One", "2"))
            if not head:
                return one[: common(one, other)]
            return one[: common(one, self._tokens(None, head, shape, generation=False))]
        except TemplateRefusalError:  # a template that wants more than a system message and a user's
            return []

    def _fitting(self, job: Start, messages: list[Message]) -> tuple[list[Message], int]:
        """What fits, and how many turns are left out."""
        if not job.turns:
            return messages, 0
        wanted = self._cells - min(job.max_tokens, GROWTH)
        dropped, left = 0, messages
        total = len(self._tokens(None, left, job.shape))
        while total > wanted and dropped < len(job.turns):
            dropped = max(dropped + 1, self._excess(job, messages, total) if not dropped else 0)
            left = messages[: job.head] + messages[job.head + sum(job.turns[:dropped]) :]
            total = len(self._tokens(None, left, job.shape))
        return left, dropped

    def _excess(self, job: Start, messages: list[Message], total: int) -> int:
        """Turns to leave out, by the tokens of their texts, and what the template adds shared evenly."""
        sizes = [self._count(m.content) for m in messages]
        added = (total - sum(sizes)) / len(messages)
        left, at = float(total), job.head
        for dropped, turn in enumerate(job.turns):
            if left <= KEPT * self._cells:
                return dropped
            left -= sum(sizes[at : at + turn]) + added * turn
            at += turn
        return len(job.turns)
