"""What an accepted request on a session knows of it. Only data; the rules are in `edged.broker.sessions`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
"""Identity and session."""


@dataclass(slots=True)
class Talk:
    key: Key
    reset: bool
    looked: bool = False
    first: int = 0  # number of the first turn that was sent to the worker
    left_out: int = 0  # of those sent, by the worker
    begins: bool = False  # there is no turn before this one
    number: int = 0  # of the question that it waits for
    fields: dict[str, Any] = field(default_factory=dict)  # storing: the result
    until: float = 0.0  # storing: then the end is told

    @property
    def dropped(self) -> int:
        """Turns that are not in the prompt."""
        return self.first + self.left_out
