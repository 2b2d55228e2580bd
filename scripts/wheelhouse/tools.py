"""The build tools, pinned by hash (tools.txt), in an environment of their own; the sources they build (sources.txt)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from wheelhouse.steps import HERE, StepError, cache, key, new_directory, run

PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


def python() -> Path:
    """The interpreter that has them; made when it is not there."""
    pins = (HERE / "tools.txt").read_text()
    target = cache() / f"tools-{key(pins, sys.version, sys.base_prefix)}"
    interpreter = target / "bin/python"
    if not (target / "complete").exists():
        run("an environment for the build tools", [sys.executable, "-m", "venv", "--clear", target])
        command = [interpreter, *PIP, "install", "--require-hashes", "--only-binary=:all:", "-r", HERE / "tools.txt"]
        run("the build tools: zig's clang, cmake, ninja (some 160 MB, once)", command)
        (target / "complete").touch()
    return interpreter


def pins(name: str) -> dict[str, tuple[str, str]]:
    """Package → (version, the whole line) of a file of pins."""
    lines = (HERE / name).read_text().splitlines()
    split = [(line.partition("==")[0], line) for line in lines if line and not line.startswith("#")]
    return {name: (line.partition("==")[2].split()[0], line) for name, line in split}


def source(name: str) -> Path:
    """A package's sdist, by the hash in sources.txt."""
    version, line = pins("sources.txt")[name]
    target = cache() / f"sources/{name}-{key(line)}"
    if not target.exists():
        with new_directory(target) as half:
            (half / "pin.txt").write_text(line + "\n")
            command = [python(), *PIP, "download", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]
            run(
                f"the source of {name} {version}",
                [*command, "--require-hashes", "-r", half / "pin.txt", "-d", half],
                env={"PATH": path()},
            )
    found = list(target.glob("*.tar.gz"))
    if len(found) != 1:
        raise StepError(f"no source of {name} in {target}: remove that directory and try again")
    return found[0]


def unpacked(name: str, target: Path) -> Path:
    """The source tree. tar, since Debian 12's own tarfile has no filters yet."""
    target.mkdir(parents=True)
    run("unpacking it", ["tar", "-xzf", source(name), "-C", target])
    return next(target.iterdir())


def path() -> str:
    """$PATH with the tools first."""
    return f"{python().parent}:{os.environ.get('PATH', '')}"
