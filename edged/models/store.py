"""The models directory as the operator sees it: which file a name means, what lies there, import, verify, remove."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from edged.errors import ModelFileError
from edged.models import catalog, checked, files, partial, room
from edged.models.sources import SourceError, file_name
from edged.system import gguf

_CHUNK: Final = 1 << 20


class StoreError(Exception):
    """It was not done; the message says why and what to do."""


class Stored(Struct, frozen=True, kw_only=True):
    """A row of `edgectl model list`. `present` or not; `partial` bytes of an unfinished pull of `expected`.

    `verified`: "yes" the sha256 matched what `against` names; "hashed" it is known but nothing named one;
    "changed" the file is not what was hashed; "no" it was never read.
    """

    name: str
    file: str
    path: str
    present: bool
    size: int
    partial: int
    expected: int
    quantization: str
    memory: int | None
    verified: str
    against: str
    sha256: str | None
    problem: str
    licence: str
    boards: str
    note: str
    source: str
    in_use: bool


class Verdict(Struct, frozen=True, kw_only=True):
    """`ok` false: damaged, or not the file that was expected. `against` "" : nothing to compare with."""

    path: str
    ok: bool
    sha256: str
    against: str
    problem: str


def find(name: str, directory: Path) -> Path:
    """The file that a name of the catalog, a file name (with or without .gguf) or a path means; it need not exist."""
    entry = catalog.by_name(name)
    if entry is not None:
        return directory / entry.file
    if os.sep in name:
        return Path(name).expanduser().absolute()
    for candidate in (directory / name, directory / f"{name}.gguf"):
        if candidate.is_file() or partial.part_path(candidate).is_file():
            return candidate
    if Path(name).is_file():
        return Path(name).absolute()
    return directory / name


def existing(name: str, directory: Path) -> Path:
    """The same, but it has to be there. Raises StoreError."""
    path = find(name, directory)
    if path.is_file():
        return path
    if catalog.by_name(name) or partial.part_path(path).is_file():
        raise StoreError(f"{name}: not fetched yet: edgectl model pull {name}")
    raise StoreError(f"{path}: no such model; edgectl model list shows what there is")


def rows(directory: Path, in_use: Iterable[str], memory: Callable[[gguf.Header], int]) -> list[Stored]:
    """The catalog, then what else lies in the directory or is in use from elsewhere."""
    used = {Path(path).absolute() for path in in_use}
    listed = [directory / entry.file for entry in catalog.ENTRIES]
    lying = [*directory.glob("*.gguf"), *(p.with_name(p.name.removesuffix(".part")) for p in directory.glob("*.part"))]
    rest = sorted({*lying, *used} - set(listed))
    return [_row(path, used, memory) for path in [*listed, *rest]]


def _row(path: Path, used: set[Path], memory: Callable[[gguf.Header], int]) -> Stored:
    entry = catalog.by_file(path.name)
    header, problem = None, ""
    present = path.is_file()
    if present:
        try:
            header = gguf.check(str(path))
        except ModelFileError as error:
            problem = error.kind
    elif path in used:
        problem = ModelFileError.MISSING
    record = partial.load(path) if partial.length(path) is not None else None
    now, before = checked.lookup(path), checked.earlier(path)
    verified = ("yes" if now.against else "hashed") if now else "changed" if before and present else "no"
    if now and entry and entry.sha256 and entry.sha256 != now.sha256:
        verified = "other"
    return Stored(
        name=entry.name if entry else path.stem,
        file=path.name,
        path=str(path),
        present=present,
        size=path.stat().st_size if present else entry.size if entry else record.size if record else 0,
        partial=partial.length(path) or 0,
        expected=record.size if record else 0,
        quantization=(header.quantization if header else "") or (entry.quantization if entry else ""),
        memory=memory(header) if header else entry.memory if entry else None,
        verified=verified if present else "no",
        against=now.against if now else "",
        sha256=now.sha256 if now else entry.sha256 if entry and not present else None,
        problem=problem,
        licence=entry.licence if entry else "",
        boards=entry.boards if entry else "",
        note=entry.note if entry else "",
        source=entry.source if entry else "",
        in_use=path in used,
    )


def verify(path: Path, configured: str | None) -> Verdict:
    """Reads the whole file. Compared with the catalog, the configuration, or what it was when last hashed."""
    entry, before = catalog.by_file(path.name), checked.earlier(path)
    expected, by = None, ""
    if entry is not None and entry.sha256:
        expected, by = entry.sha256, "the catalog"
    elif configured:
        expected, by = configured, "the configuration"
    elif before is not None:
        expected, by = before.sha256, before.against or "the first hashing"
    sha256 = ""
    try:
        gguf.check(str(path))
        sha256 = gguf.sha256_of(str(path))
    except ModelFileError as error:
        return Verdict(path=str(path), ok=False, sha256=sha256, against=by, problem=str(error))
    if expected is not None and sha256 != expected:
        problem = f"{path}: sha256 {sha256}, {by} says {expected}"
        return Verdict(path=str(path), ok=False, sha256=sha256, against=by, problem=problem)
    checked.remember(path, sha256, "" if by == "the first hashing" else by)
    return Verdict(path=str(path), ok=True, sha256=sha256, against=by, problem="")


def bring(
    source: Path, directory: Path, *, name: str | None, sha256: str | None, force: bool, tell: Callable[[int], None]
) -> Verdict:
    """A copy in the directory: checked, hashed, flushed, renamed last. Raises StoreError and those of `files`."""
    try:
        target = directory / file_name(name or source.name)
        header = gguf.check(str(source))
    except (SourceError, ModelFileError) as error:
        raise StoreError(str(error)) from None
    files.prepare(directory)
    with files.only_one(target):
        if target.exists() and target.samefile(source):
            return verify(target, sha256)
        free = room.disk(str(directory), missing=header.file_bytes, free=files.free_bytes(directory))
        if free is not None and not force:
            raise StoreError(f"{free.text}; --force copies it nevertheless")
        copy = directory / f".{target.name}.import"
        try:
            found = _copy(source, copy, tell)
            entry = catalog.by_sha256(found)
            by = "--sha256" if sha256 else "the catalog" if entry else ""
            if sha256 not in (None, found):
                raise StoreError(f"{source}: sha256 {found}, --sha256 says {sha256}: not imported")
            if target.exists() and not force and gguf.sha256_of(str(target)) != found:
                raise StoreError(f"{target} is there and is another file: --name NAME.gguf, or --force to replace it")
            files.settle(copy, target)
        except OSError as error:
            raise StoreError(f"{error.filename or directory}: {error.strerror or error}: not imported") from None
        finally:
            copy.unlink(missing_ok=True)
        checked.remember(target, found, by)
    return Verdict(path=str(target), ok=True, sha256=found, against=by, problem="")


def _copy(source: Path, copy: Path, tell: Callable[[int], None]) -> str:
    digest, done = hashlib.sha256(), 0
    with source.open("rb") as incoming, copy.open("wb") as out:
        while block := incoming.read(_CHUNK):
            digest.update(block)
            out.write(block)
            done += len(block)
            tell(done)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def remove(path: Path, directory: Path) -> int:
    """The file and what is left of pulls of it; the bytes that this frees. Raises StoreError and those of files."""
    if path.parent != directory:
        raise StoreError(f"{path} is not in {directory}: edgectl removes nothing elsewhere")
    doomed = [path, partial.part_path(path), partial.record_path(path)]
    there = [file for file in doomed if file.is_file()]
    if not there:
        raise StoreError(f"{path.name}: not in {directory}")
    files.prepare(directory)
    with files.only_one(path):
        freed = sum(file.stat().st_size for file in there)
        for file in there:
            file.unlink()
        checked.forget(path)
    return freed
