"""The box that is looked at: its files below a root, and what only the kernel tells a process.

With another root than `/` (a card that is mounted, a tree of a test) everything is read below it, and what only this
machine could tell is None. Reads may hang: `edged.doctor.checkup` gives each check a thread and a deadline.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import socket
import struct
import threading
from functools import cached_property
from typing import Any, Final

import msgspec

from edged import client, places
from edged.config import Config
from edged.doctor import manager
from edged.system import smallfile

SYSTEM_RUNTIME: Final = "/run/edged"
SYSTEM_STATE: Final = "/var/lib/edged"
UNIT: Final = "/etc/systemd/system/edged.service"
ANSWER_S: Final = 1.5
"""For the daemon: it answers `status` at once, also while it loads."""

STOPPED: Final = "stopped: systemd listens, and whoever asks first starts it"
NOBODY: Final = -1
_UCRED: Final = struct.Struct("=iII")
_AUXV: Final = struct.Struct("@NN")


class Box:
    """`refused`: why the box's own configuration is not in force here; `config` are then the defaults."""

    def __init__(self, config: Config, root: str = "/", refused: str = "") -> None:
        self.root = root
        self.here = os.path.realpath(root) == "/"
        self.config = config if self.here else _elsewhere(config)
        self.refused = refused
        self._asking = threading.Lock()
        self._asked: dict[str, dict[str, Any] | str] = {}

    # ---- files -----------------------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """`/etc/x` and `etc/x` alike, below the root."""
        return os.path.join(self.root, name.lstrip("/"))

    def shown(self, path: str) -> str:
        """A path of ours as the box knows it."""
        return path if self.here else "/" + os.path.relpath(path, self.root)

    def text(self, name: str) -> str | None:
        """Stripped, NULs too (the device tree has them); None when it cannot be read."""
        found = smallfile.text(self.path(name))
        return None if found is None else found.strip("\0 \n")

    def number(self, name: str) -> int | None:
        return smallfile.number(self.path(name))

    def glob(self, pattern: str) -> list[str]:
        """Names as the box knows them, sorted."""
        found = glob.glob(os.path.join(glob.escape(self.root), pattern.lstrip("/")))
        return sorted("/" + os.path.relpath(path, self.root) for path in found)

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    # ---- what a process is told ------------------------------------------------------------------------------

    @property
    def machine(self) -> str:
        """`x86_64`, `aarch64`, …: of the kernel (since 6.1 in /proc)."""
        return os.uname().machine if self.here else self.text("proc/sys/kernel/arch") or ""

    def auxiliary(self, kind: int) -> int | None:
        """An entry of the auxiliary vector, getauxval(3): what the kernel says to processes, whatever cpuinfo shows."""
        if self.here:
            library = ctypes.CDLL(None)
            library.getauxval.restype, library.getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
            return int(library.getauxval(kind)) or None
        try:
            with open(self.path("proc/self/auxv"), "rb") as file:
                data = file.read(4096)
        except OSError:
            return None
        whole = len(data) - len(data) % _AUXV.size
        return dict(_AUXV.iter_unpack(data[:whole])).get(kind)

    # ---- the service -----------------------------------------------------------------------------------------

    @property
    def installed(self) -> bool:
        """As a service of the system: then its directories are the system's where the configuration names none."""
        return self.exists(UNIT)

    @property
    def runtime_dir(self) -> str:
        own = self.config.runtime_dir
        return SYSTEM_RUNTIME if own == places.default_runtime_dir() and self._system(own) else own

    @property
    def state_dir(self) -> str:
        own = self.config.state_dir
        return SYSTEM_STATE if own == places.default_state_dir() and self._system(self.config.runtime_dir) else own

    def _system(self, runtime_dir: str) -> bool:
        return self.installed and not os.path.exists(os.path.join(runtime_dir, "control.sock"))

    def endpoint(self, name: str, configured: str) -> str:
        """Where the daemon listens: of `request`, `stream` and `control` the one that is configured, or the default."""
        default = f"ipc://{self.config.runtime_dir}/{name}.sock"
        return f"ipc://{self.runtime_dir}/{name}.sock" if configured == default else configured

    @cached_property
    def held(self) -> manager.Held:
        """Where systemd listens for the service, and whether it runs."""
        return manager.held(self.root) if self.here else manager.Held()

    def ask(self, op: str) -> dict[str, Any] | str:
        """The daemon's reply, or in words why there is none. Asked once, whoever wants it."""
        with self._asking:
            if op not in self._asked:
                self._asked[op] = self._answer(op) if self.here else "not asked: --root names another box"
            return self._asked[op]

    def listeners(self) -> list[int | None]:
        """Who listens at each local socket that is there: a process id, or None where that is not told. Not systemd,
        for a service that is stopped."""
        local = [name for name in self.config.request_endpoints if name.startswith("ipc://")]
        ends = [self.endpoint("request", name) for name in local]
        ends.append(self.endpoint("control", self.config.control_endpoint))
        found = [listener(end.removeprefix("ipc://")) for end in ends if not self.held.asleep(end)]
        return [pid or None for pid in found if pid != NOBODY]

    def _answer(self, op: str) -> dict[str, Any] | str:
        local = [name for name in self.config.request_endpoints if name.startswith("ipc://")]
        endpoint = self.endpoint("request", (local or self.config.request_endpoints)[0])
        for anywhere in ("tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:"):
            endpoint = endpoint.replace(anywhere, "tcp://127.0.0.1:")
        path = endpoint.removeprefix("ipc://") if endpoint.startswith("ipc://") else ""
        why = _closed(path) if path else ""
        if why:
            return why
        if self.held.asleep(endpoint):
            return STOPPED
        if path and refused(path):
            return f"nobody listens at {path}"
        try:
            with client.Client(endpoint) as edged:
                return edged.call(op, deadline_s=ANSWER_S)
        except client.NoAnswer:
            return f"{endpoint} does not answer within {ANSWER_S:g} s"
        except (client.ReplyError, client.BadEndpoint, OSError) as error:
            return f"{endpoint}: {error}"


def _closed(path: str) -> str:
    """Why it is no use to connect; "" when it is."""
    try:
        os.stat(path)
    except PermissionError:
        return f"no permission for {path}"
    except OSError:
        return f"there is no {path}"
    return "" if os.access(path, os.W_OK) else f"no permission for {path}"


def refused(path: str) -> bool:
    """The socket of a daemon that was killed. One that hangs still takes connections, by the kernel. Not to be asked
    of one that systemd holds for a service that is stopped."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return os.path.exists(path) and probe.connect_ex(path) == errno.ECONNREFUSED


def listener(path: str) -> int:
    """Who called listen(2), unix(7): the process id, 0 when it is not told (closed to us, or another namespace's)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        at = probe.connect_ex(path)
        if at in (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED):
            return NOBODY
        if at:
            return 0
        pid, _, _ = _UCRED.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(pid)


def _elsewhere(config: Config) -> Config:
    """Of another box: what its configuration does not say lies in the system's places, and not in ours."""
    embedded = str(places.models_dir() / places.EMBEDDED_MODEL)
    model = f"{SYSTEM_STATE}/models/{places.EMBEDDED_MODEL}" if config.model.path == embedded else config.model.path
    return msgspec.structs.replace(
        config,
        runtime_dir=SYSTEM_RUNTIME if config.runtime_dir == places.default_runtime_dir() else config.runtime_dir,
        state_dir=SYSTEM_STATE if config.state_dir == places.default_state_dir() else config.state_dir,
        model=msgspec.structs.replace(config.model, path=model),
    )
