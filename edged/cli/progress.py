"""A long job on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Final

from edged.cli.output import printable
from edged.models.meter import Meter

BAR_S: Final = 0.2
LINE_S: Final = 5.0


class Progress:
    """The Teller of edged.models.pull. `quiet` leaves out the progress, not what is said."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet
        self._meter: Meter | None = None
        self._shown = 0.0
        self._drawn = False

    def say(self, text: str) -> None:
        self._wipe()
        sys.stderr.write(f"edgectl: {printable(' '.join(text.split()))}\n")
        sys.stderr.flush()

    def begin(self, done: int, total: int) -> None:
        now = time.monotonic()
        self._meter = Meter(total, done, now)
        self._show(now)

    def progress(self, done: int) -> None:
        assert self._meter is not None
        now = time.monotonic()
        if now - self._shown >= (BAR_S if self._terminal else LINE_S):
            self._meter.read(done, now)
            self._show(now)

    def end(self) -> None:
        self._wipe()
        self._meter = None

    def _show(self, now: float) -> None:
        self._shown = now
        if self._meter is None or self._quiet:
            return
        if self._terminal:
            width = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r{self._meter.bar(width)}\x1b[K")
            self._drawn = True
        else:
            sys.stderr.write(f"{self._meter.line()}\n")
        sys.stderr.flush()

    def _wipe(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False
