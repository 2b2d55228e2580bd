"""What earlier daemons left: the journal's files are opened, read once, and what is none is put out of the way.

Nothing here raises OSError. `troubles`: why a file cannot be used, by its name (`ram`, `disk`); `notices`: what an
operator should know of and what stays true.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from edged.broker.story import Found, Story, merged
from edged.config import Config
from edged.journal import format as form
from edged.journal.file import NAMES, JournalFile
from edged.observe.log import Log
from edged.system import aside, owndir, smallfile
from edged.system.ramdir import ram_dir

BOOT_S: Final = 1.0
"""How long the start waits for the kernel to say which boot this is."""


class Past:
    """`ram`, `disk`: the files that are wanted, or have to go; None: there is none, or it cannot be used."""

    def __init__(self, config: Config, log: Log) -> None:
        self.troubles: dict[str, str] = {}
        self.notices: list[str] = []
        self.boot = _boot_id(config.watchdog.root)
        self._mode = config.journal
        self._log = log
        self._aside = False  # the disk's file was, just now
        self.ram = self._opened("ram", ram_dir(config.runtime_dir), synced=False)
        self.disk = self._opened("disk", config.state_dir, synced=True)

    def _opened(self, name: str, directory: str, *, synced: bool) -> JournalFile | None:
        if not directory:
            return None
        left = any(os.path.lexists(os.path.join(directory, one)) for one in NAMES)
        if not (left or self._mode in ("disk", name)):
            return None
        wrong = owndir.prepare(directory)
        try:
            file = JournalFile(directory, synced=synced)
            if wrong or not file.lock():
                self.troubles[name] = wrong or "another daemon has it"
                return None
        except OSError as error:
            self.troubles[name] = error.strerror or "it cannot be opened"
            return None
        return file

    # ---- reading ---------------------------------------------------------------------------------------------

    def found(self, now: float) -> Found:
        return merged(self._read("ram", self.ram, now), self._read("disk", self.disk, now))

    def _read(self, name: str, file: JournalFile | None, now: float) -> Found:
        """Of another boot, its clock goes on from its last record: the time without power does not count."""
        if file is None:
            return Found()
        if file.is_aside():
            self.notices.append(f"journal ({name}): an earlier journal.bad is there, with text, until the next stop")
        try:
            contents = self._contents(file)
        except OSError as error:
            self._put_aside(name, file, error.strerror or "it cannot be read")
            return Found()
        if contents.foreign:
            self._put_aside(name, file, contents.foreign)
        found = Story().feed(contents.records).found
        if name == "disk":
            found.lose()
        if contents.head is None or contents.head.boot == self.boot:
            return found
        return found.shifted(now - max(found.last, contents.head.now))

    @staticmethod
    def _contents(file: JournalFile) -> form.Contents:
        reader = file.reader()
        if reader is None:
            return form.Contents(None, [], 0)
        with reader:
            return form.read(reader)

    def _put_aside(self, name: str, file: JournalFile, why: str) -> None:
        try:
            kept = file.set_aside()
        except OSError as error:
            self.notices.append(f"journal ({name}): {why}, and cannot be moved: {error.strerror}")
            self._log.warning("journal_unread", where=name, why=why)
            return
        self._aside = self._aside or (kept and name == "disk")
        self._log.warning("journal_set_aside", where=name, why=why, kept=kept)
        done = "moved aside as journal.bad" if kept else "removed"
        self.notices.append(f"journal ({name}): {done}: {why}")

    def set_aside(self) -> None:
        for file in (self.ram, self.disk):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.set_aside()

    # ---- putting away ----------------------------------------------------------------------------------------

    def discard(self) -> None:
        """`journal: off`."""
        for name, file in (("ram", self.ram), ("disk", self.disk)):
            if file is not None:
                self._clear(name, file)
        self.ram = self.disk = None

    def discard_disk(self) -> None:
        """`ram`: what was in it is in the other one."""
        if self.disk is not None and not self._aside:
            self._clear("disk", self.disk)
        elif self.disk is not None:
            self.disk.close()
        self.disk = None

    def _clear(self, name: str, file: JournalFile) -> None:
        try:
            file.clear()
        except OSError as error:
            self.notices.append(f"journal ({name}): an old one cannot be removed: {error.strerror}")
            self._log.warning("journal_left", where=name, why=error.strerror or "")
        with contextlib.suppress(OSError):
            file.close()


def _boot_id(root: str) -> str:
    path = os.path.join(root, "proc/sys/kernel/random/boot_id")
    return aside.once(lambda: smallfile.text(path) or "", BOOT_S, "")
