"""Where the daemon is, when nobody says; and where its streams are (protocol 1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from edged.client.errors import BadEndpoint
from edged.places import default_runtime_dir

SYSTEM_DIR = "/run/edged"


def default_endpoint() -> str:
    """`$EDGED_ENDPOINT`; else the system's daemon if its socket is there; else where one of this user listens."""
    given = os.environ.get("EDGED_ENDPOINT")
    if given:
        return given
    directory = SYSTEM_DIR if os.path.exists(f"{SYSTEM_DIR}/request.sock") else default_runtime_dir()
    return f"ipc://{directory}/request.sock"


def listed(endpoints: str | Sequence[str] | None) -> list[str]:
    if endpoints is None:
        return [default_endpoint()]
    found = [endpoints] if isinstance(endpoints, str) else list(dict.fromkeys(endpoints))
    if not found:
        raise BadEndpoint("no endpoint given")
    for endpoint in found:
        if not endpoint.startswith(("ipc://", "tcp://")):
            raise BadEndpoint(f"{endpoint}: an endpoint begins with ipc:// or tcp://")
    return found


def stream_of(given: Mapping[str, str] | None) -> Callable[[str], str]:
    """The stream endpoint that goes with a request endpoint: as given, else as protocol 1 derives it."""

    def find(endpoint: str) -> str:
        return (given or {}).get(endpoint) or derived(endpoint)

    return find


def derived(endpoint: str) -> str:
    """`…/request.sock` → `…/stream.sock`, tcp port P → P + 1."""
    if endpoint.startswith("ipc://") and endpoint.endswith("/request.sock"):
        return endpoint.removesuffix("request.sock") + "stream.sock"
    host, colon, port = endpoint.rpartition(":")
    if endpoint.startswith("tcp://") and colon and port.isdecimal():
        return f"{host}:{int(port) + 1}"
    raise BadEndpoint(f"{endpoint}: say in `streams` which stream endpoint goes with it")
