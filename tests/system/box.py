"""A box: Debian with systemd as PID 1 in a container, without a network. As root, with systemd-nspawn and debootstrap.

The image of a Debian release is made once (1–2 minutes, some 300 MB) and kept in `$EDGED_BOXES`, else
`~/.cache/edged-boxes`; every box is an overlay on it that leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
BOXES = Path(os.environ.get("EDGED_BOXES") or Path.home() / ".cache/edged-boxes")
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,libgomp1,libsystemd0"
MIRROR = os.environ.get("EDGED_MIRROR", "")
"""Empty: debootstrap's own."""
BOOT_S = 60.0
ENDPOINT = ("--endpoint", "ipc:///run/edged/request.sock")
EDGED = "/opt/edged/current/venv/bin"


def impossible() -> str:
    """Why there can be no box here, or ""."""
    if os.geteuid() != 0:
        return "boxes need root"
    for tool, package in (("systemd-nspawn", "systemd-container"), ("debootstrap", "debootstrap")):
        if shutil.which(tool) is None:
            return f"{tool} is missing: apt-get install {package}"
    with tempfile.TemporaryDirectory() as scratch:
        command = (
            f"mount -t tmpfs t {scratch} && cd {scratch} && mkdir a b c d && mount -t overlay -o {_layers('.')} o d"
        )
        tried = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no overlay mounts here: {tried.stderr.strip()}"


def _layers(at: str) -> str:
    return f"lowerdir={at}/a,upperdir={at}/b,workdir={at}/c"


def image(suite: str, more: tuple[str, ...] = ()) -> Path:
    """Made when it is not there; renamed last. `more`: packages beside the usual ones."""
    target = BOXES / "-".join((suite, *more))
    if target.exists():
        return target
    BOXES.mkdir(parents=True, exist_ok=True)
    half = BOXES / f".{target.name}.{os.getpid()}"
    packages = ",".join((PACKAGES, *more))
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", suite, str(half), *filter(None, [MIRROR])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        half.rename(target)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return target


def end(process: subprocess.Popen[str]) -> None:
    """One that runs inside: what was started here only waits for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def remove(directory: Path) -> None:
    """A box that has ended."""
    for _ in range(50):  # a moment after the end something may still hold it
        if subprocess.run(["umount", directory / "root"], capture_output=True, check=False).returncode == 0:
            break
        time.sleep(0.1)
    else:
        subprocess.run(["umount", "-l", directory / "root"], capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def sweep() -> None:
    """What test runs left that were killed."""
    for directory in BOXES.glob("box-*"):
        if not Path(f"/proc/{directory.name.split('-')[1]}").exists():
            remove(directory)


class Box:
    """Running until it is closed. `run` is as root inside, unless a user is named."""

    network: tuple[str, ...] = ("--private-network",)
    packages: tuple[str, ...] = ()

    def __init__(self, suite: str, *options: str) -> None:
        self.suite = suite
        lower = image(suite, self.packages)
        sweep()
        self.directory = Path(tempfile.mkdtemp(prefix=f"box-{os.getpid()}-", dir=BOXES))
        for name in ("upper", "work", "root"):
            (self.directory / name).mkdir()
        self.root = self.directory / "root"
        layers = f"lowerdir={lower},upperdir={self.directory}/upper,workdir={self.directory}/work"
        subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", self.root], check=True)
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    def boot(self) -> Box:
        command = [
            "setpriv",
            "--pdeathsig",
            "TERM",
            "systemd-nspawn",
            "-D",
            str(self.root),
            "--register=no",
            "--keep-unit",
            *self.network,
        ]
        with (self.directory / "console").open("ab") as console:
            self.process = subprocess.Popen(
                [*command, *self.options, "-b", "--console=pipe"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self.until(lambda: self._init() and self.state() in ("running", "degraded"), "a system that runs", BOOT_S)
        return self

    def _init(self) -> int | None:
        """Pid of the box's PID 1."""
        assert self.process is not None
        said = (self.directory / "console").read_text(errors="replace")
        assert self.process.poll() is None, said[-2000:]
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def _enter(self, user: str | None) -> list[str]:
        enter = ["nsenter", "-t", str(self._init()), "-m", "-u", "-i", "-n", "-p"]
        return enter + (["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else [])

    def popen(self, *command: str, user: str | None = None) -> subprocess.Popen[str]:
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/",
            "LANG": "C.UTF-8",
        }
        return subprocess.Popen(
            [*self._enter(user), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def run(
        self, *command: str, user: str | None = None, check: bool = True, seconds: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        process = self.popen(*command, user=user)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end(process)
            raise
        done = subprocess.CompletedProcess(command, process.returncode, out, err)
        assert not check or done.returncode == 0, (
            f"{shlex.join(command)}: {done.returncode}\n{out[-3000:]}{err[-3000:]}"
        )
        return done

    def signal(self, name: str, pid: int) -> None:
        """`pid` as the box counts."""
        self.run("sh", "-c", f"kill -{name} {pid}")

    def python(self, code: str, *arguments: str, user: str | None = None) -> subprocess.Popen[str]:
        """With edged's own interpreter."""
        return self.popen(f"{EDGED}/python", "-c", code, *arguments, user=user)

    def state(self) -> str:
        return self.run("systemctl", "is-system-running", check=False).stdout.strip()

    def show(self, *names: str, unit: str = "edged.service") -> dict[str, str]:
        out = self.run("systemctl", "show", unit, *(f"-p{name}" for name in names)).stdout
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def main_pid(self) -> int:
        """As the box counts."""
        return int(self.show("MainPID")["MainPID"])

    def restarts(self) -> int:
        return int(self.show("NRestarts")["NRestarts"])

    def status(self) -> dict[str, Any]:
        done = self.run("edgectl", *ENDPOINT, "--json", "status", check=False)
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found

    def ready(self, seconds: float = 120.0) -> dict[str, Any]:
        found: dict[str, Any] = self.until(lambda: (s := self.status()).get("ready") and s, "ready", seconds)
        return found

    def until(self, check: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        end = time.monotonic() + seconds
        while True:
            found = check()
            if found:
                return found
            assert time.monotonic() < end, f"waited in vain: {what}"
            time.sleep(0.1)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Through the running box, whose /run is its own."""
        script = f"mkdir -p {shlex.quote(os.path.dirname(path))} && printf %s {shlex.quote(text)} >{shlex.quote(path)}"
        self.run("sh", "-c", f"{script} && chmod {mode:o} {shlex.quote(path)}")

    def journal(self, *arguments: str) -> list[dict[str, Any]]:
        self.run("journalctl", "--sync")
        out = self.run("journalctl", "-u", "edged", "-o", "json", "--no-pager", *arguments).stdout
        return [json.loads(line) for line in out.splitlines()]

    def halt(self) -> None:
        process = self.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)  # an orderly end
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        (self.directory / "console").unlink(missing_ok=True)

    def close(self) -> None:
        self.halt()
        remove(self.directory)


@contextlib.contextmanager
def box(suite: str, *options: str) -> Iterator[Box]:
    """With the sources in /root/edged; not booted yet."""
    made = Box(suite, *options)
    try:
        sources = made.root / "root/edged"
        sources.mkdir()
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=REPOSITORY, capture_output=True, check=True
        ).stdout
        names = [name for name in listed.decode().split("\0") if name and (REPOSITORY / name).is_file()]
        for name in names:
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, sources / name)
        yield made
    finally:
        made.close()
