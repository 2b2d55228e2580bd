"""Conversations that the daemon keeps (protocol 3, Sessions): who waits for whom, what is asked of the store. Pure.

A request on a session is accepted like any other and stands in the queue like any other, but it is *held* (passed
over) until both are true:

* it is the first of its session: turns of one session run one after the other, in the order of acceptance;
* it was looked for: a turn of its id may be in the transcript already (then its stored reply is the answer).

    held ──► queued ──► fetching ──► given, running ──► storing ──► ended
                        transcript    with the worker    its turn is being committed

* *fetching* (state `given`): the transcript is being read. Only now, so that no more than the worker can take lie in
  memory. It takes no place of the worker's meanwhile: a disk that hangs must not keep others from it. So up to
  `sequences` + 2 more than usual may be given to the worker.
* *storing* (state `storing`, shown as running): the worker is done with it; the end is told when the turn is
  committed, when that failed, or after STORE_S; in the last two cases the result says `"stored":false`.

Turns are numbered from 0 in each session and numbers are never used again, so the number of the first turn in a prompt
is also how many are left out of it: `dropped_turns`.

Questions to the store that have no answer yet are bounded (UNANSWERED, UNWRITTEN_BYTES): beyond that a session's
requests are refused, or their turns given up, since a disk that hangs must not fill the memory.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from edged.broker.instructions import Ask
from edged.broker.table import Move, Request, State
from edged.broker.talk import Key, Talk
from edged.broker.transcript import Answer, Append, Fetch, Look, Opened, Turn
from edged.config import Limits
from edged.errors import Code, WireError
from edged.messages import Generate, Message, ToolCall

STORE_S: Final = 1.0
"""That an end waits for its commit, at most."""
LATE_S: Final = 0.5
"""After its deadline an end waits no longer than this (protocol 10: at most 1 s)."""
IN_ALL: Final = 4096
"""Sessions of all callers: over TCP without keys anybody who changes addresses is a new caller."""
UNANSWERED: Final = 256
_NOT_STORED: Final = frozenset({"text", "logprobs"})
"""Of a reply in the transcript: the text stands in its messages, and logprobs would be a hundred times as long."""
UNWRITTEN_BYTES: Final = 4 << 20
_OPENING_MS: Final = 500
_STUCK_MS: Final = 2000
_UNAVAILABLE_MS: Final = 60_000


class Sessions:
    """`asked` has an entry for every question without an answer: the bytes that it holds."""

    def __init__(self) -> None:
        self.why = ""  # there are no transcripts
        self._opened = False
        self._names: dict[str, set[str]] = {}  # identity → stored sessions
        self._lines: dict[Key, deque[Request]] = {}
        self.asked: dict[int, int] = {}
        self._bytes = 0
        self._number = 0
        self._fetching: dict[int, Request] = {}
        self._storing: dict[int, Request] = {}
        self._looking: dict[int, Request] = {}
        self._coming: dict[int, Key] = {}  # turns that the store has and has not answered for, whoever still waits

    # ---- who may, who waits ----------------------------------------------------------------------------------

    def refusal(self, identity: str, body: Generate, limits: Limits) -> WireError | None:
        """Why a request on a session is not accepted."""
        if body.session is None:
            return None
        error = self.unavailable()
        if error is not None:
            return error
        used = {*self._lines, *self._coming.values()}
        own = self._names.get(identity, set()) | {name for who, name in used if who == identity}
        if body.session not in own and len(own) >= limits.sessions_per_identity:
            limit = f"limits.sessions_per_identity is {limits.sessions_per_identity}"
            return WireError(Code.TOO_LARGE, f"you have as many sessions as you may ({limit}): delete one first")
        if body.session not in own and self._count + len(used) >= IN_ALL:
            return WireError(Code.TOO_LARGE, f"this box keeps {IN_ALL} sessions, no more: an operator may delete some")
        return None

    @property
    def _count(self) -> int:
        return sum(map(len, self._names.values()))

    def unavailable(self) -> WireError | None:
        if self.why:
            return WireError(Code.UNAVAILABLE, self.why, _UNAVAILABLE_MS)
        if not self._opened:
            return WireError(Code.UNAVAILABLE, "the transcripts are being opened", _OPENING_MS)
        if len(self.asked) >= UNANSWERED:
            return WireError(Code.UNAVAILABLE, "the disk with the transcripts does not keep up", _STUCK_MS)
        return None

    def join(self, request: Request, old: Request | None, *, again: bool = False) -> list[Ask]:
        """Accepted: it goes to the end of its session, or to the place of the one that it supersedes.

        `again`: by an earlier daemon, which may have stored it.
        """
        name = request.body.session
        if name is None:
            return []
        looked = request.body.id is None and not again
        talk = request.talk = Talk((request.identity, name), request.body.reset, looked=looked)
        line = self._lines.setdefault(talk.key, deque())
        if old is not None and old in line:
            line.insert(line.index(old), request)
        else:
            line.append(request)
        self._hold(line)
        if talk.looked:
            return []
        talk.number = self._next(0)
        self._looking[talk.number] = request
        return [Ask(Look(talk.number, *talk.key, request.id))]

    def looked(self, request: Request) -> None:
        assert request.talk is not None
        request.talk.looked = True
        self._hold(self._lines[request.talk.key])

    def left(self, request: Request) -> None:
        """It has ended; the next of its session may go."""
        talk = request.talk
        if talk is None:
            return
        for waiting in (self._looking, self._fetching, self._storing):
            waiting.pop(talk.number, None)
        line = self._lines[talk.key]
        line.remove(request)
        if line:
            self._hold(line)
        else:
            del self._lines[talk.key]

    @staticmethod
    def _hold(line: deque[Request]) -> None:
        for place, request in enumerate(line):
            assert request.talk is not None
            request.held = place > 0 or not request.talk.looked

    def busy(self, key: Key) -> bool:
        """A turn is waiting or running on it."""
        return key in self._lines

    # ---- the road to the worker ------------------------------------------------------------------------------

    @property
    def away(self) -> int:
        """Given or running, but not with the worker."""
        return len(self._fetching) + len(self._storing)

    @property
    def fetching(self) -> int:
        return len(self._fetching)

    def fetches(self, request: Request) -> bool:
        """Given, but its transcript is still being read: the worker has not heard of it."""
        return request.talk is not None and self._fetching.get(request.talk.number) is request

    def fetch(self, request: Request, most_bytes: int) -> Ask:
        talk = request.talk
        assert talk is not None
        talk.number, talk.left_out = self._next(0), 0
        self._fetching[talk.number] = request
        return Ask(Fetch(talk.number, *talk.key, most_bytes))

    def taken_back(self, request: Request) -> None:
        """The worker died: it is fetched again when its turn comes, unless its prompt is known."""
        if request.talk is not None:
            self._fetching.pop(request.talk.number, None)

    # ---- the end of a turn -----------------------------------------------------------------------------------

    def store(self, request: Request, fields: dict[str, Any], limits: Limits, now: float) -> list[Ask]:
        """Hands the turn over. Nothing: it is of no session, or the disk is too far behind."""
        talk, body = request.talk, request.body
        if talk is None or body.messages is None:
            return []
        new = leading(body.messages)
        calls = fields.get("tool_calls")
        answer = Message(
            role="assistant",
            content=fields["text"],
            tool_calls=msgspec.convert(msgspec.to_builtins(calls), list[ToolCall]) if calls else None,
        )
        turn = Turn(
            id=request.id,
            digest=request.digest,
            head=msgspec.json.encode(body.messages[:new]) if talk.begins and new else b"",
            messages=msgspec.json.encode([*body.messages[new:], answer]),
            reply=msgspec.json.encode({key: value for key, value in fields.items() if key not in _NOT_STORED}),
            window=talk.dropped,
        )
        if self._bytes + turn.size > UNWRITTEN_BYTES or len(self.asked) >= 4 * UNANSWERED:
            return []
        request.move(Move.STORE)
        talk.number, talk.fields = self._next(turn.size), fields
        talk.until = min(now + STORE_S, max(now, request.deadline + LATE_S))
        self._storing[talk.number] = request
        self._coming[talk.number] = talk.key
        return [Ask(Append(talk.number, *talk.key, turn, talk.reset, limits.session_bytes))]

    # ---- the store's answers ---------------------------------------------------------------------------------

    def ask_number(self) -> int:
        """For a question of somebody else."""
        return self._next(0)

    def _next(self, size: int) -> int:
        self._number += 1
        self.asked[self._number] = size
        self._bytes += size
        return self._number

    def answered(self, answer: Answer) -> Request | None:
        """Whose question it was; None: nobody waits for it any more."""
        if isinstance(answer, Opened):
            self._opened, self.why = True, answer.why
            self._names.clear()
            for identity, session in answer.sessions:
                self.known((identity, session))
            return None
        self._bytes -= self.asked.pop(answer.number, 0)
        self._coming.pop(answer.number, None)
        for waiting in (self._looking, self._fetching, self._storing):
            request = waiting.pop(answer.number, None)
            if request is not None:
                return request
        return None

    def known(self, key: Key) -> None:
        self._names.setdefault(key[0], set()).add(key[1])

    def gone(self, key: Key) -> None:
        names = self._names.get(key[0], set())
        names.discard(key[1])
        if not names:
            self._names.pop(key[0], None)

    def check(self, requests: list[Request]) -> None:
        """Invariants, for tests and idle times."""
        talking = [r for r in requests if r.talk is not None]
        assert sum(len(line) for line in self._lines.values()) == len(talking)
        for line in self._lines.values():
            assert line
            assert all(r.held for r in list(line)[1:])
        assert all(r.state is State.QUEUED for r in talking if r.held)
        assert {id(r) for r in self._storing.values()} == {id(r) for r in requests if r.state is State.STORING}
        assert self._bytes == sum(self.asked.values())


def leading(messages: list[Message]) -> int:
    """How many system messages it begins with."""
    return next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))
