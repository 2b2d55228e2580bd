"""Headers out of Debian's packages, for a release and an architecture other than this machine's. Nothing is installed:
apt works in a directory of its own, against the archive that this machine uses (or `EDGED_MIRROR`), and checks
signatures as always.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from wheelhouse.steps import StepError, cache, key, new_directory, run

ARCH: Final = {"aarch64": "arm64", "x86_64": "amd64"}
SUITE_OF: Final = {"3.11": "bookworm", "3.13": "trixie"}
"""Python → the Debian release whose own it is."""
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"


def headers(arch: str, version: str) -> Path:
    """A root directory with usr/include of CPython `version` and of libsystemd."""
    packages = (f"libpython{version}-dev", "libsystemd-dev")
    target = cache() / f"headers-{arch}-{version}-{key(*packages)}"
    if not target.exists():
        with new_directory(target) as half:
            _unpack(ARCH[arch], SUITE_OF[version], packages, half)
    return target


def mirror() -> str:
    """The archive this machine uses. Raises StepError."""
    if given := os.environ.get("EDGED_MIRROR"):
        return given
    if shutil.which("apt-get") is None or not os.path.exists(KEYRING):
        raise StepError("the headers come out of Debian's packages: this needs apt-get and debian-archive-keyring")
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    for line in lines:
        uri, _, release = line.partition(" ")
        if release in SUITE_OF.values():
            return uri
    raise StepError("apt here knows no archive of Debian: set EDGED_MIRROR to the address of one")


def _unpack(arch: str, suite: str, packages: tuple[str, ...], target: Path) -> None:
    root = target / ".apt"
    for name in ("lists/partial", "archives/partial", "etc/apt", "debs"):
        (root / name).mkdir(parents=True)
    (root / "status").touch()
    (root / "etc/apt/sources.list").write_text(f"deb [arch={arch} signed-by={KEYRING}] {mirror()} {suite} main\n")
    options = {
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "APT::Sandbox::User": "",
        "Dir::State": root,
        "Dir::State::lists": root / "lists",
        "Dir::State::status": root / "status",
        "Dir::Cache": root,
        "Dir::Etc::sourcelist": root / "etc/apt/sources.list",
        "Dir::Etc::sourceparts": "-",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    run(f"Debian {suite}'s list of packages for {arch}", [*apt, "update"])
    # `download` writes into the working directory
    fetch = ["env", "-C", root / "debs", *apt, "download", *packages]
    run(f"headers: {', '.join(packages)}", fetch)
    for package in sorted((root / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, target], check=True)
    shutil.rmtree(root)
