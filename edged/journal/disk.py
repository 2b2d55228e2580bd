"""The thread that brings records to a disk: all that came meanwhile in one write and one fdatasync (group commit).

A disk may hang: the loop learns of what is written by `outcomes`, and how much waits by `waiting`. After a failure
nothing more is appended until the file was begun afresh, since a record in the middle would be missing.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from edged.journal.file import JournalFile


class Outcome(Struct, frozen=True):
    """Records up to `number` are on the disk, or (`why`) are not. `anew`: the file began afresh."""

    number: int
    anew: bool
    why: str = ""


class _Job(Struct, frozen=True):
    number: int
    data: bytes
    anew: bool


class Disk:
    """`wake` is called when there is an outcome."""

    def __init__(self, file: JournalFile, wake: Callable[[], None]) -> None:
        self._file = file
        self._wake = wake
        self._jobs: deque[_Job] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._lock = threading.Condition()
        self._stopping = False
        self.waiting = 0  # bytes, those of the write at hand included
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(self, number: int, data: bytes) -> None:
        self._add(_Job(number, data, anew=False))

    def renew(self, number: int, data: bytes) -> None:
        """Instead of all before."""
        self._add(_Job(number, data, anew=True))

    def outcomes(self) -> list[Outcome]:
        out: list[Outcome] = []
        while self._outcomes:
            out.append(self._outcomes.popleft())
        return out

    @property
    def size(self) -> int:
        return self._file.size

    def close(self, within_s: float) -> bool:
        """What waits is still written, as far as the time goes."""
        with self._lock:
            self._stopping = True
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
        while jobs := self._take():
            outcome = self._write(jobs)
            with self._lock:
                self.waiting -= sum(len(job.data) for job in jobs)
            self._outcomes.append(outcome)
            self._wake()
        self._file.close()

    def _take(self) -> list[_Job]:
        with self._lock:
            self._lock.wait_for(lambda: self._jobs or self._stopping)
            jobs = list(self._jobs)
            self._jobs.clear()
            return jobs

    def _write(self, jobs: list[_Job]) -> Outcome:
        number, anew = jobs[-1].number, max((place for place, job in enumerate(jobs) if job.anew), default=-1)
        data = b"".join([job.data for job in jobs[max(anew, 0) :]])
        try:
            if anew >= 0:
                self._file.renew(data)
            elif not self._file.open:
                return Outcome(number, False, "it is to be begun afresh")
            else:
                self._file.write(data)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.shut()
            return Outcome(number, anew >= 0, error.strerror or "it cannot be written")
        return Outcome(number, anew >= 0)
