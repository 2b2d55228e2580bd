"""The journal's files, brought to the broker; the broker's records, brought to the files (ADR 17).

* `ram`: one file on a RAM file system, written by the loop (some microseconds) before anything is told.
* `disk`: that file, and one in `state_dir` of acceptances and ends only, written by a thread.
* A file that grew to twice what it had been begun with, and GROWN_BYTES more, is begun afresh of what is alive.
* A file that cannot be written is given up rather than left with a gap, and begun afresh each RETRY_S.

The daemon's loop calls; nothing here blocks but `recover` (before the loop) and `close` (after it).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from edged.broker.broker import Broker
from edged.broker.instructions import Instruction
from edged.broker.ledger import image
from edged.broker.record import DURABLE, Record, Standing
from edged.broker.results import Kept
from edged.broker.story import Found, Story, merged
from edged.config import Config
from edged.journal import format as form
from edged.journal.disk import Disk
from edged.journal.file import NAME, JournalFile
from edged.observe.log import Log
from edged.system import aside, owndir, smallfile
from edged.system.ramdir import ram_dir

GROWN_BYTES: Final = 1 << 20
UNWRITTEN_BYTES: Final = 4 << 20
"""That may wait for the disk; beyond it the disk counts as one that takes nothing."""
RETRY_S: Final = 2.0
STOP_S: Final = 2.0
BOOT_S: Final = 1.0
"""How long the start waits for the kernel to say which boot this is."""


class JournalSide:
    """`do` carries out instructions."""

    def __init__(
        self,
        config: Config,
        broker: Broker,
        *,
        do: Callable[[Iterable[Instruction], float], None],
        wake: Callable[[], None],
        log: Log,
        counters: Counter[str],
        instance: str,
    ) -> None:
        self._mode = config.journal
        self._broker = broker
        self._ledger = broker.lives.ledger
        self._do = do
        self._wake = wake
        self._log = log
        self._counters = counters
        self._instance = instance
        self._boot = _boot_id(config.watchdog.root)
        self._warnings: dict[str, str] = {}
        self._aside: list[str] = []
        self._ram = self._opened("ram", ram_dir(config.runtime_dir), synced=False)
        self._state = self._opened("disk", config.state_dir, synced=True)
        self._disk: Disk | None = None
        self._begun = {"ram": 0, "disk": 0}
        self._renewing = 0  # bytes of the image that the disk is being given
        self._gap = False  # the file on the disk lacks something
        self._retry = {"ram": float("inf"), "disk": float("inf")}

    # ---- the beginning ---------------------------------------------------------------------------------------

    def recover(self, now: float) -> None:
        """What is there is brought to the broker, and the files begin afresh."""
        if self._mode == "off":
            self._discard()
            return
        if self._mode == "ram" and self._ram is None:
            self._warnings.setdefault("ram", "no RAM file system")
        found = self._found(now)
        self._ledger.on = self._ram is not None or self._mode == "disk"
        self._ledger.durable = self._mode == "disk"
        if self._mode == "disk" and self._state is not None:
            self._disk = Disk(self._state, self._wake)
        elif self._mode == "disk":
            self._ledger.why = self._warnings.get("disk", "it is not there")
        out = self._restored(found, now)
        self._ledger.take()  # what is there now is in the image
        self._begin_ram(now)
        self._begin_disk(now)
        if self._mode == "ram" and self._state is not None:
            self._state.remove()
            self._state.close()
        self._do(out, now)

    def _restored(self, found: Found, now: float) -> list[Instruction]:
        """What cannot be brought back is not tried by every daemon after this one."""
        try:
            for topic, kept in found.kept.items():
                found.kept[topic] = self._renamed(kept)
            return self._broker.recovered(found, now)
        except Exception:
            for file in (self._ram, self._state):
                if file is not None:
                    file.set_aside()
            raise

    def _renamed(self, kept: Kept) -> Kept:
        """It is this instance that tells it now."""
        reply = msgspec.json.decode(kept.body)
        reply["instance"] = self._instance
        return msgspec.structs.replace(kept, body=msgspec.json.encode(reply))

    def _opened(self, name: str, directory: str, *, synced: bool) -> JournalFile | None:
        wanted = self._mode in ("disk", name)
        if not directory or not (wanted or os.path.lexists(os.path.join(directory, NAME))):
            return None
        wrong = owndir.prepare(directory)
        try:
            file = JournalFile(directory, synced=synced)
            if wrong or not file.lock():
                self._warn(name, wrong or "another daemon has it")
                return None
        except OSError as error:
            self._warn(name, error.strerror or "it cannot be opened")
            return None
        return file

    def _discard(self) -> None:
        for file in (self._ram, self._state):
            if file is not None:
                file.remove()
                file.close()

    def _found(self, now: float) -> Found:
        return merged(self._read("ram", self._ram, now), self._read("disk", self._state, now))

    def _read(self, name: str, file: JournalFile | None, now: float) -> Found:
        """Of another boot, its clock goes on from its last record: the time without power does not count."""
        if file is None:
            return Found()
        try:
            contents = form.decode(file.read())
            if contents.foreign:
                file.set_aside()
                self._log.warning("journal_set_aside", where=name, why=contents.foreign)
                self._aside.append(f"journal ({name}): moved aside as journal.bad: {contents.foreign}")
        except OSError as error:
            self._warn(name, error.strerror or "it cannot be read")
            return Found()
        found = Story().feed(contents.records).found
        if name == "disk":
            found.lose()
        if contents.head is None or contents.head.boot == self._boot:
            return found
        return found.shifted(now - max(found.last, contents.head.now))

    # ---- writing ---------------------------------------------------------------------------------------------

    def write(self, now: float) -> None:
        """Before anything of it is told."""
        records = self._ledger.take()
        if not records:
            return
        if self._ram is not None and self._ram.open:
            self._write_ram(self._ram, records, now)
        if self._disk is not None and not self._gap:
            durable = [record for record in records if isinstance(record, DURABLE)]
            if durable:
                self._disk.append(self._ledger.number, form.encode(durable))

    def _write_ram(self, file: JournalFile, records: list[Record], now: float) -> None:
        try:
            file.write(form.encode(records))
        except OSError as error:
            file.remove()
            self._trouble("ram", error.strerror or "it cannot be written", now)

    def tick(self, now: float) -> None:
        self.write(now)
        self._hear(now)
        if self._ram is not None and (now >= self._retry["ram"] or self._grown("ram", self._ram.size)):
            self._begin_ram(now)
        if self._disk is not None:
            if self._disk.waiting > UNWRITTEN_BYTES and not self._ledger.why:
                self._trouble("disk", "the disk does not keep up", now)
            if now >= self._retry["disk"] or (not self._renewing and self._grown("disk", self._disk.size)):
                self._begin_disk(now)

    def next_wake(self) -> float:
        return min(self._retry.values())

    def _hear(self, now: float) -> None:
        for outcome in [] if self._disk is None else self._disk.outcomes():
            if outcome.anew:
                self._begun["disk"], self._renewing = self._renewing, 0
            if outcome.why:
                self._do(self._broker.unwritten(outcome.number, now), now)
                self._trouble("disk", outcome.why, now)
            else:
                self._do(self._broker.written(outcome.number, now), now)
                self._well("disk")

    def _grown(self, name: str, size: int) -> bool:
        return size > 2 * self._begun[name] + GROWN_BYTES

    def _image(self, *, durable: bool) -> bytes:
        lives = self._broker.lives
        records = image(list(lives.table), list(lives.results), lives.model)
        if durable:
            records = [record for record in records if isinstance(record, (*DURABLE, Standing))]
        return form.head(self._boot, time.monotonic()) + form.encode(records)

    def _begin_ram(self, now: float) -> None:
        if self._ram is None:
            return
        data = self._image(durable=False)
        try:
            self._ram.renew(data)
        except OSError as error:
            self._ram.remove()
            self._trouble("ram", error.strerror or "it cannot be written", now)
            return
        self._begun["ram"] = len(data)
        self._well("ram")

    def _begin_disk(self, now: float) -> None:
        """A disk that hangs is not given the same again."""
        if self._disk is None:
            return
        self._retry["disk"] = now + RETRY_S
        if self._renewing or self._disk.waiting > UNWRITTEN_BYTES:
            return
        data = self._image(durable=True)
        self._renewing, self._gap = len(data), False
        self._disk.renew(self._ledger.number, data)

    # ---- how it goes -----------------------------------------------------------------------------------------

    def _trouble(self, name: str, why: str, now: float) -> None:
        self._counters["journal_failures"] += 1
        self._retry[name] = now + RETRY_S
        if name == "disk":
            self._ledger.why, self._gap = why, True
        self._warn(name, why)

    def _warn(self, name: str, why: str) -> None:
        if self._warnings.get(name) != why:
            self._log.warning("journal_trouble", where=name, why=why)
        self._warnings[name] = why

    def _well(self, name: str) -> None:
        self._retry[name] = float("inf")
        if name == "disk":
            self._ledger.why = ""
        if self._warnings.pop(name, ""):
            self._log.info("journal_well", where=name)

    def warnings(self) -> list[str]:
        return [*self._aside, *(f"journal ({name}): {why}" for name, why in self._warnings.items())]

    def fields(self) -> dict[str, Any]:
        """For `status`."""
        fields: dict[str, Any] = {"mode": self._mode, "ram_bytes": self._ram.size if self._ram is not None else 0}
        if self._disk is not None:
            fields |= {"disk_bytes": self._disk.size, "waiting_bytes": self._disk.waiting}
        return fields

    def close(self, now: float) -> None:
        """What is kept stays for the next daemon; what waits for the disk is told when it had its time."""
        self.write(now)
        if self._disk is not None:
            self._disk.close(STOP_S)
            self._hear(now)
        self._do(self._broker.unwritten(self._ledger.number, now), now)
        if self._ram is not None:
            if not len(self._broker.lives.results):
                self._ram.remove()
            self._ram.close()


def _boot_id(root: str) -> str:
    path = os.path.join(root, "proc/sys/kernel/random/boot_id")
    return aside.once(lambda: smallfile.text(path) or "", BOOT_S, "")
