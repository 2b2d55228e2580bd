"""The model file is looked at before anything loads it, on a thread of its own: header, then sha256.

Hashing reads the whole file (half a minute on an SD card), so a hash is remembered by path, size and modification
time in `state_dir/hashes.json`. A hash that the configuration names is compared before the worker starts; without one
it is computed afterwards, for `status`, by another thread: a smaller profile that is wanted now does not wait for it.

Last it asks how much memory there is: a figure of before a death would still count what the dead worker held.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from edged.errors import ModelFileError
from edged.system import gguf
from edged.system.aside import Aside
from edged.system.memory import available_bytes
from edged.watchdog.plan import Plan

_CACHE: Final = "hashes.json"
_CACHE_ENTRIES: Final = 32

MEMORY_S: Final = 1.0
"""How long a look waits for the kernel to say how much memory there is."""


class Checked(Struct, frozen=True):
    """The file may be loaded. `number`: of the question, as `Preflight.check` gave it.

    `available`: bytes of memory at the end of the look; None when the kernel does not say.
    """

    number: int
    path: str
    header: gguf.Header
    available: int | None


class Hashed(Struct, frozen=True):
    number: int
    path: str
    sha256: str


class Rejected(Struct, frozen=True):
    """The file must not be loaded; `kind` as in ModelFileError. `mark`: its signature before the look."""

    number: int
    path: str
    kind: str
    message: str
    mark: tuple[int, int, int] | None


Finding = Checked | Hashed | Rejected


class Preflight:
    """Two threads, and one for the memory, whose file may hang.

    `check` asks, `findings` answers, `wake` is called when there is an answer.
    """

    def __init__(self, state_dir: str, wake: Callable[[], None]) -> None:
        self._cache = os.path.join(state_dir, _CACHE)
        self._wake = wake
        self._number = 0
        self._asked: queue.SimpleQueue[tuple[int, str, str | None, str]] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self._unhashed: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._writing = threading.Lock()
        self._memory = Aside("memory")
        threading.Thread(target=self._run, name="preflight", daemon=True).start()
        threading.Thread(target=self._run_hashes, name="hashes", daemon=True).start()

    def check(self, plan: Plan) -> int:
        """Returns the question's number, which its findings carry."""
        self._number += 1
        self._asked.put((self._number, plan.path, plan.sha256, plan.config.watchdog.root))
        return self._number

    def findings(self) -> list[Finding]:
        """What has been found since the last call."""
        out: list[Finding] = []
        while not self._found.empty():
            out.append(self._found.get())
        return out

    def _run(self) -> None:
        while True:
            number, path, expected, root = self._asked.get()
            mark = signature(path)
            try:
                self._look(number, path, expected, root)
            except ModelFileError as error:
                self._tell(Rejected(number, path, error.kind, str(error), mark))
            except OSError as error:
                self._tell(Rejected(number, path, ModelFileError.MISSING, f"{path}: {error.strerror or error}", mark))
            except Exception as error:  # noqa: BLE001 - a thread that dies silently would leave the service loading
                self._tell(Rejected(number, path, "internal", f"{path}: {type(error).__name__}: {error}", mark))

    def _run_hashes(self) -> None:
        while True:
            number, path = self._unhashed.get()
            with contextlib.suppress(OSError, ModelFileError):  # whoever loads the file says what is wrong with it
                self._tell(Hashed(number, path, self._hash(path)))

    def _look(self, number: int, path: str, expected: str | None, root: str) -> None:
        header = gguf.check(path)
        if expected is None:
            self._tell(Checked(number, path, header, self._available(root)))
            self._unhashed.put((number, path))
            return
        sha256 = self._hash(path)
        if sha256 != expected:
            message = f"{path}: sha256 is {sha256}, model.sha256 says {expected}"
            raise ModelFileError(ModelFileError.WRONG_SHA256, message)
        self._tell(Checked(number, path, header, self._available(root)))
        self._tell(Hashed(number, path, sha256))

    def _available(self, root: str) -> int | None:
        return self._memory.ask(lambda: available_bytes(root), MEMORY_S, None)

    def _tell(self, finding: Finding) -> None:
        self._found.put(finding)
        self._wake()

    def _hash(self, path: str) -> str:
        file = os.stat(path)
        mark = [file.st_size, file.st_mtime_ns, file.st_ino]
        known = _read(self._cache)
        entry = known.get(path)
        if entry is not None and entry[:3] == mark:
            return str(entry[3])
        sha256 = gguf.sha256_of(path)
        with self._writing:
            known = _read(self._cache)
            known.pop(path, None)
            known[path] = [*mark, sha256]
            while len(known) > _CACHE_ENTRIES:
                del known[next(iter(known))]
            _write(self._cache, known)
        return sha256


def signature(path: str) -> tuple[int, int, int] | None:
    """Changes when the file does; None while there is none."""
    try:
        file = os.stat(path)
    except OSError:
        return None
    return file.st_size, file.st_mtime_ns, file.st_ino


def _read(cache: str) -> dict[str, list[int | str]]:
    """A cache that is missing or broken is empty."""
    try:
        with open(cache, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    entries = data.items() if isinstance(data, dict) else ()
    return {path: entry for path, entry in entries if isinstance(entry, list) and len(entry) == 4}


def _write(cache: str, entries: dict[str, list[int | str]]) -> None:
    """Temporary file, then rename. A full or read-only disk costs the memory of a hash, nothing else."""
    temporary = f"{cache}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(entries, file)
        os.replace(temporary, cache)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
