"""What lies in a wheelhouse, as text: requirements with hashes, the manifest, the sums. Files are only read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 1


class IncompleteError(Exception):
    """Something is missing, or there twice."""


class WheelName(NamedTuple):
    """`name` normalized (PEP 503); the tags as the file has them, several joined by dots."""

    name: str
    version: str
    pythons: str
    abis: str
    platforms: str


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_name(path: Path | str) -> WheelName:
    """Raises ValueError for what is no wheel's name."""
    parts = Path(path).name.removesuffix(".whl").split("-")
    if len(parts) not in (5, 6) or not str(path).endswith(".whl"):
        raise ValueError(f"{path} is not named like a wheel")
    return WheelName(normal(parts[0]), parts[1], *parts[-3:])


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def requirements(hashes: Mapping[str, str]) -> str:
    """`hashes`: file name → sha256. One line a package. Raises IncompleteError for two versions of one."""
    found: dict[str, tuple[str, list[str]]] = {}
    for file, sha256 in sorted(hashes.items()):
        one = wheel_name(file)
        version, all_of_it = found.setdefault(one.name, (one.version, []))
        if version != one.version:
            raise IncompleteError(f"{one.name} is there as {version} and {one.version}")
        all_of_it.append(sha256)
    lines = []
    for name, (version, all_of_it) in sorted(found.items()):
        options = " ".join(f"--hash=sha256:{one}" for one in sorted(set(all_of_it)))
        lines.append(f"{name}=={version} {options}\n")
    return "".join(lines)


def fits(one: WheelName, python: str, arch: str) -> bool:
    """Whether CPython `python` ("3.11") on Linux of that architecture takes it; glibc is not looked at."""
    minor = int(python.split(".")[1])
    if one.platforms != "any" and not any(tag.endswith(f"_{arch}") for tag in one.platforms.split(".")):
        return False
    for tag in one.pythons.split("."):
        if tag == "py3" or (tag == f"cp3{minor}" and one.abis == tag):
            return True
        stable = re.fullmatch(r"cp3(\d+)", tag)
        if stable and "abi3" in one.abis.split(".") and int(stable[1]) <= minor:
            return True
    return False


def check(files: Iterable[str], pythons: Iterable[str], arch: str) -> None:
    """Raises IncompleteError: a package has no file for one of the Pythons, or a file is for something else."""
    names = {file: wheel_name(file) for file in files}
    pythons = list(pythons)
    for name in sorted({one.name for one in names.values()}):
        for python in pythons:
            if not any(one.name == name and fits(one, python, arch) for one in names.values()):
                raise IncompleteError(f"{name} has no wheel for Python {python} on {arch}")
    strange = [file for file, one in names.items() if not any(fits(one, python, arch) for python in pythons)]
    if strange:
        raise IncompleteError(f"of no use on {arch}: {', '.join(sorted(strange))}")


def manifest(
    *,
    version: str,
    arch: str,
    pythons: Iterable[str],
    glibc: str,
    engine: Mapping[str, str],
    files: Mapping[str, tuple[str, int]],
    made: str,
) -> dict[str, Any]:
    """`files`: path inside → (sha256, bytes). `engine`: what it was built from."""
    return {
        "format": FORMAT,
        "name": "edged",
        "version": version,
        "arch": arch,
        "python": list(pythons),
        "glibc": glibc,
        **engine,
        "made": made,
        "files": {path: {"sha256": sha256, "bytes": size} for path, (sha256, size) in sorted(files.items())},
    }


def sums(hashes: Mapping[str, str]) -> str:
    """As sha256sum --check takes them."""
    return "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(hashes.items()))
