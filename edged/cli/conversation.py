"""The turns of a chat. Pure.

A turn is kept whole or not at all: an answer that was cancelled or failed takes its question with it, as the protocol
says of the daemon's own sessions.
"""

from __future__ import annotations

import json

Message = dict[str, str]


class Conversation:
    """`kept`: the daemon keeps it too, as a session, and is sent new turns only."""

    def __init__(self, system: str | None, *, kept: bool = False) -> None:
        self._kept = kept
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[tuple[str, str]] = []

    def __len__(self) -> int:
        """Turns that are kept."""
        return len(self._turns)

    @property
    def messages(self) -> list[Message]:
        out = list(self._system)
        for question, answer in self._turns:
            out += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return out

    def asking(self, question: str) -> list[Message]:
        before = self._system if self._kept else self.messages
        return [*before, {"role": "user", "content": question}]

    def keep(self, question: str, answer: str) -> None:
        self._turns.append((question, answer))

    def forget_oldest(self) -> None:
        del self._turns[0]

    def reset(self) -> None:
        self._turns.clear()

    def as_json(self) -> str:
        """The messages, as `edgectl tokenize --messages` takes them."""
        return json.dumps(self.messages, ensure_ascii=False, indent=1) + "\n"

    def as_text(self) -> str:
        return "".join(f"{message['role']}:\n{message['content']}\n\n" for message in self.messages)
