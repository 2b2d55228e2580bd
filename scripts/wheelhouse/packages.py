"""Everything else comes ready made, by name and hash (packages.txt): one list for both architectures and Pythons.

`python -m wheelhouse lock` writes the list anew, from what pyproject.toml asks for.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from wheelhouse import layout, tools
from wheelhouse.steps import ARCHES, HERE, PYTHONS, REPOSITORY, cache, key, new_directory, run, say

EXTRAS: Final = ("engine", "service", "metrics")
OF_THE_ENGINE: Final = ("diskcache>=5.6.1", "typing-extensions>=4.5.0")
"""What llama-cpp-python asks for beyond pyproject.toml; it is not resolved, since it is compiled here."""
LOCK: Final = HERE / "packages.txt"
HEAD: Final = "# Made by `make wheelhouse-lock`: what is installed on a box beside edged and what is compiled for it.\n"


def wheels(arch: str) -> list[Path]:
    """From the cache, or downloaded."""
    lock = LOCK.read_text()
    target = cache() / f"packages-{arch}-{key(arch, *PYTHONS, lock)}"
    if target.exists():
        say(f"the other packages for {arch} are here already")
    else:
        with new_directory(target) as half:
            for version in PYTHONS:
                title = f"the other packages for {arch} and Python {version}"
                _download(title, arch, version, half, ["--no-deps", "--require-hashes", "-r", str(LOCK)])
    return sorted(target.glob("*.whl"))


def lock() -> None:
    """Resolves anew and writes packages.txt."""
    with tempfile.TemporaryDirectory(prefix="edged-wheelhouse-") as scratch:
        directory, seen = Path(scratch), Path(scratch) / "constraints.txt"
        seen.touch()
        for arch in ARCHES:
            for version in PYTHONS:
                wanted = [*requirements(), *OF_THE_ENGINE]
                _download(f"looking for {arch}, Python {version}", arch, version, directory, ["-c", str(seen), *wanted])
                found = {one.name: one.version for one in map(layout.wheel_name, directory.glob("*.whl"))}
                seen.write_text("".join(f"{name}=={version}\n" for name, version in sorted(found.items())))
        text = HEAD + layout.requirements({path.name: layout.digest(path) for path in directory.glob("*.whl")})
    LOCK.write_text(text)
    say(f"{LOCK.relative_to(REPOSITORY)}: {text.count('==')} packages")


def requirements() -> list[str]:
    """Of an installed box, as pyproject.toml has them, less what is compiled."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]
    return [one for one in asked if bare(one) not in tools.pins("sources.txt")]


def bare(requirement: str) -> str:
    """`PyYAML>=6` → pyyaml."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return layout.normal(found[0]) if found else requirement


def _download(title: str, arch: str, version: str, target: Path, what: Iterable[str]) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_{arch}" for minor in range(36, 16, -1)]
    kind = ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    command = [tools.python(), *tools.PIP, "download", *kind, *platforms, f"--platform=manylinux2014_{arch}"]
    run(title, [*command, "-d", target, *what])


def own(out: Path) -> Path:
    """edged itself, built from a copy: the sources stay as they are."""
    with tempfile.TemporaryDirectory(prefix="edged-wheelhouse-") as scratch:
        source = Path(scratch) / "edged"
        source.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, source)
        shutil.copytree(REPOSITORY / "edged", source / "edged", ignore=shutil.ignore_patterns("__pycache__"))
        command = [tools.python(), *tools.PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
        run("edged itself", [*command, "-w", out, source])
    return next(out.glob("edged-*.whl"))
