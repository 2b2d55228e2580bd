"""The database file: opened, made, brought up to date, moved aside when it is damaged.

`PRAGMA user_version` is the schema's number. An older file is migrated step by step; one that a newer edged has written
is left alone (NewerError), for an older program would lose what it does not know.

Small wear on an SD card: WAL with `synchronous=NORMAL` syncs at checkpoints only, not at each turn. A killed daemon
loses nothing that way; a power cut may lose the last turns, and never leaves a damaged file. The WAL is checkpointed
each WAL_PAGES pages and cut to as much. Deleted text is overwritten (`secure_delete`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import urllib.parse
from typing import Final

FILE: Final = "sessions.db"
KEPT_BAD: Final = 3
"""Damaged files that are kept, for whoever wants to look; the oldest goes first."""
WAL_PAGES: Final = 256
CACHE_KIB: Final = 512

MIGRATIONS: Final = (
    """
    CREATE TABLE session (
        key INTEGER PRIMARY KEY,
        identity TEXT NOT NULL,
        name TEXT NOT NULL,
        head BLOB NOT NULL,        -- leading system messages, JSON
        window INTEGER NOT NULL,   -- number of the first turn that is still given to the model
        next INTEGER NOT NULL,     -- number of the next turn
        bytes INTEGER NOT NULL,    -- of head and turns
        updated REAL NOT NULL,     -- Unix seconds
        UNIQUE (identity, name)
    );
    CREATE TABLE turn (
        session INTEGER NOT NULL REFERENCES session (key),
        number INTEGER NOT NULL,
        id TEXT NOT NULL,
        digest BLOB NOT NULL,
        messages BLOB NOT NULL,    -- new messages and the answer, JSON
        reply BLOB NOT NULL,       -- the result without its text, JSON
        bytes INTEGER NOT NULL,
        PRIMARY KEY (session, number)
    ) WITHOUT ROWID;
    CREATE INDEX turn_id ON turn (session, id);
    """,
)
VERSION: Final = len(MIGRATIONS)


class NewerError(Exception):
    """The file is of a newer edged."""


class DamagedError(Exception):
    """The file is no database of ours, or has lost something."""


def damaged(error: sqlite3.Error) -> bool:
    """The file itself is bad; not the disk, nor what was asked."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_at(path: str) -> sqlite3.Connection:
    """Raises NewerError, DamagedError, OSError, sqlite3.Error."""
    fresh = not os.path.exists(path)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    if not fresh and os.path.getsize(path) == 0:
        raise DamagedError("it is empty")
    os.chmod(path, 0o600)
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection)
    except BaseException as error:
        connection.close()
        if fresh:
            with contextlib.suppress(OSError):
                os.unlink(path)  # or it would be taken for a damaged one
        if isinstance(error, sqlite3.Error) and damaged(error):
            raise DamagedError(str(error)) from None
        if isinstance(error, UnicodeDecodeError):  # sqlite3's message quotes a schema that is no text
            raise DamagedError("its schema cannot be read") from None
        raise
    return connection


def open_to_read(path: str) -> sqlite3.Connection:
    """On a disk that takes no writes. Raises OSError and sqlite3.Error: when there is a WAL too, it cannot be done."""
    if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
        raise OSError(errno.EROFS, "read-only, and its WAL has turns that are not in the file yet")
    where = f"file:{urllib.parse.quote(path)}?mode=ro&immutable=1"
    connection = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise OSError(errno.EROFS, f"read-only, and of schema {version}")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise NewerError(f"{FILE} was written by a newer edged (schema {version}, this one knows {VERSION})")
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise DamagedError("it is another program's")
    for setting in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        f"wal_autocheckpoint={WAL_PAGES}",
        f"journal_size_limit={WAL_PAGES * 4096}",
        f"cache_size=-{CACHE_KIB}",
        "secure_delete=ON",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {setting}")
    for number in range(version, VERSION):
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number]} PRAGMA user_version={number + 1}; COMMIT;")


def set_aside(path: str) -> str:
    """Renames the file (and its WAL); returns the new name. Raises OSError."""
    names = [f"{path}.bad-{n}" for n in range(1, KEPT_BAD + 1)]
    free = next((name for name in names if not os.path.lexists(name)), None)
    target = free or min(names, key=lambda name: os.lstat(name).st_mtime)
    os.replace(path, target)
    for end in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(path + end, target + end)
    return target
