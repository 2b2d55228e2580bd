"""The thread that keeps transcripts: questions in, answers out, and what happens when the file or the disk is bad.

* damaged file: moved aside (`schema.set_aside`), counted, a fresh one begun, the question answered from that;
* written by a newer edged: left alone; no transcripts in this run (`Opened.why`);
* cannot be opened (no room, read-only, EIO): where there is no file, there is no history, so reads find nothing and
  writes fail; where there is one, it is read if it can be, else both fail. It is tried again, at most each RETRY_S;
* a question that fails is answered `Failed`; the thread goes on.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from edged.broker.transcript import (
    Answer,
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
)
from edged.transcripts import schema
from edged.transcripts.store import Store

RETRY_S: Final = 5.0


class Facts(Struct, frozen=True):
    """For `status`. `trouble`: why the last thing that was tried could not be done; empty: it could."""

    count: int = 0
    bytes: int = 0
    failures: int = 0
    set_aside: int = 0
    trouble: str = ""


class Keeper:
    """One thread; `ask` asks, `answers` gives what was answered, `wake` is called when there is something."""

    def __init__(self, state_dir: str, wake: Callable[[], None]) -> None:
        self.path = os.path.join(state_dir, schema.FILE)
        self.facts = Facts()
        self._wake = wake
        self._store: Store | None = None
        self._read_only = False
        self._newer = ""
        self._retry_at = 0.0
        self._asked: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="transcripts", daemon=True)
        self._thread.start()

    def ask(self, question: Question) -> None:
        self._asked.put(question)

    def answers(self) -> list[Answer]:
        out: list[Answer] = []
        while not self._answered.empty():
            out.append(self._answered.get())
        return out

    def close(self, within_s: float) -> None:
        """What was asked is still done, as far as the time goes."""
        self._asked.put(None)
        self._thread.join(within_s)

    # ---- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 - as below
            self._trouble(type(error).__name__)
        if self._store is None:
            self._tell(Opened([], self._newer))
        while (question := self._asked.get()) is not None:
            self._tell(self._answer(question))
        if self._store is not None:
            self._store.close()

    def _tell(self, answer: Answer) -> None:
        self._answered.put(answer)
        self._wake()

    def _answer(self, question: Question) -> Answer:
        try:
            for _ in range(2):
                if self._store is None or (self._read_only and isinstance(question, Append)):
                    self._open()
                if self._store is None:
                    return self._without(question)
                try:
                    answer = self._store.answer(question)
                except sqlite3.DatabaseError as error:
                    if not schema.damaged(error):
                        raise
                    self._damaged(self._store)
                    continue
                if isinstance(question, Append | Delete):
                    self._done(self._store)
                return answer
            return self._failed(question, "it was damaged")
        except (sqlite3.Error, OSError) as error:
            return self._failed(question, str(error))
        except msgspec.MsgspecError:
            return self._failed(question, "a row is not readable")  # the message would hold its text
        except Exception as error:  # noqa: BLE001 - a thread that dies silently would leave every session waiting
            return self._failed(question, type(error).__name__)

    def _without(self, question: Question) -> Answer:
        """There is no database now."""
        if self._newer or os.path.lexists(self.path):
            return self._failed(question, self._newer or self.facts.trouble)
        match question:
            case Look():
                return Looked(question.number)
            case Fetch():
                return Fetched(question.number, [], [], 0, 0)
            case Get():
                return Got(question.number, None)
            case Delete():
                return Deleted(question.number, question.identity, question.session, found=False)
            case Enumerate():
                return Enumerated(question.number, [], 0)
            case Append():
                return self._failed(question, self.facts.trouble)

    def _open(self) -> None:
        """Sets `_store`, or says in `facts` why not."""
        if self._newer or time.monotonic() < self._retry_at:
            return
        for _ in range(2):
            store = None
            try:
                store = Store(schema.open_at(self.path))
                self._begin(store, read_only=False)
                return
            except schema.NewerError as error:
                self._newer = str(error)
                self._trouble(self._newer)
                return
            except (schema.DamagedError, sqlite3.DatabaseError) as error:
                if isinstance(error, sqlite3.DatabaseError) and not schema.damaged(error):
                    self._cannot_write(error)
                    return
                self._damaged(store)
            except OSError as error:
                self._cannot_write(error)
                return

    def _begin(self, store: Store, *, read_only: bool) -> None:
        names = store.names()
        old, self._store, self._read_only = self._store, store, read_only
        if old is not None:
            old.close()
        self._tell(Opened(names))
        self._done(store)

    def _cannot_write(self, error: Exception) -> None:
        """Perhaps it can be read."""
        self._retry_at = time.monotonic() + RETRY_S
        why = f"{schema.FILE} cannot be opened: {getattr(error, 'strerror', None) or error}"
        try:
            if self._store is None:
                self._begin(Store(schema.open_to_read(self.path)), read_only=True)
        except (OSError, sqlite3.Error) as again:
            why += f"; {getattr(again, 'strerror', None) or again}" if os.path.lexists(self.path) else ""
        self._trouble(why)

    def _damaged(self, store: Store | None) -> None:
        """A file that cannot be moved stays where it is, and is tried again later."""
        if store is not None:
            store.close()
        self._store = None
        try:
            schema.set_aside(self.path)
            self._facts(set_aside=self.facts.set_aside + 1)
        except OSError as error:
            self._retry_at = time.monotonic() + RETRY_S
            self._trouble(f"{schema.FILE} is damaged and cannot be moved: {error.strerror}")

    def _done(self, store: Store) -> None:
        count, size = store.totals()
        self._facts(count=count, bytes=size, trouble="")

    def _failed(self, question: Question, why: str) -> Failed:
        self._facts(failures=self.facts.failures + 1)
        self._trouble(why)
        return Failed(question.number, why)

    def _trouble(self, why: str) -> None:
        self._facts(trouble=why or "unknown")

    def _facts(self, **changed: int | str) -> None:
        self.facts = msgspec.structs.replace(self.facts, **changed)
