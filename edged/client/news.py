"""What the service tells everybody, live: the events of `sys/` (protocol 4).

Nothing is kept for who is away: `history` has what was missed, and `n` of an event tells whether something was.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from edged.client.lines import Lines
from edged.client.steps import Close, Heard, Listen, Lost, Message

TOPIC: Final = "sys/"
AGAIN_S: Final = 0.5
"""After a cut line, before the next: a refused one would come back at once, for ever."""


class News:
    """One subscription that is made again when it is cut. For one thread at a time."""

    def __init__(self, lines: Lines, endpoint: str) -> None:
        self._lines = lines
        self._endpoint = endpoint
        self._line = 0
        self._open_at: float | None = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()

    def wait(self, timeout_s: float) -> tuple[list[Message], bool]:
        """What came within `timeout_s`, and whether the line was cut."""
        now = time.monotonic()
        if self._open_at is not None and self._open_at <= now:
            self._line += 1
            self._open_at = None
            self._lines.do([Listen(self._line, self._endpoint, TOPIC)])
        heard: list[Message] = []
        lost = False
        for what in self._lines.wait(timeout_s if self._open_at is None else min(timeout_s, self._open_at - now)):
            match what:
                case Heard(message=message):
                    heard.append(message)
                case Lost() if self._open_at is None:
                    lost = True
                    self._lines.do([Close(self._line)])
                    self._open_at = time.monotonic() + AGAIN_S
        return heard, lost
