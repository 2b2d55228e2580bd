"""The directory of checkpoints: one file for each running request, appended to. Called by one thread.

* Names are of the id alphabet and get an ending: never a path.
* A file goes on where its last whole record ends: what is behind that, of a torn write, is cut off before the next.
* A file that is not sound is removed: what it would have saved is read afresh.
* Nothing raises OSError. What cannot be written is told by how far the file goes; a full, read-only or vanished file
  system costs checkpoints only.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from edged.system.owndir import prepare
from edged.worker import checkformat
from edged.worker.checkformat import Piece
from edged.worker.stateformat import Data, Origin

_SUFFIX: Final = ".ck"
_PARTIAL: Final = ".ck.partial"
_NAME: Final = re.compile(r"[A-Za-z0-9._:\-]{1,64}\Z")


def is_name(name: str) -> bool:
    return _NAME.match(name) is not None


@dataclass(slots=True)
class _File:
    """`size` bytes are whole records, of tokens up to `stop`."""

    key: bytes
    size: int
    stop: int


class CheckDir:
    """`whole`: the model's memory cannot be cut in pieces. `problem`: why nothing is kept, or ""."""

    def __init__(self, path: str, origin: Origin, *, whole: bool) -> None:
        self._path, self._origin, self._whole = path, origin, whole
        self._files: dict[str, _File] = {}
        self.problem = prepare(path)

    def tidy(self, live: Iterable[str]) -> dict[str, int]:
        """Removes the files of requests that are not carried on; the others' sizes."""
        sizes, wanted = {}, set(live)
        with contextlib.suppress(OSError):
            for file in os.listdir(self._path):
                name = file.removesuffix(_SUFFIX)
                if file.endswith(_SUFFIX) and name in wanted:
                    with contextlib.suppress(OSError):
                        sizes[name] = os.lstat(os.path.join(self._path, file)).st_size
                elif file.endswith((_SUFFIX, _PARTIAL)):
                    self._unlink(file)
        return sizes

    def recall(self, name: str, prompt: Sequence[int], known: Sequence[int]) -> tuple[Piece, ...]:
        """Pieces in order, as parts of a mapping; what is written next goes behind those that are wholly known."""
        try:
            data = self._map(name)
        except (OSError, ValueError):
            return ()
        found = checkformat.read(data, self._origin, prompt, known, whole=self._whole)
        if found is None:
            self.remove(name)
            return ()
        good = [piece for piece in found.pieces if piece.same == piece.stop]
        end, stop = (good[-1].end, good[-1].stop) if good else (found.head, 0)
        self._files[name] = _File(found.key, end, stop)
        return found.pieces

    def append(
        self, name: str, prompt: Sequence[int], start: int, tokens: Sequence[int], state: Data
    ) -> tuple[int, int]:
        """How far the file goes then, in tokens and bytes: not to the end of these when they could not be written."""
        file = self._files.get(name)
        try:
            if start == 0:
                file = self._files[name] = self._create(name, prompt)
            if file is None or file.stop != start:
                return (file.stop, file.size) if file else (0, 0)
            with open(self._open(name, os.O_WRONLY), "wb", buffering=0) as out:
                os.ftruncate(out.fileno(), file.size)
                os.lseek(out.fileno(), 0, os.SEEK_END)
                size = _write(out.fileno(), checkformat.record(file.key, start, tokens, state))
        except FileNotFoundError:  # the directory was emptied under us (the end of a login may do that)
            self._files.pop(name, None)
            prepare(self._path)
            return 0, 0
        except OSError:
            return (file.stop, file.size) if file else (0, 0)
        file.size, file.stop = file.size + size, start + len(tokens)
        return file.stop, file.size

    def replace(self, name: str, prompt: Sequence[int], tokens: Sequence[int], state: Data) -> tuple[int, int]:
        """As `append`, but the file is made anew with this one record, and has its name when it is whole."""
        partial = os.path.join(self._path, name + _PARTIAL)
        old = self._files.get(name)
        head, key = checkformat.head(self._origin, prompt, whole=self._whole)
        try:
            self._unlink(name + _PARTIAL)
            with open(self._new(partial), "wb", buffering=0) as out:
                size = _write(out.fileno(), [head, *checkformat.record(key, 0, tokens, state)])
            os.rename(partial, os.path.join(self._path, name + _SUFFIX))
        except OSError:
            self._unlink(name + _PARTIAL)
            if not os.path.isdir(self._path):
                prepare(self._path)
                old = None
            return (old.stop, old.size) if old else (0, 0)
        self._files[name] = _File(key, size, len(tokens))
        return len(tokens), size

    def remove(self, name: str) -> None:
        self._files.pop(name, None)
        if is_name(name):
            self._unlink(name + _SUFFIX)

    def clear(self) -> None:
        """All files."""
        self._files.clear()
        self.tidy(())

    def remove_empty(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._path)

    # ---- inside

    def _create(self, name: str, prompt: Sequence[int]) -> _File:
        """Raises OSError."""
        head, key = checkformat.head(self._origin, prompt, whole=self._whole)
        self._unlink(name + _SUFFIX)
        with open(self._new(os.path.join(self._path, name + _SUFFIX)), "wb", buffering=0) as out:
            return _File(key, _write(out.fileno(), [head]), 0)

    @staticmethod
    def _new(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def _open(self, name: str, mode: int) -> int:
        """Raises OSError."""
        path = os.path.join(self._path, name + _SUFFIX)
        fd = os.open(path, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError("not a file")
        return fd

    def _map(self, name: str) -> memoryview:
        """Private, so that llama.cpp may be given a pointer into it; nothing is copied. Raises OSError, ValueError."""
        fd = self._open(name, os.O_RDONLY)
        try:
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
        finally:
            os.close(fd)

    def _unlink(self, file: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._path, file))


def _write(fd: int, parts: Iterable[Data]) -> int:
    """All of it. Raises OSError."""
    total = 0
    for part in parts:
        rest = memoryview(part).cast("B")
        total += len(rest)
        while rest:
            rest = rest[os.write(fd, rest) :]
    return total
