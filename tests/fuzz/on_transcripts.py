"""Target: the SQLite file with the transcripts, whole and with a WAL, as the thread that keeps them opens it."""

from __future__ import annotations

import queue
from typing import Any

from edged.broker.transcript import (
    Append,
    Delete,
    Deleted,
    Enumerate,
    Enumerated,
    Failed,
    Fetch,
    Fetched,
    Get,
    Got,
    Look,
    Looked,
    Opened,
    Question,
    Stored,
    Turn,
)
from edged.messages import Message
from edged.transcripts import schema
from edged.transcripts.keeper import Keeper

from .scratch import empty

WAL = b"\n--wal--\n"
"""What stands behind it in an input is the file's WAL."""
WHO, SESSION = "uid:1", "s"
MOST = 1 << 16
TURN = Turn("new", b"digest", b"", b'[{"role":"user","content":"hi"}]', b"{}", 0)
QUESTIONS: tuple[Question, ...] = (
    Look(1, WHO, SESSION, "t0"),
    Fetch(2, WHO, SESSION, MOST),
    Get(3, WHO, SESSION, MOST),
    Enumerate(4, None, 500),
    Append(5, WHO, SESSION, TURN, reset=False, limit_bytes=2000),
    Fetch(6, WHO, SESSION, MOST),
    Delete(7, WHO, SESSION),
    Append(8, WHO, SESSION, TURN, reset=True, limit_bytes=2000),
    Look(9, WHO, SESSION, "new"),
)
ANSWERS: dict[int, type[Any]] = dict(
    zip(range(1, 10), (Looked, Fetched, Got, Enumerated, Stored, Fetched, Deleted, Stored, Looked), strict=True)
)
SECONDS = 20.0


def transcripts(data: bytes) -> str:
    """Each question is answered, by what the broker takes it for or by `Failed`; the thread lives on."""
    directory = empty("state")
    database, _, wal = data.partition(WAL)
    (directory / schema.FILE).write_bytes(database)
    if wal:
        (directory / f"{schema.FILE}-wal").write_bytes(wal)
    bell: queue.SimpleQueue[None] = queue.SimpleQueue()
    keeper = Keeper(str(directory), lambda: bell.put(None))
    for question in QUESTIONS:
        keeper.ask(question)
    answers: list[Any] = []
    while sum(not isinstance(answer, Opened) for answer in answers) < len(QUESTIONS):
        bell.get(timeout=SECONDS)
        answers += keeper.answers()
    keeper.close(SECONDS)
    assert not keeper._thread.is_alive()
    for answer in answers:
        _check(answer)
    failed = [answer.number for answer in answers if isinstance(answer, Failed)]
    return f"{failed} {keeper.facts.set_aside} {bool(keeper.facts.trouble)}"


def _check(answer: Any) -> None:
    if isinstance(answer, Opened):
        assert all(type(who) is type(name) is str for who, name in answer.sessions), answer
        return
    if isinstance(answer, Failed):
        assert len(answer.why) <= 300, answer
        return
    assert type(answer) is ANSWERS[answer.number]
    match answer:
        case Looked(digest=digest, reply=reply):
            assert digest is None or (type(digest) is bytes and type(reply) is dict), answer
        case Fetched(head=head, turns=turns, first=first, next=following):
            assert all(type(one) is Message for one in (*head, *(m for turn in turns for m in turn)))
            assert type(first) is type(following) is int, answer
        case Enumerated(rows=rows, omitted=omitted):
            assert omitted >= 0
            for row in rows:
                assert type(row["identity"]) is type(row["session"]) is str, answer
                assert all(isinstance(row[key], int | float) for key in ("turns", "bytes", "updated")), answer
        case Got(fields=fields) if fields is not None:
            assert all(isinstance(fields[key], int | float) for key in ("turns_total", "bytes", "updated")), answer
