"""One command on all hosts of an inventory, through Ansible as a process of its own: its connections, its `become`, its
ansible.cfg. What comes is told host by host; nothing waits longer than it was given.

Ansible's `raw` is used: no module is copied, so that the box needs nothing but a shell. A callback plugin of ours
writes a line a host on a pipe. Ansible has no terminal here: who asks for a password gets none, and fails at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

PLUGINS: Final = Path(__file__).parent / "callback"
MISSING: Final = "Ansible is missing: `pip install 'edged[fleet]'`, or your distribution's ansible-core"
LINE_MAX: Final = 8 * 1024 * 1024
"""The plugin passes on a quarter of a million characters three times over, at most six bytes each."""
CONNECT_S: Final = 10
ENDS_S: Final = 2.0
LOOK: Final = (
    "{{ edged_edgectl | default('/opt/edged/current/venv/bin/edgectl') | quote }} "
    "--endpoint {{ edged_endpoint | default('ipc:///run/edged/request.sock') | quote }} "
    "--timeout SECONDS top --once --json"
)


class NoAnsible(Exception):  # noqa: N818 - says what is the matter
    """There is none, or it did not get as far as the hosts: the words say why."""


class Order(Struct, frozen=True, kw_only=True):
    """`seconds`: for everything. `limit`: a pattern of hosts and groups."""

    inventories: tuple[str, ...]
    limit: str
    forks: int
    seconds: float


def program() -> str:
    """Beside this interpreter, else in PATH. Raises NoAnsible."""
    beside = Path(sys.executable).with_name("ansible")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("ansible")
    if found is None:
        raise NoAnsible(MISSING)
    return found


def command(order: Order) -> list[str]:
    inner = max(1, round(order.seconds * 0.6))
    return [
        program(),
        order.limit,
        *(word for inventory in order.inventories for word in ("-i", inventory)),
        *("-m", "ansible.builtin.raw", "-a", LOOK.replace("SECONDS", str(min(inner, 10)))),
        *("-f", str(order.forks), "-T", str(min(CONNECT_S, max(1, round(order.seconds * 0.8))))),
        *("--task-timeout", str(max(1, round(order.seconds)))),
        *("-e", "ansible_ssh_use_tty=false"),
    ]


def environment(fd: int) -> dict[str, str]:
    return {
        **os.environ,
        "EDGED_FLEET_FD": str(fd),
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
        "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS),
        "ANSIBLE_STDOUT_CALLBACK": "edged_lines",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_SSH_RETRIES": "0",
        "SSH_ASKPASS_REQUIRE": "never",
    }


def told(order: Order) -> Iterator[dict[str, Any]]:
    """The objects of the plugin, as they come; ends when Ansible does, or when the time is over. Raises NoAnsible when
    not even the hosts were told.
    """
    read, write = os.pipe()
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command(order),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment(write),
                pass_fds=(write,),
                start_new_session=True,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        some = False
        try:
            for said in objects(read, time.monotonic() + order.seconds):
                some = some or said.get("hosts") != []
                yield said
        finally:
            os.close(read)
            end(process)
        if not some:
            raise NoAnsible(complaint(errors.fileno(), order))


def objects(fd: int, until: float) -> Iterator[dict[str, Any]]:
    """JSON lines up to the end of the pipe, or of the time. One that is none, or too long, is left out."""
    buffer = bytearray()
    while (left := until - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            return
        chunk = os.read(fd, 65_536)
        if not chunk:
            return
        buffer += chunk
        *lines, rest = buffer.split(b"\n")
        buffer = rest if len(rest) <= LINE_MAX else bytearray()
        for text in lines:
            with contextlib.suppress(ValueError, RecursionError):
                said = json.loads(text)
                if isinstance(said, dict):
                    yield said


def end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started, whatever session that is in by now; but for the shared connections that ssh keeps."""
    started = below(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_S)
    for pid in (*started, *below(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def below(pid: int) -> list[int]:
    """Children and theirs, as far as the kernel tells."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [one for child in map(int, children) for one in (child, *below(child))]


def complaint(errors: int, order: Order) -> str:
    """What Ansible said before it ended."""
    size = os.fstat(errors).st_size
    said = os.pread(errors, 65_536, max(0, size - 65_536)).decode(errors="replace")
    lines = [text.strip() for text in said.splitlines() if text.strip()]
    wrong = [text for text in lines if "ERROR" in text[:8] or "parse" in text]
    if wrong:
        return f"Ansible: {' '.join(wrong[-3:])}"
    if any("supplied host pattern" in text or "o hosts matched" in text for text in lines):
        where = ", ".join(order.inventories)
        return f"no host `{order.limit}` in {where}: --limit names a group or hosts, `all` is all"
    return f"Ansible: {lines[-1] if lines else 'it ended without a word'}"


def complete(hosts: Sequence[object]) -> list[str]:
    return [host for host in hosts if isinstance(host, str)]
