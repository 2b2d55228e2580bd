"""What the store says of transcripts, brought to the requests that wait for it (protocol 3, Sessions). Pure."""

from __future__ import annotations

from edged.broker.gate import Phase
from edged.broker.instructions import Instruction, Tell
from edged.broker.lives import Lives
from edged.broker.sessions import leading
from edged.broker.start import start
from edged.broker.table import Request, State
from edged.broker.transcript import Answer, Failed, Fetched, Looked, Stored
from edged.errors import Code, WireError
from edged.messages import Message


class Turns:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    def heard(self, answer: Answer, now: float) -> list[Instruction]:
        """One answer; what concerns a request that has ended is ignored."""
        sessions = self._lives.sessions
        if isinstance(answer, Stored):
            sessions.known((answer.identity, answer.session))
        request = sessions.answered(answer)
        if request is None or request.talk is None:
            return []
        match answer:
            case Looked():
                return self._looked(request, answer, now)
            case Fetched():
                return self._fetched(request, answer, now)
            case Stored():
                return self._lives.close(request, now, request.talk.fields)
            case Failed() if request.state is State.STORING:
                return self._lives.close(request, now, request.talk.fields, stored=False)
            case Failed():
                error = WireError(Code.UNAVAILABLE, f"the transcript cannot be read ({answer.why})", 2000)
                return self._lives.fail(request, now, error, told=True)
        return []

    def _looked(self, request: Request, found: Looked, now: float) -> list[Instruction]:
        if found.digest is None:
            self._lives.sessions.looked(request)
            return self._lives.dispatch()
        if found.digest != request.digest:
            message = "a turn of this session has this id and another body"
            return self._lives.fail(request, now, WireError(Code.ID_CONFLICT, message), aside=True)
        return self._again(request, found, now)

    def _again(self, request: Request, found: Looked, now: float) -> list[Instruction]:
        """The turn is in the transcript: its reply, told anew, or the rest of it if an earlier daemon had begun."""
        self._lives.pace.counters["turns_repeated"] += 1
        rest = found.reply["text"].removeprefix(request.stream.text)
        event = request.stream.token(rest, found.reply["usage"]["completion_tokens"] - len(request.ids), now)
        out: list[Instruction] = []
        if event is not None and request.stream.mode is not False:
            out.append(self._lives.emit(request, event))
        return out + self._lives.close(request, now, dict(found.reply))

    def _fetched(self, request: Request, found: Fetched, now: float) -> list[Instruction]:
        """Leading system messages belong to the beginning; later they may only repeat what is there."""
        talk, new = request.talk, request.body.messages
        assert talk is not None
        assert new is not None
        assert self._lives.gate.phase is Phase.READY, "what is fetched is taken back when the worker dies"
        history: list[list[Message]] = found.turns
        own = leading(new)
        head = found.head
        talk.begins, talk.first = found.next == 0 or talk.reset, found.first
        if talk.begins:
            head, history, talk.first = new[:own], [], 0
        elif own and new[:own] != head:
            message = "the session has begun with other system messages; leave them out, or begin afresh with `reset`"
            error = WireError(Code.BAD_REQUEST, message)
            return self._lives.fail(request, now, error, told=True, aside=True)
        messages = [*head, *(message for turn in history for message in turn), *new[own:]]
        given = start(request, messages, head=len(head), turns=[len(turn) for turn in history])
        return [Tell(given)]
