"""Where the daemon is, when nobody says; and where its streams are (protocol 1)."""

from __future__ import annotations

import os
import re
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


BETWEEN = re.compile(r",\s*(?=\w+://)")
"""Between several endpoints in one string. A path may have a comma in it."""


def several(endpoints: str) -> list[str]:
    """`tcp://10.0.0.7:5555,tcp://10.0.0.8:5555`, as in $EDGED_ENDPOINT."""
    return BETWEEN.split(endpoints.strip())


def listed(endpoints: str | Sequence[str] | None) -> list[str]:
    """Each once, in the order given. Raises BadEndpoint."""
    given = default_endpoint() if endpoints is None else endpoints
    each = several(given) if isinstance(given, str) else [one for item in given for one in several(item)]
    found = list(dict.fromkeys(each))
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
