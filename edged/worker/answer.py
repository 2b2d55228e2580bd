"""What the model writes, told apart: thinking, text, calls. Pure but for the automaton it walks.

    start ──<think>──► thinking ──</think>──► text ⇄ call
      └──────── anything else ────────────────►

Bytes come in as tokens end, wherever that is. Held back is only what may still become something else: the longest end
of the text that `<think>`, `</think>` or a call's first words begin with, and a call until it is whole.

* Thinking goes to `reasoning`, whole at the end; white space after it is dropped. Without its end, all is thinking.
* A call's bytes are walked through its grammar; `gate` is what constrains the next token. When the token that completed
  the first words went on in a way no call does, it was none: all of it is text. White space after a call is dropped.
  A call that is not whole at the end is left out: `length` marks the answer.
* Stop strings are looked for in the text alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from edged.messages import ToolCall
from edged.worker.automaton import State
from edged.worker.calling import MOST, read_call
from edged.worker.detok import Detokenizer
from edged.worker.form import Form, Gate
from edged.worker.probing import CLOSE, OPEN

_SPACE = b" \t\r\n"
_OPEN, _CLOSE = OPEN.encode(), CLOSE.encode()


class Answer:
    """One request's way from token bytes to what is shown."""

    def __init__(self, form: Form, stop: Sequence[str], seed: int) -> None:
        self.calls: list[ToolCall] = []
        self._text = Detokenizer(stop)
        self._thought = bytearray()
        self._thinks = form.thinks
        self._phase = {"no": self._in_text, "maybe": self._at_start, "open": self._in_thinking}[form.thinks]
        self._held = b""
        self._strip = False  # white space is dropped until something else comes
        self._blank = True  # nothing but white space so far
        self._call = form.call
        self._format = form.call_format
        self._trigger = form.call_format.trigger.encode() if form.call_format else b""
        self._state: State | None = None
        self._seed = seed

    @property
    def stopped(self) -> str | None:
        return self._text.stopped

    @property
    def reasoning(self) -> str | None:
        """None: it is no model that thinks, or it did not."""
        text = self._thought.decode("utf-8", "ignore").strip()
        return text or None

    @property
    def gate(self) -> tuple[Gate, State] | None:
        """What constrains the next token: a call that has begun."""
        return None if self._state is None or self._call is None else (self._call, self._state)

    def feed(self, piece: bytes) -> str:
        """Bytes of the next token → text that may be shown now."""
        if self._call is not None:
            self._call.automaton.work = 0
        data = self._held + piece
        self._held = b""
        shown = ""
        while data:
            text, data = self._phase(data)
            shown += self._show(text)
        return shown

    def finish(self) -> str:
        """The text still held back."""
        shown = ""
        if self._phase == self._in_thinking:
            self._thought += self._held
        elif self._phase != self._in_call:
            shown = self._show(self._held)
        self._held = b""
        return shown + self._text.finish()

    def _show(self, data: bytes) -> str:
        if self._strip:
            data = data.lstrip(_SPACE)
            self._strip = not data
        if data.strip(_SPACE):
            self._blank = False
        return self._text.feed(data)

    # ---- phases: bytes → (bytes of text, bytes for the next phase, empty: none)

    def _at_start(self, data: bytes) -> tuple[bytes, bytes]:
        begun = data.lstrip(_SPACE)
        if begun.startswith(_OPEN):
            self._phase = self._in_thinking
            return b"", begun[len(_OPEN) :]
        if _OPEN.startswith(begun):
            self._held = data
            return b"", b""
        self._phase = self._in_text
        return b"", data

    def _in_thinking(self, data: bytes) -> tuple[bytes, bytes]:
        at = data.find(_CLOSE)
        if at < 0:
            keep = _overlap(data, _CLOSE)
            self._thought += data[: len(data) - keep]
            self._held = data[len(data) - keep :]
            return b"", b""
        self._thought += data[:at]
        self._phase, self._strip = self._in_text, True
        return b"", data[at + len(_CLOSE) :]

    def _in_text(self, data: bytes) -> tuple[bytes, bytes]:
        if self._call is None or self._format is None or len(self.calls) >= MOST:
            return data, b""
        at = data.find(self._trigger)
        if not self._format.marked and (data[:at].strip(_SPACE) or not self._blank or self.calls):
            at = -1  # an object is a call only where the answer begins
        if at < 0:
            keep = _overlap(data, self._trigger)
            self._held = data[len(data) - keep :]
            return data[: len(data) - keep], b""
        automaton = self._call.automaton
        self._state = automaton.walk(automaton.start, self._trigger)
        assert self._state is not None, "a call begins with its first words"
        self._phase, self._written = self._in_call, bytearray(self._trigger)
        if at + len(self._trigger) == len(data):
            return data[:at], b""
        return data[:at], data[at + len(self._trigger) :]

    def _in_call(self, data: bytes) -> tuple[bytes, bytes]:
        assert self._call is not None
        assert self._format is not None
        automaton, state = self._call.automaton, self._state
        assert state is not None
        for at, byte in enumerate(data):
            after = automaton.step(state, byte)
            if after is None:
                self._state, self._phase = None, self._in_text
                return bytes(self._written) + data[at : at + 1], data[at + 1 :]
            self._written.append(byte)
            state = after
            if state.final:
                call = read_call(bytes(self._written), self._format, self._seed, len(self.calls))
                self.calls.append(call)
                self._state, self._phase, self._strip = None, self._in_text, True
                return b"", data[at + 1 :]
        self._state = state
        return b"", b""


def _overlap(data: bytes, word: bytes) -> int:
    """How much of the end of `data` the word may begin with."""
    return next((n for n in range(min(len(word) - 1, len(data)), 0, -1) if data.endswith(word[:n])), 0)
