"""The terminal: taken over, written only where something is another than before, given back on every way out.

rich makes lines of segments from what is to be shown, knows how wide a character is and which colours there are
(`NO_COLOR` too); here they are compared with what stands there, character by character, and the rest is sent. A slow
line gets some hundred bytes a second.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)

Cell = tuple[str, Style | None]
NOTHING: Final = Style.null()


class Gone(Exception):  # noqa: N818 - no error: somebody closed the window, or asked us to end
    """The terminal is gone, or a signal says so; `status` is the exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Screen:
    """`keys` and `wake` together are what a loop waits for."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._console = Console(force_terminal=True, color_system="standard", legacy_windows=False, highlight=False)
        self._before: list[list[Cell]] = []
        self._size = (0, 0)
        self._saved: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._reads, self._writes = os.pipe()
        for end in (self._reads, self._writes):
            os.set_blocking(end, False)

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: self.wake())
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)
        self._saved = termios.tcgetattr(self._in)
        self._take()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _take(self) -> None:
        tty.setcbreak(self._in)
        self._write(ENTER)
        self._before = []

    def _give_back(self) -> None:
        try:
            self._write(LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._saved or [])
        except (Gone, termios.error):
            pass  # nobody is there to see it

    def _suspend(self, *_: object) -> None:
        """Ctrl-Z: the shell gets its terminal, and we get ours back with `fg`."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()
        self.wake()

    # ---- waiting ---------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """From any thread, or a signal."""
        with contextlib.suppress(BlockingIOError):  # it is awake
            os.write(self._writes, b"\0")

    def wait(self, timeout_s: float | None) -> str:
        """The keys that were pressed, as they came; "": something else, or the time is over."""
        ready, _, _ = select.select([self._in, self._reads], [], [], timeout_s)
        if self._reads in ready:
            os.read(self._reads, 4096)
        if self._in not in ready:
            return ""
        try:
            keys = os.read(self._in, 1024)
        except OSError:
            raise Gone(1) from None
        if not keys:
            raise Gone(1)
        return keys.decode("utf-8", "replace")

    # ---- drawing ---------------------------------------------------------------------------------------------

    @property
    def size(self) -> tuple[int, int]:
        """Columns, rows."""
        found = shutil.get_terminal_size()
        return max(1, found.columns), max(1, found.lines)

    def draw(self, parts: Sequence[RenderableType]) -> None:
        """One below the other; what does not fit is cut off."""
        columns, rows = self.size
        if (columns, rows) != self._size:
            self._size, self._before = (columns, rows), []
            self._write("\x1b[2J")
        lines = self._lines(parts, columns)[:rows]
        out = []
        for row in range(max(len(lines), len(self._before))):
            new = lines[row] if row < len(lines) else []
            old = self._before[row] if row < len(self._before) else []
            if new != old:
                out.append(self._difference(row, old, new))
        self._before = lines
        self._write("".join(out))

    def _lines(self, parts: Sequence[RenderableType], columns: int) -> list[list[Cell]]:
        options = self._console.options.update(width=columns, no_wrap=True, overflow="crop")
        lines = [line for part in parts for line in self._console.render_lines(part, options, pad=False)]
        return [_cells(line) for line in lines]

    def _difference(self, row: int, old: list[Cell], new: list[Cell]) -> str:
        first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        end = len(new)
        if len(old) == len(new):
            while end > first and old[end - 1] == new[end - 1]:
                end -= 1
        column = Segment.get_line_length([Segment(text) for text, _ in new[:first]]) + 1
        rest = "\x1b[K" if len(new) < len(old) else ""
        return f"\x1b[{row + 1};{column}H{self._painted(new[first:end])}{rest}"

    def _painted(self, cells: list[Cell]) -> str:
        segments = Segment.simplify(Segment(text, style) for text, style in cells)
        with self._console.capture() as capture:
            for segment in segments:
                self._console.print(segment.text, style=segment.style or NOTHING, end="", markup=False, emoji=False)
        return capture.get()

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding, "replace")
        while data:
            try:
                data = data[os.write(self._out, data) :]
            except BlockingIOError:
                select.select([], [self._out], [])
            except OSError:
                raise Gone(1) from None


def _cells(line: list[Segment]) -> list[Cell]:
    cells = [(char, style or None) for text, style, control in line if not control for char in text]
    while cells and cells[-1] in ((" ", None), (" ", NOTHING)):
        cells.pop()
    return cells


def _end(number: int, _: FrameType | None) -> None:
    raise Gone(128 + number)
