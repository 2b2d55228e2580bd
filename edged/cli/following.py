"""Events from two sources, `sys/` as they come and `history` for what was missed, made one row (protocol 4, 7). Pure.

`n` counts the events of one daemon from 0, and `instance` names the daemon: the next number of the same one is new,
anything else is a gap, a repetition or another daemon, and `history` tells which.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]


class Follower:
    def __init__(self) -> None:
        self._instance = ""
        self._last = -1

    def past(self, reply: dict[str, Any]) -> list[Event]:
        """What is new in a reply to `history`."""
        instance = str(reply.get("instance", ""))
        if instance != self._instance:
            self._instance, self._last = instance, -1
        events = reply.get("events")
        found = [e | {"instance": instance} for e in events if isinstance(e, dict)] if isinstance(events, list) else []
        new = [event for event in found if _number(event) > self._last]
        self._last = max([self._last, *map(_number, new)])
        return new

    def live(self, event: Event) -> list[Event] | None:
        """What is new; None: `history` has to be asked."""
        number = _number(event)
        if number < 0:
            return []
        if number != self._last + 1 or event.get("instance") != self._instance:
            return None
        self._last = number
        return [event]


def _number(event: Event) -> int:
    n = event.get("n")
    return n if isinstance(n, int) and not isinstance(n, bool) else -1
