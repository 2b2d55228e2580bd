"""Fetches one model file over HTTP: checks before the first byte, resumes, verifies, renames last.

Nothing under the final name is touched before the new file is whole, verified and flushed; whoever has the old one
open keeps it. What has arrived stays as NAME.part when a pull fails or is killed; only a part that is proven wrong
(sha256, not a GGUF file) is removed, since to resume it would fail for ever.

A connection that breaks is taken up again by itself, as long as each try brings something or `retries` are left.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from edged.errors import ModelFileError
from edged.models import checked, files, http, partial, room
from edged.models.partial import Part, Record
from edged.models.sources import Remote
from edged.system import gguf, memory

CHUNK: Final = 1 << 18
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0

UNREACHED: Final = 2
"""Tries again, at most, where nothing has ever answered: without a network more of them only take time."""


class PullError(Exception):
    """The model could not be had; the message says why and what to do. `network`: nothing answered."""

    def __init__(self, message: str, *, network: bool = False) -> None:
        super().__init__(message)
        self.network = network


class Teller(Protocol):
    """Where progress goes."""

    def say(self, text: str) -> None: ...
    def begin(self, done: int, total: int) -> None: ...
    def progress(self, done: int) -> None: ...
    def end(self) -> None: ...


class Options(Struct, frozen=True, kw_only=True):
    timeout: float = 30.0
    retries: int = 5
    force: bool = False
    insecure: bool = False
    token: str | None = None
    root: str = "/"


class Pulled(Struct, frozen=True, kw_only=True):
    """`against`: who named the sha256 that was compared, "" when nobody did. `fetched`: false when it was there."""

    path: str
    size: int
    sha256: str
    against: str
    fetched: bool
    resumed_from: int


def pull(remote: Remote, directory: Path, options: Options, teller: Teller, wait: Callable[[float], None]) -> Pulled:
    """The verified file in `directory`. Raises PullError, SourceError and those of `files`."""
    files.prepare(directory)
    target = directory / remote.file
    try:
        with files.only_one(target):
            there = _already(target, remote.size, remote.sha256, remote.known_by, teller)
            return there or _Pull(remote, target, options, teller).run(wait)
    except OSError as error:
        raise PullError(f"{error.filename or target}: {error.strerror or error}") from None


def check_room(directory: Path, size: int, *, need: int | None, missing: int, options: Options, teller: Teller) -> None:
    """Disk and memory, before anything is fetched. Raises PullError unless `options.force`."""
    root = options.root
    findings = (
        room.disk(str(directory), missing=missing, free=files.free_bytes(directory)),
        room.memory(size, need, total=memory.total_bytes(root), available=memory.available_bytes(root)),
    )
    for finding in filter(None, findings):
        if finding.fatal and not options.force:
            raise PullError(f"{finding.text}; --force fetches it nevertheless")
        teller.say(f"warning: {finding.text}")


def _already(target: Path, size: int | None, sha256: str | None, by: str, teller: Teller) -> Pulled | None:
    """The file of this name, if it is the one wanted; of a file without a known sum the size has to do."""
    if not target.is_file() or size not in (None, target.stat().st_size) or (size is None and sha256 is None):
        return None
    known = checked.lookup(target)
    found = known.sha256 if known else gguf.sha256_of(str(target))
    if sha256 not in (None, found):
        teller.say(f"{target} has another sha256 ({found}): it is fetched anew, and stays until that is done")
        return None
    if known is None or by:
        checked.remember(target, found, by)
    length = target.stat().st_size
    return Pulled(path=str(target), size=length, sha256=found, against=by, fetched=False, resumed_from=length)


class _Pull:
    """One file on its way, over several connections if need be."""

    def __init__(self, remote: Remote, target: Path, options: Options, teller: Teller) -> None:
        self._remote, self._target, self._options, self._teller = remote, target, options, teller
        self._record = partial.load(target)
        self._boot = partial.boot_id()
        self._resumed_from: int | None = None
        self._roomy = False

    def run(self, wait: Callable[[float], None]) -> Pulled:
        failures = 0
        while True:
            before = partial.length(self._target)
            try:
                return self._connect()
            except http.UnreachableError as error:
                progress = (partial.length(self._target) or 0) > (before or 0)
                failures = 1 if progress else failures + 1
                reached = self._record is not None or progress
                retries = self._options.retries
                if failures > (retries if reached else min(retries, UNREACHED)):
                    kept = partial.kept(self._target) or f"; or {http.OTHER_WAY}"
                    raise PullError(f"{error}{kept}", network=True) from None
                pause = min(PAUSE_S * 2 ** (failures - 1), PAUSE_MAX_S)
                self._teller.say(f"{error}; trying again in {pause:.0f} s")
                wait(pause)
            except http.RefusedError as error:
                raise PullError(f"{error}{partial.kept(self._target)}") from None
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                left = (self._record.size if self._record else 0) - (partial.length(self._target) or 0)
                raise PullError(
                    f"{self._target.parent}: the disk is full, {room.mb(left)} are still to come: make room"
                    f"{partial.kept(self._target)}"
                ) from None

    def _connect(self) -> Pulled:
        """Over one connection as far as it goes. Raises what `http` raises, OSError, PullError."""
        keep = partial.keep(
            self._record,
            partial.length(self._target),
            place=self._remote.place,
            sha256=self._remote.sha256,
            boot=self._boot,
        )
        if self._record is not None and keep == self._record.size:
            with Part(self._target, keep, self._record) as part:
                return self._finish(part)
        try:
            answer = self._ask(keep)
        except http.NothingLeftError:  # the file has become shorter than the part
            answer = self._from_the_beginning()
        try:
            record = self._check(answer)
            there = None
            if self._remote.sha256 is None:  # else it has been looked at
                there = _already(self._target, record.size, record.sha256, self._by(record), self._teller)
            return there or self._receive(answer, record)
        finally:
            answer.close()

    def _ask(self, keep: int) -> http.Answer:
        """An answer whose offset may be trusted: what lies in the part is the beginning of the same file."""
        record = self._record
        by_sum = self._remote.hub and record is not None and record.sha256 is not None
        answer = self._get(keep, record.validator if record and not by_sum else None)
        if keep and answer.offset == 0:
            self._teller.say("the file has changed, or the server cannot go on in the middle: from the beginning")
        if answer.offset == 0 or (record is not None and answer.offset == keep and _same(record, answer)):
            return answer
        answer.close()
        return self._from_the_beginning()

    def _from_the_beginning(self) -> http.Answer:
        self._teller.say("the file has changed on the server: from the beginning")
        answer = self._get(0, None)
        if answer.offset:
            answer.close()
            raise http.RefusedError(f"{self._remote.place}: the server does not send the beginning of the file")
        return answer

    def _get(self, offset: int, validator: str | None) -> http.Answer:
        options = self._options
        return http.get(
            self._remote.url,
            offset=offset,
            validator=validator,
            timeout=options.timeout,
            insecure=options.insecure,
            token=options.token if self._remote.hub else None,
        )

    def _check(self, answer: http.Answer) -> Record:
        """Before the first byte: the right file, and room for it on the disk and in memory."""
        remote, size = self._remote, answer.size
        if size is None:
            raise http.RefusedError(f"{remote.place}: the server does not say how large the file is: {http.OTHER_WAY}")
        if remote.size is not None and size != remote.size:
            raise http.RefusedError(f"{remote.place}: {size} bytes, {remote.known_by} says {remote.size}: another file")
        if remote.sha256 and answer.sha256 and answer.sha256 != remote.sha256:
            raise http.RefusedError(
                f"{remote.place}: the hub has sha256 {answer.sha256}, {remote.known_by} says {remote.sha256}"
            )
        if not self._roomy:
            part = partial.length(self._target) or 0  # cut off or written on: its room counts either way
            check_room(
                self._target.parent,
                size,
                need=remote.memory,
                missing=size - part,
                options=self._options,
                teller=self._teller,
            )
            self._roomy = True
        return Record(
            place=remote.place,
            size=size,
            validator=answer.validator,
            sha256=remote.sha256 or answer.sha256,
            flushed=0,
            boot=self._boot,
        )

    def _receive(self, answer: http.Answer, record: Record) -> Pulled:
        self._record = record
        if self._resumed_from is None:
            self._resumed_from = answer.offset
        with Part(self._target, answer.offset, record) as part:
            self._teller.begin(part.done, record.size)
            try:
                while part.done < record.size:
                    block = answer.read(min(CHUNK, record.size - part.done))
                    if not block:
                        raise http.UnreachableError(f"{answer.place}: the connection ended early")
                    if part.done == 0 and not b"GGUF".startswith(block[:4]):
                        partial.discard(self._target)
                        raise http.RefusedError(f"{self._remote.place}: not a GGUF file (but {answer.kind})")
                    part.write(block)
                    self._teller.progress(part.done)
            except http.UnreachableError:
                part.save()
                raise
            finally:
                self._teller.end()
            return self._finish(part)

    def _finish(self, part: Part) -> Pulled:
        assert self._record is not None
        expected, by = self._record.sha256, self._by(self._record)
        if expected not in (None, part.sha256):
            partial.discard(self._target)
            raise PullError(
                f"{self._target.name}: sha256 {part.sha256}, {by} says {expected}: damaged on the way, or another "
                f"file. It is thrown away: run it again"
            )
        part.save()
        try:
            gguf.check(str(partial.part_path(self._target)))
        except ModelFileError as error:
            partial.discard(self._target)
            raise PullError(f"{error}: it is thrown away") from None
        files.settle(partial.part_path(self._target), self._target)
        partial.discard(self._target)
        checked.remember(self._target, part.sha256, by)
        return Pulled(
            path=str(self._target),
            size=part.done,
            sha256=part.sha256,
            against=by,
            fetched=True,
            resumed_from=part.done if self._resumed_from is None else self._resumed_from,
        )

    def _by(self, record: Record) -> str:
        """Who named the sum."""
        return self._remote.known_by or ("the hub" if record.sha256 else "")


def _same(record: Record, answer: http.Answer) -> bool:
    """The answer is of the file that the part is of. Without any mark the sum at the end has to tell."""
    if answer.size != record.size:
        return False
    if answer.sha256 is not None and record.sha256 is not None:
        return answer.sha256 == record.sha256
    return answer.validator == record.validator
