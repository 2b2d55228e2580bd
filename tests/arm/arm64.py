"""An emulated 64-bit ARM Debian: qemu-user in a chroot. For function; no figure of it is a speed.

The image is made once (some ten minutes, 350 MB) and kept where tests/system/box.py keeps its own; each use is an
overlay on it. QEMU_CPU chooses the processor, `-p` the page size. There is no systemd and no network in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BOXES = Path(os.environ.get("EDGED_BOXES") or Path.home() / ".cache/edged-boxes")
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,libgomp1,libsystemd0"
"""What Raspberry Pi OS has as it comes, and edged needs."""
MIRROR = os.environ.get("EDGED_MIRROR", "")
BINFMT = Path("/proc/sys/fs/binfmt_misc")
QEMU = "/usr/bin/qemu-aarch64-static"


def impossible() -> str:
    """Why there can be no emulated box here, or ""."""
    if os.uname().machine == "aarch64":
        return "this machine is 64-bit ARM itself: nothing is emulated"
    if os.geteuid() != 0:
        return "an emulated box needs root"
    for tool, package in ((QEMU, "qemu-user-static"), ("update-binfmts", "binfmt-support"), ("debootstrap",) * 2):
        if shutil.which(tool) is None:
            return f"{tool} is missing: apt-get install {package}"
    return _binfmt()


def _binfmt() -> str:
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], capture_output=True, check=False)
    if not (BINFMT / "qemu-aarch64").exists():
        subprocess.run(["update-binfmts", "--enable", "qemu-aarch64"], capture_output=True, check=False)
    return "" if (BINFMT / "qemu-aarch64").exists() else "binfmt_misc does not start programs of this kind here"


def image() -> Path:
    """Made when it is not there; renamed last."""
    target = BOXES / f"arm64-{SUITE}"
    if target.exists():
        return target
    BOXES.mkdir(parents=True, exist_ok=True)
    half = BOXES / f".arm64-{SUITE}.{os.getpid()}"
    command = ["debootstrap", "--variant=minbase", "--arch=arm64", f"--include={PACKAGES}", SUITE, str(half)]
    try:
        done = subprocess.run(
            [*command, *filter(None, [MIRROR])], capture_output=True, text=True, check=False, timeout=2400
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        half.rename(target)
    finally:
        subprocess.run(["umount", half / "proc"], capture_output=True, check=False)  # debootstrap's, when it failed
        shutil.rmtree(half, ignore_errors=True)
    return target


class Arm:
    """A root directory that programs are run in."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(
        self, *command: str, cpu: str = "cortex-a72", seconds: float = 600.0, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        whole = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "QEMU_CPU": cpu,
            **env,
        }
        # no network, its own processes: what is started inside ends with it
        enter = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "sh", "-c"]
        script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        done = subprocess.run(
            [*enter, script, str(self.root), *command],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
            env=whole,
            stdin=subprocess.DEVNULL,
        )
        said = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{said}"
        return done

    def used(self) -> int:
        """Bytes that were added to the image."""
        out = subprocess.run(["du", "-sb", self.root.parent / "upper"], capture_output=True, text=True, check=True)
        return int(out.stdout.split()[0])


@contextlib.contextmanager
def arm() -> Iterator[Arm]:
    """A fresh one; it leaves nothing behind."""
    lower = image()
    directory = Path(tempfile.mkdtemp(prefix=f"arm-{os.getpid()}-", dir=BOXES))
    for name in ("upper", "work", "root"):
        (directory / name).mkdir()
    layers = f"lowerdir={lower},upperdir={directory}/upper,workdir={directory}/work"
    root = directory / "root"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", root], check=True)
    try:
        for name in ("dev/null", "dev/urandom", "dev/zero"):
            (root / name).touch()
            subprocess.run(["mount", "--bind", f"/{name}", root / name], check=True)
        (root / "dev/shm").mkdir(exist_ok=True)
        yield Arm(root)
    finally:
        for name in ("dev/null", "dev/urandom", "dev/zero", ""):
            for _ in range(50):
                gone = subprocess.run(["umount", root / name], capture_output=True, check=False).returncode
                if gone in (0, 32):
                    break
                time.sleep(0.1)
        shutil.rmtree(directory, ignore_errors=True)
