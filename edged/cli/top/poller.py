"""A thread that looks at the box again and again: keys are heard while a daemon hangs.

Only the newest look is kept: a terminal that is slow misses looks, and is never behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from edged import client
from edged.cli import reach
from edged.cli.output import error_words, silence_words
from edged.cli.past import Past, past
from edged.cli.top.box import FINE_S, Look

EVENTS: Final = 50
PATIENCE_S: Final = 2.0


class Way(Struct, frozen=True):
    endpoint: str
    client: client.Client


class Poller(threading.Thread):
    """`wake` is called, from the thread, when there is a look. `control` None: no requests, `hidden` says why."""

    def __init__(
        self,
        box: Way,
        control: Way | None,
        *,
        hidden: str,
        interval_s: float,
        patience_s: float,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(name="poller", daemon=True)
        self._box = box
        self._control = control
        self._hidden = hidden
        self._interval_s = interval_s
        self._patience_s = min(patience_s, PATIENCE_S)
        self._wake = wake
        self._go = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._look: Look | None = None
        self.seconds = FINE_S  # of `history`, for the next look

    def take(self) -> Look | None:
        with self._lock:
            look, self._look = self._look, None
        return look

    def hurry(self) -> None:
        """Look now."""
        self._go.set()

    def stop(self) -> None:
        self._over.set()
        self._go.set()

    def run(self) -> None:
        while not self._over.is_set():
            self._go.clear()
            begun = time.monotonic()
            look = self.look()
            with self._lock:
                self._look = look
            self._wake()
            self._go.wait(max(0.0, begun + self._interval_s - time.monotonic()))

    def look(self) -> Look:
        why = reach.unreachable(self._box.endpoint)
        try:
            if not why:
                status = self._box.client.call("status", deadline_s=self._patience_s)
                found = self._past(self._box.client)
                requests, hidden = self._requests()
                return Look(at=time.time(), status=status, past=found, requests=requests, hidden=hidden)
        except client.NoAnswer as error:
            why = silence_words(self._box.endpoint, error)
        except client.ReplyError as error:
            why = error_words(error)
        except client.EdgedError as error:
            why = str(error)
        return Look(at=time.time(), why=why)

    def _past(self, edged: client.Client) -> Past | None:
        """An older daemon has none."""
        try:
            return past(edged.call("history", deadline_s=self._patience_s, seconds=self.seconds, events=EVENTS))
        except client.ReplyError:
            return None

    def _requests(self) -> tuple[list[dict[str, Any]] | None, str]:
        if self._control is None:
            return None, self._hidden
        why = reach.unreachable(self._control.endpoint)
        if why:
            return None, why
        try:
            found = self._control.client.call("requests", deadline_s=self._patience_s).get("requests")
        except client.EdgedError as error:
            return None, str(error)
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else [], ""

    def cancel(self, request: dict[str, Any]) -> str:
        """In words what became of it. Called from the other thread: calls have sockets of their own."""
        if self._control is None:
            return self._hidden
        try:
            fields = {"id": str(request.get("id")), "identity": str(request.get("identity"))}
            reply = self._control.client.call("cancel", deadline_s=self._patience_s, **fields)
        except client.EdgedError as error:
            return str(error)
        return f"{request.get('id')}: {reply.get('state')}"
