"""The log: one line an event on stderr, `time level event key=value …` (logfmt).

    2026-11-30T10:42:06.123Z info model_ready model=smollm2-135m-instruct load_ms=812 cores=1,2,3

Under systemd, when stderr is the journal, an event is an entry with fields (`edged.observe.journald`), its text the
line without time and level: the journal has its own clock. Where its socket is not to be had, the line goes to stderr
with `<N>` in their place.
Values are quoted when they hold blanks, quotes or `=`; whatever is not printable is escaped, so that nobody writes
lines into the log through a value. Prompts, answers, stop strings, schemas and topics are never given to it.

Writing never raises, never waits and never piles up: a line that cannot be taken now (full pipe, closed descriptor,
journald hangs) is dropped and counted, and the next line that goes through is preceded by `log_dropped count=N`.
This is the one place that reads the wall clock.
"""

from __future__ import annotations

import os
import select
import time
from typing import Final

from edged.observe.journald import SOCKET, Journald
from edged.printable import escape

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_PRIORITY: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""syslog(3) priorities, as sd-daemon(3) wants them."""

LINE_MAX: Final = 4000
"""Bytes. Below PIPE_BUF (4096): a pipe that polls writable takes a whole line without blocking (pipe(7))."""

VALUE_MAX: Final = 1000
"""Characters of one value."""

STDERR: Final = 2


class Log:
    """Writes events of `level` and above to a descriptor, or to the journal if that is what is behind it."""

    def __init__(self, level: str = "info", fd: int = STDERR, journal: str = SOCKET) -> None:
        self._fd = fd
        self._journal = _is_journal(fd)
        self._entries = Journald(journal) if self._journal and os.path.exists(journal) else None
        self._dropped = 0
        self.set_level(level)

    def close(self) -> None:
        """Nothing is logged any more."""
        if self._entries is not None:
            self._entries.close()

    def set_level(self, level: str) -> None:
        """`debug`, `info`, `warning` or `error`; another raises KeyError."""
        self._threshold = LEVELS[level]
        self.level = level

    def debug(self, event: str, **fields: object) -> None:
        self._log("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log("error", event, fields)

    def _log(self, level: str, event: str, fields: dict[str, object]) -> None:
        if LEVELS[level] < self._threshold:
            return
        if self._dropped and self._put("warning", "log_dropped", {"count": self._dropped}):
            self._dropped = 0
        if not self._put(level, event, fields):
            self._dropped += 1

    def _put(self, level: str, event: str, fields: dict[str, object]) -> bool:
        text = " ".join([event, *(f"{key}={show(value)}" for key, value in fields.items())])
        if self._entries is not None:
            return self._entries.send(_PRIORITY[level], event, text, fields)
        return self._write(self._line(level, text))

    def _line(self, level: str, text: str) -> bytes:
        head = f"<{_PRIORITY[level]}>" if self._journal else f"{_now()} {level} "
        data = f"{head}{text}".encode("utf-8", "backslashreplace")
        if len(data) > LINE_MAX:
            data = data[:LINE_MAX].decode("utf-8", "ignore").encode() + "…".encode()
        return data + b"\n"

    def _write(self, line: bytes) -> bool:
        try:
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            events = poll.poll(0)
            # an error or a hang-up beside POLLOUT would make the write fail: let it, and count
            return bool(events) and os.write(self._fd, line) == len(line)
        except (OSError, ValueError):
            return False


def show(value: object) -> str:
    """A value as it stands in a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "-" if value is None else str(value)
    if len(text) > VALUE_MAX:
        text = text[: VALUE_MAX - 1] + "…"
    if text and text.isprintable() and not any(c in ' "=\\' for c in text):
        return text
    return '"' + "".join(_escape(c) for c in text) + '"'


_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def _escape(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    return char if char.isprintable() else escape(char)  # a blank is, other separators and lone surrogates are not


def _now() -> str:
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanos // 1_000_000:03d}Z"


def _is_journal(fd: int) -> bool:
    """systemd.exec(5): `$JOURNAL_STREAM` is device:inode of the journal's stream; a redirected stderr differs."""
    try:
        device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
        at = os.fstat(fd)
        return (int(device), int(inode)) == (at.st_dev, at.st_ino)
    except (OSError, ValueError):
        return False
