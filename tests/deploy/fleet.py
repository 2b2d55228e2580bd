"""Boxes with addresses of their own on a bridge in a network namespace, and Ansible in that namespace.

The boxes have no way out and nothing is looked up for them: what they need comes from here, over SSH.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import box as system
import yaml
from box import REPOSITORY, Box

from edged.places import EMBEDDED_MODEL, models_dir

ANSIBLE = REPOSITORY / "deploy/ansible"
NAMESPACE = f"edged-{os.getpid()}"
"""Of the controller; those of the boxes begin with it."""
NETWORK = "10.99.0"
TOOLS = (("ip", "iproute2"), ("ssh", "openssh-client"), ("ssh-keygen", "openssh-client"))
PLAYBOOK_S = 600.0
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


def ansible(name: str = "ansible-playbook") -> str | None:
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


def impossible() -> str:
    """Why there can be no fleet here, or ""."""
    why = system.impossible()
    if why:
        return why
    for tool, package in TOOLS:
        if shutil.which(tool) is None:
            return f"{tool} is missing: apt-get install {package}"
    if ansible() is None:
        return "ansible-playbook is missing: make setup"
    if not (models_dir() / EMBEDDED_MODEL).exists():
        return "the embedded model is missing: make model"
    tried = subprocess.run(["ip", "netns", "add", f"{NAMESPACE}-try"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", f"{NAMESPACE}-try"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.strip()}"


def ip(*arguments: str, inside: str | None = None, check: bool = True) -> None:
    subprocess.run(["ip", *(["-n", inside] if inside else []), *arguments], check=check, capture_output=not check)


def sweep() -> None:
    """What test runs left that were killed."""
    for left in Path("/run/netns").glob("edged-[0-9]*"):
        if not Path(f"/proc/{left.name.split('-')[1]}").exists():
            ip("netns", "del", left.name, check=False)


class Pi(Box):
    """A box of the fleet; `name` is its name in the inventory too."""

    packages = ("openssh-server", "sudo")

    def __init__(self, suite: str, number: int, key: str) -> None:
        super().__init__(suite)
        self.name = f"pi{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self.namespace = f"{NAMESPACE}-{self.name}"
        self.cable = f"to-{self.name}"
        self.network = (f"--network-namespace-path=/run/netns/{self.namespace}",)
        ssh = self.root / "root/.ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        (ssh / "authorized_keys").write_text(key)
        ip("netns", "add", self.namespace)
        end = {"type": "veth", "peer": "name"}
        ip("link", "add", self.cable, *(w for pair in end.items() for w in pair), "eth0", inside=NAMESPACE)
        ip("link", "set", "eth0", "netns", self.namespace, inside=NAMESPACE)
        ip("link", "set", self.cable, "master", "br0", "up", inside=NAMESPACE)
        ip("address", "add", f"{self.address}/24", "dev", "eth0", inside=self.namespace)
        for device in ("lo", "eth0"):
            ip("link", "set", device, "up", inside=self.namespace)

    def close(self) -> None:
        super().close()
        ip("netns", "del", self.namespace, check=False)

    def plug(self, *, there: bool) -> None:
        ip("link", "set", self.cable, "up" if there else "down", inside=NAMESPACE)

    def release(self) -> str:
        return self.run("readlink", "/opt/edged/current", check=False).stdout.strip().removeprefix("releases/")

    def good(self) -> str:
        return self.run("cat", "/opt/edged/deployments/good/release", check=False).stdout.strip()

    def untouched(self) -> tuple[Any, ...]:
        """The same before and after: nobody touched it."""
        shown = self.show("MainPID", "NRestarts", "ActiveEnterTimestampMonotonic")
        return self.release(), self.good(), shown, self.run("sha256sum", "/etc/edged/config.yaml").stdout


class Run:
    """What a playbook said and did."""

    def __init__(self, status: int, said: str) -> None:
        self.status, self.said = status, said
        self.recap = {name: tuple(map(int, rest)) for name, *rest in RECAP.findall(said)}

    def changed(self) -> dict[str, int]:
        return {name: counts[1] for name, counts in self.recap.items()}

    def unreachable(self) -> list[str]:
        return [name for name, counts in self.recap.items() if counts[2]]

    def failed(self) -> list[str]:
        return [name for name, counts in self.recap.items() if counts[3]]


class Fleet:
    """Running until it is closed. `variables` are those of the inventory; `write` puts them in force."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.boxes: list[Pi] = []
        self.variables: dict[str, Any] = {}
        sweep()
        ip("netns", "add", NAMESPACE)
        ip("link", "add", "br0", "type", "bridge", inside=NAMESPACE)
        ip("address", "add", f"{NETWORK}.1/24", "dev", "br0", inside=NAMESPACE)
        for device in ("lo", "br0"):
            ip("link", "set", device, "up", inside=NAMESPACE)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)

    def add(self, suite: str) -> None:
        key = (self.directory / "key.pub").read_text()
        self.boxes.append(Pi(suite, len(self.boxes) + 1, key))

    def boot(self) -> None:
        for one in self.boxes:
            one.boot()

    def close(self) -> None:
        for one in self.boxes:
            one.close()
        ip("netns", "del", NAMESPACE, check=False)

    def write(self, **variables: Any) -> Path:
        self.variables |= variables
        ssh = f"-o UserKnownHostsFile={self.directory}/known_hosts -o StrictHostKeyChecking=accept-new"
        reach = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": ssh,
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        hosts = {one.name: {"ansible_host": one.address} for one in self.boxes}
        path = self.directory / "inventory.yml"
        path.write_text(yaml.safe_dump({"edged": {"hosts": hosts, "vars": reach | self.variables}}))
        return path

    def begin(self, playbook: str, *words: str, at: Path = REPOSITORY) -> subprocess.Popen[str]:
        """From the project's directory unless told otherwise."""
        inventory = self.write()
        environment = os.environ | {
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.directory / "cp"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        }
        command = ["ip", "netns", "exec", NAMESPACE, str(ansible()), "-i", str(inventory), str(ANSIBLE / playbook)]
        self.log = self.directory / f"{playbook}.{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            return subprocess.Popen(
                [*command, *words],
                cwd=at,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def end(self, process: subprocess.Popen[str]) -> Run:
        try:
            status = process.wait(PLAYBOOK_S)
        except subprocess.TimeoutExpired:
            kill(process)
            raise AssertionError(self.log.read_text()[-4000:]) from None
        return Run(status, self.log.read_text())

    def run(self, playbook: str, *words: str, at: Path = REPOSITORY, status: int | None = 0) -> Run:
        """`status` None: whatever it is."""
        done = self.end(self.begin(playbook, *words, at=at))
        assert status is None or done.status == status, done.said[-6000:]
        return done

    def until(self, process: subprocess.Popen[str], check: Callable[[], Any], what: str, seconds: float = 240) -> None:
        """Something that the playbook does."""
        end = time.monotonic() + seconds
        while not check():
            assert process.poll() is None, f"ended before: {what}\n{self.log.read_text()[-4000:]}"
            assert time.monotonic() < end, f"waited in vain: {what}\n{self.log.read_text()[-4000:]}"
            time.sleep(0.05)


def kill(process: subprocess.Popen[str]) -> None:
    """With everything that it started here, as a controller that loses its power."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def fleet(directory: Path, *suites: str) -> Iterator[Fleet]:
    made = Fleet(directory)
    try:
        for suite in suites:
            made.add(suite)
        made.boot()
        yield made
    finally:
        made.close()
