"""`make wheelhouse ARCH=…`: all that a box of that architecture needs, in dist/edged-VERSION-ARCH."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from wheelhouse import engine, layout, packages, sbom, systemd, zig
from wheelhouse.steps import ARCHES, PYTHONS, REPOSITORY, StepError, clock, new_directory, say

SHARE = ("deploy", "docs", "config.yaml", "CHANGELOG.md", "LICENSE", "README.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="wheelhouse", description=__doc__)
    choices = [*ARCHES, "lock"]
    parser.add_argument(
        "what", choices=choices, help="the boxes' architecture; lock: renew scripts/wheelhouse/packages.txt"
    )
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="where it goes (default: dist)")
    wanted = parser.parse_args()
    begun = time.monotonic()
    try:
        if wanted.what == "lock":
            packages.lock()
            return 0
        target = make(wanted.what, wanted.out)
    except (StepError, layout.IncompleteError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"wheelhouse: {error}")
    except KeyboardInterrupt:
        return 130
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    say(f"{target}: {size / 1e6:.0f} MB, {clock(time.monotonic() - begun)}")
    return 0


def version() -> str:
    return engine.between((REPOSITORY / "edged/__init__.py").read_text(), '__version__ = "', '"')


def make(arch: str, out: Path) -> Path:
    """Raises StepError, IncompleteError."""
    compiled = engine.wheel(arch)
    wheels = [compiled, *systemd.wheels(arch), *packages.wheels(arch)]
    target = out / f"edged-{version()}-{arch}"
    with new_directory(target) as half:
        (half / "wheels").mkdir()
        for path in wheels:
            shutil.copy2(path, half / "wheels")
        packages.own(half / "wheels")
        _describe(half, arch, engine.origin(compiled))
    return target


def _describe(directory: Path, arch: str, origin: dict[str, str]) -> None:
    wheels = sorted((directory / "wheels").iterdir())
    layout.check([path.name for path in wheels], PYTHONS, arch)
    hashes = {path.name: layout.digest(path) for path in wheels}
    made = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (directory / "requirements.txt").write_text(layout.requirements(hashes))
    _json(directory / "sbom.json", sbom.bill(wheels, arch=arch, engine=origin, made=made))
    for name in SHARE:
        source, target = REPOSITORY / name, directory / "share" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    files = {f"wheels/{path.name}": (hashes[path.name], path.stat().st_size) for path in wheels}
    whole = layout.manifest(
        version=version(), arch=arch, pythons=PYTHONS, glibc=zig.GLIBC, engine=origin, files=files, made=made
    )
    _json(directory / "manifest.json", whole)
    every = (path for path in directory.rglob("*") if path.is_file())
    sums = layout.sums({str(path.relative_to(directory)): layout.digest(path) for path in every})
    (directory / "SHA256SUMS").write_text(sums)


def _json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
