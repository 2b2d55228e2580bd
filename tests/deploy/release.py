"""Releases of edged as `make wheelhouse` lays them, made of the sources as they are, under any version number."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import platform
import shutil
import subprocess
from pathlib import Path

from box import REPOSITORY
from wheels import PYTHON_OF, kept, pip

SHARE = ("deploy", "docs", "config.yaml", "CHANGELOG.md", "LICENSE", "README.md")
NOT_STARTING = ("edged/__main__.py", "    wakes = Wakes()\n", '    raise SystemExit("a bad release")\n')


def sources(directory: Path) -> Path:
    """A copy of what git knows and of what is new."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (REPOSITORY / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, directory / name)
    return directory


def release(directory: Path, version: str, suites: set[str], *changes: tuple[str, str, str]) -> Path:
    """`changes`: file, what stands there, what shall."""
    tree = sources(directory / f"sources-{version}")
    for name, old, new in (*changes, ("edged/__init__.py", '__version__ = "', f'__version__ = "{version}" #')):
        text = (tree / name).read_text()
        assert old in text
        (tree / name).write_text(text.replace(old, new))
    target = directory / f"edged-{version}-{platform.machine()}"
    (target / "wheels").mkdir(parents=True)
    for suite in suites:
        for wheel in kept(suite).glob("*.whl"):
            if not wheel.name.startswith("edged-"):
                shutil.copy2(wheel, target / "wheels")
    pip("wheel", "--no-deps", "-w", str(target / "wheels"), str(tree))
    for name in SHARE:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, target / "share" / name)
        else:
            (target / "share").mkdir(exist_ok=True)
            shutil.copy2(tree / name, target / "share")
    _describe(target, version, suites)
    shutil.rmtree(tree)
    return target


def _describe(target: Path, version: str, suites: set[str]) -> None:
    files, packages = {}, {}
    for wheel in sorted((target / "wheels").iterdir()):
        data = wheel.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        files[f"wheels/{wheel.name}"] = {"sha256": sha256, "bytes": len(data)}
        name, number = wheel.name.split("-")[:2]
        packages.setdefault(f"{name}=={number}", []).append(sha256)
    lines = [" ".join([one, *(f"--hash=sha256:{s}" for s in sums)]) for one, sums in packages.items()]
    (target / "requirements.txt").write_text("\n".join(lines) + "\n")
    manifest = {
        "format": 1,
        "name": "edged",
        "version": version,
        "arch": platform.machine(),
        "python": sorted(PYTHON_OF[suite] for suite in suites),
        "glibc": "2.36",
        "made": dt.datetime.now(dt.UTC).isoformat(),
        "files": files,
    }
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1))
    every = [path for path in sorted(target.rglob("*")) if path.is_file()]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(target)}" for path in every]
    (target / "SHA256SUMS").write_text("\n".join(sums) + "\n")
