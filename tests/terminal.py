"""A program on a terminal of its own: what a person sees, and types. Every wait ends with an event or a deadline."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
import time
from typing import Self

WAIT_S = 30.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CTRL_C, CTRL_D, ENTER, UP = "\x03", "\x04", "\r", "\x1b[A"


class Terminal:
    """`seen` is all that came; `expect` looks behind what the last one found."""

    def __init__(self, command: list[str], *, columns: int = 80, rows: int = 24, **env: str) -> None:
        self._leader, follower = pty.openpty()
        self.resize(columns, rows)
        plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        environment = {**plain, "TERM": "xterm", "INPUTRC": "/dev/null", **env}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],  # its controlling terminal: Ctrl-C is a signal there
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment,
        )
        os.close(follower)
        self.raw = b""
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._leader)

    def resize(self, columns: int, rows: int = 24) -> None:
        termios.tcsetwinsize(self._leader, (rows, columns))

    @property
    def seen(self) -> str:
        return self.raw.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def plain(self) -> str:
        return ESCAPES.sub("", self.seen)

    def send(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def expect(self, text: str) -> str:
        """Reads until it is there; gives what came since the last one, with it."""
        end = time.monotonic() + WAIT_S
        while (found := self.seen.find(text, self._at)) < 0:
            more = self._read(end)
            assert more, f"{text!r} never came, but {self.seen[self._at :]!r}"
        since, self._at = self.seen[self._at : found + len(text)], found + len(text)
        return since

    def press(self, key: str, text: str) -> None:
        """Once more when nothing comes of it: CPython's line editor misses a signal between two of its waits."""
        for _ in range(30):
            self.send(key)
            while select.select([self._leader], [], [], 1.0)[0]:
                assert self._read(time.monotonic() + WAIT_S)
                if self.seen.find(text, self._at) >= 0:
                    self.expect(text)
                    return
        raise AssertionError(f"{key!r} did nothing after {self.seen!r}")

    def end(self) -> int:
        """Reads up to its end: the exit status."""
        end = time.monotonic() + WAIT_S
        while self._read(end):
            pass
        return self.process.wait(WAIT_S)

    def _read(self, end: float) -> bool:
        assert select.select([self._leader], [], [], max(0.0, end - time.monotonic()))[0], (
            f"silence after {self.seen!r}"
        )
        try:
            data = os.read(self._leader, 1 << 16)
        except OSError:  # the last one has left the terminal
            return False
        self.raw += data
        return bool(data)


def screen(*command: str, columns: int, **env: str) -> tuple[int, str]:
    """Runs it to its end; status, and what is to be seen, colours included."""
    with Terminal([*command], columns=columns, **env) as terminal:
        return terminal.end(), terminal.seen


def lines(text: str) -> list[str]:
    return ESCAPES.sub("", text).splitlines()
