"""A directory of wheels for a box without a network, as `make install WHEELS=DIR` takes it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from box import BOXES, REPOSITORY, Box, image

from edged.places import EMBEDDED_MODEL, models_dir

PYTHON_OF = {"bookworm": "3.11", "trixie": "3.13"}
BUILD = "gcc libc6-dev pkg-config libsystemd-dev python3-dev python3-setuptools python3-wheel python3-pip"


def install(made: Box) -> None:
    """As an administrator does without a network; the first time, or an upgrade."""
    model = made.root / "root" / EMBEDDED_MODEL
    if not model.exists():
        shutil.copy2(models_dir() / EMBEDDED_MODEL, model)
    command = f"cd /root/edged && WHEELS=/root/wheels MODEL=/root/{EMBEDDED_MODEL} bash scripts/install.sh"
    try:
        said = made.run("sh", "-c", command, seconds=150).stdout
    except subprocess.TimeoutExpired:
        looks = (("systemctl", "status", "edged"), ("journalctl", "-n", "40", "--no-pager"), ("ls", "-la", "/tmp"))
        said = "\n".join(made.run(*look, check=False).stdout for look in looks)
    assert "it answers" in said, said


def wheelhouse(made: Box) -> None:
    """/root/wheels of the box: what edged needs, and edged as it is now."""
    directory = made.root / "root/wheels"
    shutil.copytree(kept(made.suite), directory)
    for old in directory.glob("edged-*.whl"):
        old.unlink()
    pip("wheel", "--no-deps", "-w", str(directory), str(REPOSITORY))


def kept(suite: str) -> Path:
    """What edged needs there, from a cache by what pyproject.toml says of it. Made when not there; renamed last."""
    key = hashlib.sha256("\n".join([*requirements(), sys.version]).encode()).hexdigest()[:12]
    found = BOXES / f"wheels-{suite}-{key}"
    if not found.exists():
        half = BOXES / f".{found.name}"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        (_same_python if f"{sys.version_info[0]}.{sys.version_info[1]}" == PYTHON_OF[suite] else _other_python)(
            suite, half
        )
        half.rename(found)
    return found


def _same_python(suite: str, directory: Path) -> None:
    pip("wheel", "-w", str(directory), f"{REPOSITORY}[engine,service,metrics]")


def _other_python(suite: str, directory: Path) -> None:
    """Ready wheels of that Python, the engine's (suits any), and systemd-python built in that release."""
    version = PYTHON_OF[suite]
    pip("wheel", "--no-deps", "-w", str(directory), requirement("llama-cpp-python"))
    names = [one for one in requirements() if not one.startswith(("llama-cpp-python", "systemd-python"))]
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 27, 28)] + [
        "--platform=manylinux2014_x86_64"
    ]
    rest = ["--python-version", version, "--implementation", "cp", *platforms]
    pip("download", "--only-binary=:all:", *rest, "-d", str(directory), *names, "diskcache", "typing_extensions")
    pip(
        "download",
        "--no-deps",
        "--no-binary=:all:",
        "-d",
        str(directory),
        requirement("systemd-python"),
    )
    _build(suite, directory)


def _build(suite: str, directory: Path) -> None:
    root = BOXES / f".build-{suite}"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", image(suite), root], check=True)
    try:
        source = next(directory.glob("systemd*python*.tar.gz"))
        shutil.copy2(source, root / "root")
        resolv = root / "etc/resolv.conf"
        resolv.unlink(missing_ok=True)
        shutil.copy2("/etc/resolv.conf", resolv)
        build = f"pip wheel --no-index --no-deps --no-build-isolation -w /root/out /root/{source.name}"
        script = f"apt-get -qq update && apt-get -qq -y install --no-install-recommends {BUILD} && {build}"
        done = subprocess.run(
            ["chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        for wheel in (root / "root/out").iterdir():
            shutil.copy2(wheel, directory)
        source.unlink()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def requirements() -> list[str]:
    """Of an installed box, as pyproject.toml has them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(one for extra in ("engine", "service", "metrics") for one in extras[extra])]


def requirement(name: str) -> str:
    return next(one for one in requirements() if one.startswith(name))


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
