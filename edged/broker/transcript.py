"""What the broker asks of the thread that keeps transcripts, and what that answers. Only data.

Every question has a number of its own and gets exactly one answer that carries it; questions are answered in the order
in which they were asked, so what is asked after a turn was handed over finds it. `Opened` is no answer: it says what
there is, when the database was opened and when a new one had to be begun.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from edged.messages import Message


class Look(Struct, frozen=True):
    """Is there a turn of this id? Answered by `Looked`."""

    number: int
    identity: str
    session: str
    id: str


class Fetch(Struct, frozen=True):
    """The part of the conversation that is still given to the model; the newest turns of `most_bytes`."""

    number: int
    identity: str
    session: str
    most_bytes: int


class Turn(Struct, frozen=True):
    """A turn that ended. `window`: number of the first turn that its prompt still held; it is so for later ones too."""

    id: str
    digest: bytes
    head: bytes  # the leading system messages, JSON; of a first turn only
    messages: bytes  # its new messages and the answer, JSON
    reply: bytes  # the result's fields without its text, JSON
    window: int

    @property
    def size(self) -> int:
        return len(self.messages) + len(self.reply)


class Append(Struct, frozen=True):
    """Write a turn down. `reset`: in the place of all that was there. Answered by `Stored` when it is committed."""

    number: int
    identity: str
    session: str
    turn: Turn
    reset: bool
    limit_bytes: int


class Get(Struct, frozen=True):
    """A transcript for people: the newest turns of `most_bytes`. Answered by `Got`."""

    number: int
    identity: str
    session: str
    most_bytes: int


class Delete(Struct, frozen=True):
    """Answered by `Deleted`."""

    number: int
    identity: str
    session: str


class Enumerate(Struct, frozen=True):
    """The sessions of one caller or (None) of all, the last used first. Answered by `Enumerated`."""

    number: int
    identity: str | None
    most: int


Question = Look | Fetch | Append | Get | Delete | Enumerate


class Opened(Struct, frozen=True):
    """What there is. `why`: there are no transcripts in this run, and never will be, because of this."""

    sessions: list[tuple[str, str]]
    why: str = ""


class Looked(Struct, frozen=True):
    """`digest` None: no such turn. `reply`: the stored result's fields, with its text."""

    number: int
    digest: bytes | None = None
    reply: dict[str, Any] = {}


class Fetched(Struct, frozen=True):
    """`first`: number of the first turn in `turns`; all before it are left out. `next`: number of the next turn."""

    number: int
    head: list[Message]
    turns: list[list[Message]]
    first: int
    next: int


class Stored(Struct, frozen=True):
    number: int
    identity: str
    session: str


class Got(Struct, frozen=True):
    """`fields` None: no such session."""

    number: int
    fields: dict[str, Any] | None


class Deleted(Struct, frozen=True):
    number: int
    identity: str
    session: str
    found: bool


class Enumerated(Struct, frozen=True):
    number: int
    rows: list[dict[str, Any]]
    omitted: int


class Failed(Struct, frozen=True):
    """It could not be done; `why` is for people."""

    number: int
    why: str


Answer = Opened | Looked | Fetched | Stored | Got | Deleted | Enumerated | Failed
