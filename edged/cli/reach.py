"""Where the daemon is, and why it cannot be reached, in words that say what to do."""

from __future__ import annotations

import errno
import os
import socket
import stat

from edged import config, places
from edged.system import asker

SYSTEM_DIR = "/run/edged"
"""Where the systemd unit's daemon listens; its $RUNTIME_DIRECTORY is not in an operator's environment."""

START = "start it with `make serve` or `systemctl start edged`"


def default_config() -> str | None:
    given = os.environ.get("EDGED_CONFIG")
    if given:
        return given
    return next((path for path in ("config.yaml", "/etc/edged/config.yaml") if os.path.exists(path)), None)


def connectable(settings: config.Config) -> str:
    """The first `request` endpoint, an ipc one if there is one, as a client has to write it."""
    endpoints = sorted(settings.request_endpoints, key=lambda e: not e.startswith("ipc://"))
    endpoint = _anywhere(endpoints[0])
    return endpoint if settings.listen.request else _system_or(settings, endpoint, "request")


def stream(settings: config.Config, endpoint: str) -> str:
    """Where `sys/` is told, of the same kind as the request `endpoint`."""
    scheme = endpoint.partition("://")[0]
    if endpoint.endswith("/request.sock") and not settings.listen.stream:
        return endpoint.removesuffix("request.sock") + "stream.sock"
    found = [one for one in settings.stream_endpoints if one.startswith(f"{scheme}://")] or settings.stream_endpoints
    return _anywhere(found[0])


def control(settings: config.Config) -> str:
    endpoint = settings.control_endpoint
    return endpoint if settings.listen.control else _system_or(settings, endpoint, "control")


def _anywhere(endpoint: str) -> str:
    """An address that a client can connect to."""
    for anywhere in ("tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:"):
        endpoint = endpoint.replace(anywhere, "tcp://127.0.0.1:")
    return endpoint


def _system_or(settings: config.Config, endpoint: str, name: str) -> str:
    """The system's daemon when there is none in the default place: its directory counts, for one of its sockets may
    have been removed.
    """
    here = settings.runtime_dir != places.default_runtime_dir() or _there(endpoint.removeprefix("ipc://"))
    return endpoint if here or not _there(SYSTEM_DIR) else f"ipc://{SYSTEM_DIR}/{name}.sock"


def _there(path: str) -> bool:
    """Also when the directory is closed to this user: then that is what has to be said of it."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def control_beside(endpoint: str) -> str | None:
    """`…/request.sock` → `…/control.sock`. None: operators' verbs do not go over TCP."""
    if not endpoint.startswith("ipc://"):
        return None
    head, slash, tail = endpoint.rpartition("/")
    return f"{head}{slash}control.sock" if tail == "request.sock" else endpoint


def unreachable(endpoint: str) -> str | None:
    """Why it is no use waiting: no socket, nobody behind it, no permission."""
    if not endpoint.startswith("ipc:///"):
        return None
    path = endpoint.removeprefix("ipc://")
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return f"{path} is not a socket"
    except PermissionError:
        return _not_allowed(path)
    except OSError:
        again = (
            f"; if the service runs, the file was removed: {places.SOCKETS_AFRESH}"
            if path.startswith(f"{SYSTEM_DIR}/")
            else ""
        )
        return f"nothing answers at {endpoint}: {START}{again}"
    if not os.access(path, os.W_OK):
        return _not_allowed(path)
    return f"nobody listens at {endpoint} any more: {START}" if _refused(path) else None


def silent(endpoint: str, waited_s: float) -> str:
    """It could be reached, or that cannot be told, and said nothing."""
    within = f"within {round(waited_s, 1):g} s"
    if endpoint.startswith("ipc://"):
        look = "it is stopped or hangs; look with `systemctl status edged`, or at its log"
        return unreachable(endpoint) or f"the daemon at {endpoint} does not answer {within}: {look}"
    return f"nothing answers at {endpoint} {within}: is the address right, and does the daemon run there?"


def _refused(path: str) -> bool:
    """The socket of a daemon that was killed. One that hangs still takes connections, by the kernel."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) == errno.ECONNREFUSED


def _not_allowed(path: str) -> str:
    group = "edged-admin" if path.endswith("/control.sock") else "edged"
    return f"no permission for {path}: your user must be in the socket's group (`{asker.join(group)}`)"
