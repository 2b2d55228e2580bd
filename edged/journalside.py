"""The journal's files, brought to the broker; the broker's records, brought to the files (ADR 17).

* `ram`: one file on a RAM file system, written by the loop (some microseconds) before anything is told.
* `disk`: that file, and one in `state_dir` of acceptances and ends only, written by a thread.
* When a file is begun afresh, of what is alive: `edged.journal.upkeep`. One that cannot be stays as it is and goes on.
* A file that cannot be written is given up rather than left with a gap, and begun afresh.
* One that was removed is missed within LOOK_S, and before an acceptance is told, and begun afresh.

The daemon's loop calls; nothing here blocks but `recover` (before the loop) and `close` (after it).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from edged.broker.broker import Broker
from edged.broker.instructions import Instruction
from edged.broker.ledger import image
from edged.broker.record import DURABLE, Accepted, Record, Standing
from edged.broker.results import Kept
from edged.broker.story import Found
from edged.config import Config
from edged.journal import format as form
from edged.journal.disk import REMOVED, Disk
from edged.journal.file import JournalFile
from edged.journal.past import Past
from edged.journal.upkeep import GROWN_BYTES, Upkeep
from edged.observe.log import Log

UNWRITTEN_BYTES: Final = 4 << 20
"""That may wait for the disk; beyond it the disk counts as one that takes nothing."""
LOOK_S: Final = 1.0
STOP_S: Final = 2.0


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
        self._past = Past(config, log)
        self._warnings = self._past.troubles
        for name, why in self._warnings.items():
            log.warning("journal_trouble", where=name, why=why)
        self._ram = self._past.ram
        self._disk: Disk | None = None
        self._upkeep = {"ram": Upkeep(), "disk": Upkeep()}
        self._handed = False  # the disk is being given a file
        self._gap = False  # the file on the disk lacks something
        self._looked = 0.0
        self.large = 0  # how often a large file was begun afresh, or put into memory: for who gives it back

    # ---- the beginning ---------------------------------------------------------------------------------------

    @property
    def on(self) -> bool:
        return self._ledger.on

    def recover(self, now: float) -> None:
        """What is there is brought to the broker, and the files begin afresh."""
        past = self._past
        if self._mode == "off":
            past.discard()
            self._ram = None
            return
        if self._mode == "ram" and self._ram is None:
            self._warnings.setdefault("ram", "no RAM file system")
        found = past.found(now)
        self._ledger.on = self._ram is not None or self._mode == "disk"
        self._ledger.durable = self._mode == "disk"
        if self._mode == "disk" and past.disk is not None:
            self._disk = Disk(past.disk, self._wake)
        elif self._mode == "disk":
            self._ledger.why = self._warnings.get("disk", "it is not there")
        out = self._restored(found, now)
        self.large += bool(found.lives or found.kept)
        self._ledger.take()  # what is there now is in the image
        self._begin_ram(now)
        self._begin_disk(now)
        if self._mode == "ram":
            past.discard_disk()
        self._do(out, now)

    def _restored(self, found: Found, now: float) -> list[Instruction]:
        """What cannot be brought back is not tried by every daemon after this one."""
        try:
            for topic, kept in found.kept.items():
                found.kept[topic] = self._renamed(kept)
            return self._broker.recovered(found, now)
        except Exception:
            self._past.set_aside()
            raise

    def _renamed(self, kept: Kept) -> Kept:
        """It is this instance that tells it now."""
        reply = msgspec.json.decode(kept.body)
        reply["instance"] = self._instance
        return msgspec.structs.replace(kept, body=msgspec.json.encode(reply))

    # ---- writing ---------------------------------------------------------------------------------------------

    def write(self, now: float) -> None:
        """Before anything of it is told."""
        records = self._ledger.take()
        if not records:
            return
        accepted = [record for record in records if isinstance(record, Accepted)]
        for record in accepted:
            if record.body.session is not None:
                for upkeep in self._upkeep.values():
                    upkeep.turn((record.identity, record.body.session))
        if self._ram is not None and self._ram.open:
            if accepted:
                self._look(self._ram, now)
            if self._ram.open:
                self._write_ram(self._ram, records, now)
        if self._disk is not None and not self._gap:
            durable = [record for record in records if isinstance(record, DURABLE)]
            if durable:
                self._disk.append(self._ledger.number, form.encode(durable))

    def _write_ram(self, file: JournalFile, records: list[Record], now: float) -> None:
        """Given up when that fails: what it took is there for a new one."""
        try:
            file.write(form.encode(records))
        except OSError as error:
            with contextlib.suppress(OSError):
                file.remove()
            self._trouble("ram", error.strerror or "it cannot be written", now)

    def _look(self, file: JournalFile, now: float) -> None:
        self._looked = now
        if not file.there():
            file.shut()
            self._trouble("ram", REMOVED, now)
            self._begin_ram(now)

    def tick(self, now: float) -> None:
        self.write(now)
        self._hear(now)
        for upkeep in self._upkeep.values():
            upkeep.deleted(self._ledger.deleted)
        self._ledger.deleted.clear()
        if self._ram is not None:
            if self._ram.open and now >= self._looked + LOOK_S:
                self._look(self._ram, now)
            if self._due("ram", self._ram.size, now):
                self._begin_ram(now)
        if self._disk is not None:
            if self._disk.waiting > UNWRITTEN_BYTES and not self._ledger.why:
                self._trouble("disk", "the disk does not keep up", now)
            if self._due("disk", self._disk.size, now):
                self._begin_disk(now)

    def _due(self, name: str, size: int, now: float) -> bool:
        return self._upkeep[name].due(now, size, self._broker.lives.results.gone, self._ttl_s)

    def next_wake(self) -> float:
        """A disk that is busy wakes the loop when it is not."""
        gone, ttl_s = self._broker.lives.results.gone, self._ttl_s
        ram = float("inf") if self._ram is None else self._upkeep["ram"].next_wake(gone, ttl_s)
        disk = float("inf") if self._disk is None or self._busy else self._upkeep["disk"].next_wake(gone, ttl_s)
        return min(ram, disk)

    @property
    def _ttl_s(self) -> float:
        return self._broker.lives.config.limits.result_ttl_s

    @property
    def _busy(self) -> bool:
        """A disk that hangs is not given the same again."""
        return self._handed or (self._disk is not None and self._disk.waiting > UNWRITTEN_BYTES)

    def _hear(self, now: float) -> None:
        for outcome in [] if self._disk is None else self._disk.outcomes():
            covered = self._handed and not outcome.anew  # by the file that it is being given
            self._handed = covered
            if outcome.why:
                self._do(self._broker.unwritten(outcome.number, now), now)
                if not covered:
                    self._trouble("disk", outcome.why, now)
                continue
            if outcome.kept:
                self._not_afresh("disk", outcome.kept, now)
            elif outcome.anew:
                self._well("disk")
            self._do(self._broker.written(outcome.number, now), now)

    def _image(self, *, durable: bool) -> bytes:
        lives = self._broker.lives
        records = image(list(lives.table), list(lives.results), lives.model)
        if durable:
            records = [record for record in records if isinstance(record, (*DURABLE, Standing))]
        return form.head(self._past.boot, time.monotonic()) + form.encode(records)

    def _hand(self, name: str, data: bytes, now: float) -> None:
        lives = self._broker.lives
        turns = [request.talk.key for request in lives.table if request.talk is not None]
        self._upkeep[name].handed(now, len(data), lives.results.gone, turns)

    def _begin_ram(self, now: float) -> None:
        if self._ram is None:
            return
        data, size = self._image(durable=False), self._ram.size
        self._hand("ram", data, now)
        try:
            self._ram.renew(data)
        except OSError as error:
            why = error.strerror or "it cannot be written"
            if self._ram.open:
                self._not_afresh("ram", why, now)
            else:
                self._trouble("ram", why, now)
            return
        self.large += max(size, len(data)) > GROWN_BYTES
        self._well("ram")

    def _begin_disk(self, now: float) -> None:
        if self._disk is None or self._busy:
            return
        data = self._image(durable=True)
        self._disk.renew(self._ledger.number, data, gap=self._gap)
        self._hand("disk", data, now)
        self._handed, self._gap = True, False
        self.large += max(self._disk.size, len(data)) > GROWN_BYTES

    # ---- how it goes -----------------------------------------------------------------------------------------

    def _trouble(self, name: str, why: str, now: float) -> None:
        """It is not written."""
        if name == "disk":
            self._ledger.why, self._gap = why, True
        self._not_afresh(name, why, now)

    def _not_afresh(self, name: str, why: str, now: float) -> None:
        self._counters["journal_failures"] += 1
        self._upkeep[name].failed(now)
        if self._warnings.get(name) != why:
            self._log.warning("journal_trouble", where=name, why=why)
        self._warnings[name] = why

    def _well(self, name: str) -> None:
        self._upkeep[name].well()
        if name == "disk":
            self._ledger.why = ""
        if self._warnings.pop(name, ""):
            self._log.info("journal_well", where=name)

    def warnings(self) -> list[str]:
        return [*self._past.notices, *(f"journal ({name}): {why}" for name, why in self._warnings.items())]

    def fields(self) -> dict[str, Any]:
        """For `status`."""
        fields: dict[str, Any] = {"mode": self._mode, "ram_bytes": self._ram.size if self._ram is not None else 0}
        if self._disk is not None:
            fields |= {"disk_bytes": self._disk.size, "waiting_bytes": self._disk.waiting}
        return fields

    def close(self, now: float) -> None:
        """After a stop in order results that are still kept are all that is left, for the next daemon; after any other
        what is there. What waits for the disk is told when it had its time."""
        self.write(now)
        lives = self._broker.lives
        ram = disk = None
        if not len(lives.table):
            lives.results.expire(now, self._ttl_s)
            kept = len(lives.results) > 0
            ram, disk = (self._image(durable=one) if kept else b"" for one in (False, True))
        if self._disk is not None:
            self._disk.close(STOP_S, disk)
            self._hear(now)
        self._do(self._broker.unwritten(self._ledger.number, now), now)
        if self._ram is not None:
            self._last(self._ram, ram)
            self._ram.close()

    @staticmethod
    def _last(file: JournalFile, data: bytes | None) -> None:
        """Where there is no room for it beside the old one, it is put in its place."""
        if data is None:
            return
        with contextlib.suppress(OSError):
            try:
                file.last(data)
            except OSError:
                file.remove()
                file.last(data)
