"""Where a chat's lines come from: a person at a terminal, with editing and history, or a pipe.

The history holds prompts. It is in memory only, unless a file is asked for; that file is for its owner alone.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from typing import Any, Final, Self

import click

from edged.cli.output import printable

KEPT: Final = 1000
"""Lines in a history file."""
PROMPT: Final = "> "


class Lines:
    """`read()` raises EOFError at the end. `with` writes the history."""

    def __init__(self, history: str | None) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._file = history
        self._readline: Any = None
        if self.interactive:
            with contextlib.suppress(ImportError):  # a Python without it has plain lines
                import readline  # noqa: PLC0415 - it takes hold of the terminal

                self._readline = readline
        if history is not None:
            self._load(history)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self._readline is not None:
            count = self._readline.get_current_history_length()
            items = [self._readline.get_history_item(n) or "" for n in range(max(1, count - KEPT + 1), count + 1)]
            text = "".join(" ".join(item.splitlines()) + "\n" for item in items)
            try:
                write_private(self._file, text, os.O_TRUNC)
            except OSError as error:
                click.echo(f"edgectl: {self._file}: {error.strerror}", err=True)

    def read(self) -> str:
        """The next line, without its end."""
        if self.interactive:
            return input(PROMPT)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def agreed(self, question: str) -> bool:
        """Enter is yes. A pipe is not asked."""
        if not self.interactive:
            return True
        self._remember(False)  # an answer is no line of the chat
        try:
            return input(f"{question} [Y/n] ").strip().lower() in ("", "y", "yes")
        except EOFError:
            click.echo()
            return False
        finally:
            self._remember(True)

    def _remember(self, lines: bool) -> None:
        if self._readline is not None:
            self._readline.set_auto_history(lines)

    def _load(self, path: str) -> None:
        """Made at once: a file that cannot be written is better told now than at the end."""
        try:
            write_private(path, "", os.O_APPEND)
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError as error:
            raise click.UsageError(f"--history {path}: {error.strerror}") from None
        if self._readline is not None:
            for line in filter(None, map(printable, lines[-KEPT:])):
                self._readline.add_history(line)


def write_private(path: str, text: str, flag: int) -> None:
    """For the owner alone, also when the file was there with other permissions."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            os.fchmod(descriptor, 0o600)
        file.write(text)
