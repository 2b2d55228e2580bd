"""Transcripts in SQLite: what is asked of them, one transaction each. No thread, no recovery: see `keeper`.

Bytes of a session: those of its leading system messages and its turns. Beyond `limits.session_bytes` the oldest turns
go from the file; the newest stays, whatever its size, for its id's sake.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import Any, Final

import msgspec

from edged.broker.transcript import (
    Answer,
    Append,
    Delete,
    Deleted,
    Enumerate,
    Enumerated,
    Fetch,
    Fetched,
    Get,
    Got,
    Look,
    Looked,
    Question,
    Stored,
)
from edged.messages import Message

_messages = msgspec.json.Decoder(list[Message])
_NEWEST_FIRST = (
    "SELECT CAST(number AS INTEGER), CAST(messages AS BLOB), CAST(id AS TEXT), CAST(reply AS BLOB)"
    " FROM turn WHERE session = ? AND number >= ? ORDER BY number DESC"
)


KEPT: Final = 0.75
"""Of `limits.session_bytes` after turns had to go: with one turn less each time, everything would be read each time."""


class Store:
    """Raises sqlite3.Error, and msgspec.MsgspecError for a row that does not hold what it should.

    A column has the type that was put in, not the one that was declared, and a flipped bit makes another of it, or NULL
    of all: what is read is cast, bytes that are no UTF-8 are replaced, and what has lost its name is nobody's.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._db.text_factory = _text

    def close(self) -> None:
        self._db.close()

    def names(self) -> list[tuple[str, str]]:
        rows = self._db.execute("SELECT CAST(identity AS TEXT), CAST(name AS TEXT) FROM session")
        return [row for row in rows if None not in row]

    def totals(self) -> tuple[int, int]:
        """Sessions, bytes."""
        count, size = self._db.execute("SELECT count(*), CAST(total(bytes) AS INTEGER) FROM session").fetchone()
        return count, size

    def answer(self, question: Question) -> Answer:
        match question:
            case Look():
                return self._look(question)
            case Fetch():
                return self._fetch(question)
            case Append():
                return self._append(question)
            case Get():
                return Got(question.number, self._get(question))
            case Delete():
                return self._delete(question)
            case Enumerate():
                return self._enumerate(question)

    def _look(self, question: Look) -> Looked:
        row = self._db.execute(
            "SELECT CAST(digest AS BLOB), CAST(messages AS BLOB), CAST(reply AS BLOB)"
            " FROM turn JOIN session ON session = key WHERE identity = ? AND name = ? AND id = ?",
            (question.identity, question.session, question.id),
        ).fetchone()
        if row is None:
            return Looked(question.number)
        digest, messages, reply = _filled(row)
        text = _messages.decode(messages)[-1].content
        return Looked(question.number, digest, {"text": text, **msgspec.json.decode(reply)})

    def _fetch(self, question: Fetch) -> Fetched:
        row = self._db.execute(
            "SELECT key, CAST(head AS BLOB), CAST(window AS INTEGER), CAST(next AS INTEGER) FROM session"
            " WHERE identity = ? AND name = ?",
            (question.identity, question.session),
        ).fetchone()
        if row is None:
            return Fetched(question.number, [], [], 0, 0)
        key, head, window, following = _filled(row)
        turns: list[list[Message]] = []
        first, room = following, question.most_bytes - len(head)
        for number, messages, *_ in self._db.execute(_NEWEST_FIRST, (key, window)):
            room -= len(messages)
            if room < 0:
                break
            first = number
            turns.append(_messages.decode(messages))
        return Fetched(question.number, _messages.decode(head) if head else [], turns[::-1], first, following)

    def _append(self, question: Append) -> Stored:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._write(question)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        return Stored(question.number, question.identity, question.session)

    def _write(self, question: Append) -> None:
        turn, key = question.turn, self._key(question.identity, question.session)
        if key is not None and question.reset:
            self._remove(key)
            key = None
        if key is None:
            added = self._db.execute(
                "INSERT INTO session (identity, name, head, window, next, bytes, updated) VALUES (?, ?, ?, 0, 0, ?, 0)",
                (question.identity, question.session, turn.head, len(turn.head)),
            )
            key = added.lastrowid
        (number,) = self._db.execute("SELECT next FROM session WHERE key = ?", (key,)).fetchone()
        values = (key, number, turn.id, turn.digest, turn.messages, turn.reply, turn.size)
        self._db.execute("INSERT INTO turn VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        self._db.execute(
            "UPDATE session SET next = next + 1, bytes = bytes + ?, window = max(window, ?), updated = ? WHERE key = ?",
            (turn.size, min(turn.window, number), time.time(), key),
        )
        self._trim(key, number, question.limit_bytes)

    def _trim(self, key: int | None, newest: int, limit: int) -> None:
        (size,) = self._db.execute("SELECT bytes FROM session WHERE key = ?", (key,)).fetchone()
        oldest = self._db.execute("SELECT number, bytes FROM turn WHERE session = ? ORDER BY number", (key,))
        gone, first = 0, 0
        wanted = limit if size <= limit else KEPT * limit
        for number, weight in oldest:
            if size - gone <= wanted or number == newest:
                first = number
                break
            gone += weight
        if gone:
            self._db.execute("DELETE FROM turn WHERE session = ? AND number < ?", (key, first))
            self._db.execute(
                "UPDATE session SET bytes = bytes - ?, window = max(window, ?) WHERE key = ?", (gone, first, key)
            )

    def _get(self, question: Get) -> dict[str, Any] | None:
        row = self._db.execute(
            "SELECT key, CAST(head AS BLOB), CAST(window AS INTEGER), CAST(bytes AS INTEGER), CAST(updated AS REAL),"
            " (SELECT count(*) FROM turn WHERE session = key) FROM session WHERE identity = ? AND name = ?",
            (question.identity, question.session),
        ).fetchone()
        if row is None:
            return None
        key, head, window, size, updated, count = _filled(row)
        turns: list[dict[str, Any]] = []
        room = question.most_bytes - len(head)
        for _, messages, name, reply in self._db.execute(_NEWEST_FIRST, (key, 0)):
            room -= len(messages) + 200  # for what stands beside them
            if room < 0:
                break
            told = msgspec.json.decode(reply)
            turns.append(
                {
                    "id": name,
                    "messages": msgspec.json.decode(messages),
                    "finish_reason": told.get("finish_reason"),
                    "usage": told.get("usage"),
                }
            )
        fields: dict[str, Any] = {"turns": turns[::-1], "turns_total": count, "bytes": size, "updated": updated}
        if head and len(head) < question.most_bytes:
            fields["system"] = msgspec.json.decode(head)
        if len(turns) < count:
            fields["omitted"] = count - len(turns)
        if window:
            fields["dropped_turns"] = window
        return fields

    def _delete(self, question: Delete) -> Deleted:
        key = self._key(question.identity, question.session)
        if key is not None:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._remove(key)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            with contextlib.suppress(sqlite3.Error):  # it is deleted all the same
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the text leaves the WAL too
        return Deleted(question.number, question.identity, question.session, found=key is not None)

    def _remove(self, key: int) -> None:
        self._db.execute("DELETE FROM turn WHERE session = ?", (key,))
        self._db.execute("DELETE FROM session WHERE key = ?", (key,))

    def _key(self, identity: str, session: str) -> int | None:
        row = self._db.execute(
            "SELECT key FROM session WHERE identity = ? AND name = ?", (identity, session)
        ).fetchone()
        return None if row is None else int(row[0])

    def _enumerate(self, question: Enumerate) -> Enumerated:
        whose = (question.identity, question.identity)
        (total,) = self._db.execute("SELECT count(*) FROM session WHERE ?1 IS NULL OR identity = ?2", whose).fetchone()
        rows = self._db.execute(
            "SELECT CAST(identity AS TEXT), CAST(name AS TEXT), (SELECT count(*) FROM turn WHERE session = key),"
            " CAST(bytes AS INTEGER), CAST(updated AS REAL) FROM session"
            " WHERE ?1 IS NULL OR identity = ?2 ORDER BY updated DESC LIMIT ?3",
            (*whose, question.most),
        )
        names = ("identity", "session", "turns", "bytes", "updated")
        listed = [dict(zip(names, row, strict=True)) for row in rows if None not in row]
        return Enumerated(question.number, listed, total - len(listed))


def _filled(row: tuple[Any, ...]) -> tuple[Any, ...]:
    if None in row:
        raise msgspec.ValidationError("a column is empty")
    return row


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
