"""Which keys go with which endpoint (protocol 9). Reads key files; no sockets.

* Keys are for `tcp://`; on ipc the kernel tells who calls.
* A box that changes its key has two for a while: of several server keys the one that was good last is used, and after a
  handshake that was cut, as a wrong key makes it, the next has its turn. Calls in several threads share this.
* The `stream` endpoint has the keys of the `request` endpoint that it goes with.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from edged import keypair
from edged.client.errors import BadEndpoint, BadKey
from edged.keyfile import MAX_BYTES, KeyFile, KeyFileError, is_key, parse

Key = str | os.PathLike[str]
"""A path, or the key itself in Z85."""
ServerKey = Key | Sequence[Key]

SEPARATOR: Final = ","
"""Between several keys in $EDGED_SERVER_KEY; Z85 has none."""
NAMED: Final = re.compile(r"(tcp://[^=]+:\d+)=(.+)", re.DOTALL)
"""A server key with the endpoint of its box, for the environment and the command line."""


class Curve(Struct, frozen=True):
    """What a socket needs, in Z85."""

    server: str
    public: str
    secret: str

    def __repr__(self) -> str:
        return f"Curve({self.server!r}, {self.public!r})"


class Keys:
    """`key` and `server_key` None: $EDGED_KEY and $EDGED_SERVER_KEY. Raises BadKey."""

    def __init__(
        self,
        endpoints: Sequence[str],
        stream_of: Callable[[str], str],
        key: Key | None,
        server_key: ServerKey | Mapping[str, ServerKey] | None,
    ) -> None:
        self._servers: dict[str, list[str]] = {}
        self._home: dict[str, str] = {}  # of a stream endpoint, its request endpoint
        self._turn: dict[str, int] = {}
        remote = [endpoint for endpoint in endpoints if endpoint.startswith("tcp://")]
        if not remote:
            return
        key = key or os.environ.get("EDGED_KEY") or None
        if server_key is None and (said := os.environ.get("EDGED_SERVER_KEY")):
            server_key = said.split(SEPARATOR)
        if key is None and not server_key:
            return
        if isinstance(server_key, Sequence) and not isinstance(server_key, str):
            server_key = _by_endpoint(server_key)
        if key is None:
            raise BadKey("`key` is missing: the secret key of this device, a NAME.key_secret file or Z85")
        self._secret = secret_of(key)
        self._public = keypair.public_of(self._secret)
        for endpoint in remote:
            given = server_key.get(endpoint) if isinstance(server_key, Mapping) else server_key
            if not given:
                raise BadKey(
                    f"`server_key` is missing for {endpoint}: what `edgectl keys show-public` says on that box"
                )
            self._servers[endpoint] = [public_of(one) for one in _several(given)]
            self._home[endpoint] = endpoint
            try:
                self._home.setdefault(stream_of(endpoint), endpoint)
            except BadEndpoint:  # told when a stream is wanted
                continue

    def of(self, endpoint: str) -> Curve | None:
        """None: without keys."""
        home = self._home.get(endpoint)
        if home is None:
            return None
        servers = self._servers[home]
        return Curve(servers[self._turn.get(home, 0) % len(servers)], self._public, self._secret)

    def cut(self, endpoint: str, used: Curve) -> None:
        """A handshake with this key was cut: the next one's turn, unless another call has seen to that."""
        home = self._home[endpoint]
        if self.of(endpoint) == used:
            self._turn[home] = self._turn.get(home, 0) + 1


def _by_endpoint(given: Sequence[Key]) -> Sequence[Key] | Mapping[str, ServerKey]:
    """Keys that each say whose they are, `tcp://10.0.0.7:5555=box.key`, as a mapping; else as they came."""
    found: dict[str, list[Key]] = {}
    for one in given:
        match = NAMED.fullmatch(os.fspath(one))
        if match is not None:
            found.setdefault(match[1], []).append(match[2])
    if found and sum(map(len, found.values())) != len(given):
        raise BadKey("`server_key`: either each key says whose it is, ENDPOINT=KEY, or none does")
    return dict(found) or given


def _several(given: ServerKey) -> Sequence[Key]:
    return [given] if isinstance(given, str | os.PathLike) else given


def secret_of(key: Key) -> str:
    """Raises BadKey, also for a file that others can read."""
    text = _as_z85(key)
    if text is not None:
        return text
    file, mode = _read(key, secret=True)
    if mode & 0o077:
        raise BadKey(f"{os.fspath(key)}: {mode:04o}: others can read this secret; `chmod 600` it")
    assert file.secret is not None, "parsed as a secret file"
    if keypair.public_of(file.secret) != file.public:
        raise BadKey(f"{os.fspath(key)}: its two keys do not belong together")
    return file.secret


def public_of(key: Key) -> str:
    """Raises BadKey."""
    return _as_z85(key) or _read(key, secret=False)[0].public


def _as_z85(key: Key) -> str | None:
    """A path may look like a key: a file that is there is one."""
    return key if isinstance(key, str) and is_key(key) and not os.path.exists(key) else None


def _read(key: Key, *, secret: bool) -> tuple[KeyFile, int]:
    path = os.fspath(key)
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            return parse(file.read(MAX_BYTES + 1), path, secret=secret), mode
    except OSError as error:
        shown = path if len(path) != 40 else "this"  # it may be a key with a typo
        raise BadKey(f"{shown}: {error.strerror}: neither a key file nor a key (40 characters of Z85)") from None
    except KeyFileError as error:
        raise BadKey(str(error)) from None
