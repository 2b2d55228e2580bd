"""The thread that brings records to a disk: all that came meanwhile in one write and one fdatasync (group commit).

A disk may hang: the loop learns of what is written by `outcomes`, and how much waits by `waiting`. After a failure
nothing more is appended until the file was begun afresh, since a record in the middle would be missing. A file that
cannot be begun afresh is appended to, unless it lacks something. Whether it is still there is looked at before each
write, and each LOOK_S.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from edged.journal.file import JournalFile

LOOK_S: Final = 10.0
REMOVED: Final = "it was removed"


class Outcome(Struct, frozen=True):
    """Records up to `number` are on the disk, or (`why`) are not. `anew`: the file was to begin afresh; it did, unless
    there is a `why`, or it is `kept` as it was, for that reason."""

    number: int
    anew: bool
    why: str = ""
    kept: str = ""


class _Job(Struct, frozen=True):
    number: int
    data: bytes
    anew: bool = False
    gap: bool = False


class Disk:
    """`wake` is called when there is an outcome."""

    def __init__(self, file: JournalFile, wake: Callable[[], None]) -> None:
        self._file = file
        self._wake = wake
        self._jobs: deque[_Job] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._lock = threading.Condition()
        self._stopping = False
        self._last: bytes | None = None
        self.waiting = 0  # bytes, those of the write at hand included
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(self, number: int, data: bytes) -> None:
        self._add(_Job(number, data))

    def renew(self, number: int, data: bytes, *, gap: bool) -> None:
        """Instead of all before. `gap`: what is in the file now lacks something."""
        self._add(_Job(number, data, anew=True, gap=gap))

    def outcomes(self) -> list[Outcome]:
        out: list[Outcome] = []
        while self._outcomes:
            out.append(self._outcomes.popleft())
        return out

    @property
    def size(self) -> int:
        return self._file.size

    def close(self, within_s: float, last: bytes | None) -> bool:
        """What waits is still written, as far as the time goes; then `last` is all that is left (None: as it is)."""
        with self._lock:
            self._stopping, self._last = True, last
            self._lock.notify()
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _add(self, job: _Job) -> None:
        with self._lock:
            self._jobs.append(job)
            self.waiting += len(job.data)
            self._lock.notify()

    # ---- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (jobs := self._take()) is not None:
            outcome = self._write(jobs) if jobs else self._looked()
            if outcome is None:
                continue
            with self._lock:
                self.waiting -= sum(len(job.data) for job in jobs)
            self._outcomes.append(outcome)
            self._wake()
        with contextlib.suppress(OSError):
            if self._last is not None:
                self._file.last(self._last)
        self._file.close()

    def _take(self) -> list[_Job] | None:
        """None: it is over. Empty: nothing came."""
        with self._lock:
            self._lock.wait_for(lambda: self._jobs or self._stopping, LOOK_S)
            jobs = list(self._jobs)
            self._jobs.clear()
            return None if self._stopping and not jobs else jobs

    def _looked(self) -> Outcome | None:
        if not self._file.open or self._file.there():
            return None
        self._file.shut()
        return Outcome(0, False, REMOVED)

    def _write(self, jobs: list[_Job]) -> Outcome:
        number, anew = jobs[-1].number, max((place for place, job in enumerate(jobs) if job.anew), default=-1)
        try:
            if anew < 0:
                self._append(jobs)
                return Outcome(number, False)
            try:
                self._file.renew(b"".join([job.data for job in jobs[anew:]]))
            except OSError as error:
                if not self._file.open or any(job.gap for job in jobs):
                    raise
                self._append([job for job in jobs if not job.anew])
                return Outcome(number, True, kept=error.strerror or "it cannot be begun afresh")
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.shut()
            return Outcome(number, anew >= 0, error.strerror or "it cannot be written")
        return Outcome(number, True)

    def _append(self, jobs: list[_Job]) -> None:
        if not self._file.open:
            raise OSError(errno.EBADF, "it is to be begun afresh")
        if not self._file.there():
            raise OSError(errno.ENOENT, REMOVED)
        if jobs:
            self._file.write(b"".join([job.data for job in jobs]))
