"""The keys of this box: its own secret one, and the public ones of those who may come in over TCP (protocol 9).

* With a server key every `tcp://` endpoint is CURVE; `security.allow_insecure_tcp` is for boxes without one. A key that
  cannot be looked at is an error, and none the less a key.
* The caller is the key, or its `name`: files of one name are one caller, so that a device can change its key and keep
  what it owns. They must agree in their limits, and no key may stand in two files.
* All or nothing: one bad file, and nothing of the directory is taken.
* The secret is refused when others can read it. Below $CREDENTIALS_DIRECTORY the group may: systemd 257 gives 0440 and
  lets the service in by an ACL, 252 gives 0400 (both measured).

A few small files, read in the daemon's loop like the configuration; a FIFO among them makes nobody wait.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from edged import keypair, places
from edged.config import Config
from edged.errors import ConfigError
from edged.keyfile import MAX_BYTES, KeyFile, KeyFileError, parse, z85
from edged.messages import Priority

MAX_CLIENTS: Final = 1024
"""Read in the loop: 0.1 ms each (measured, x86-64), and each is read again at every reload."""
SUFFIX: Final = ".key"
SECRET_SUFFIX: Final = ".key_secret"  # noqa: S105 - of a file's name

_CLIENTS_DIR: Final = "security.clients_dir"
_SERVER_KEY: Final = "security.server_key"


class Known(Struct, frozen=True):
    """Who has a key, and what this caller may: None is what the configuration says of all."""

    key: str
    identity: str
    max_queued: int | None = None
    max_priority: Priority | None = None


Clients = Mapping[bytes, Known]
"""By the 32 bytes of the public key."""


class Keyring(Struct, frozen=True):
    public: str
    secret: str
    clients: Clients
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Keyring({self.public!r}, {len(self.clients)} clients)"


class Entry(Struct, frozen=True):
    """A key file of a client."""

    path: str
    file: KeyFile


def load(config: Config) -> Keyring | None:
    """What the TCP endpoints need; None where there are none, or they are insecure on purpose. Raises ConfigError."""
    found = _first_tcp(config)
    if found is None:
        return None
    security = config.security
    path = security.server_key or places.server_key()
    if not security.server_key and places.absent(path):
        if security.allow_insecure_tcp:
            return None
        how = "`edgectl keys server` makes it"
        if places.credentials_dir():
            how += ", `systemctl restart edged` hands it over"
        expected = f"a key of this box for tcp:// ({how}), or security.allow_insecure_tcp: true"
        raise ConfigError(config.path, found[0], expected, f"{found[1]} and no {path}")
    own = server_key(path)
    assert own.secret is not None, "parsed as a secret file"
    directory = security.clients_dir or places.clients_dir()
    warnings = (
        ["security.allow_insecure_tcp has no effect: there is a server key"] if security.allow_insecure_tcp else []
    )
    entries = client_files(directory)
    warnings += doubts(directory)
    if not entries:
        warnings.append(f"no keys in {directory}: nobody can come in over TCP (`edgectl keys client NAME`)")
    return Keyring(own.public, own.secret, table(entries), tuple(warnings))


def in_force(keys: Keyring, key: str, identity: str) -> bool:
    """Whether the key would let its owner in as this caller."""
    raw = z85(key)
    known = None if raw is None else keys.clients.get(raw)
    return known is not None and known.identity == identity


def hidden(config: Config) -> str | None:
    """A place that only the daemon, or root, can look into: `load` would blame it on the configuration."""
    if _first_tcp(config) is None:
        return None
    secret = config.security.server_key or places.server_key()
    system = f"{places.SYSTEM_CONFIG}/{places.SERVER_KEY}"
    for place in (os.path.dirname(system), secret, config.security.clients_dir or places.clients_dir()):
        if os.path.exists(place) and not os.access(place, os.R_OK):
            return place
    return None


def _first_tcp(config: Config) -> tuple[str, str] | None:
    """Key and endpoint."""
    both = (("listen.request", config.request_endpoints), ("listen.stream", config.stream_endpoints))
    every = ((key, endpoint) for key, endpoints in both for endpoint in endpoints)
    return next((pair for pair in every if pair[1].startswith("tcp://")), None)


# ---- the key of the box ----------------------------------------------------------------------------------------


def server_key(path: str) -> KeyFile:
    """Raises ConfigError, also for one that others can read or whose halves do not belong together."""
    key, status = _read(path, _SERVER_KEY, secret=True)
    exposed = status.st_mode & (0o007 if _is_credential(path) else 0o077)
    if exposed:
        expected = f"mode 0600 (`chmod 600 {path}`; if somebody may have read it: `edgectl keys server --force`)"
        raise ConfigError(path, _SERVER_KEY, expected, f"{stat.S_IMODE(status.st_mode):04o}: others can read it")
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(path, _SERVER_KEY, "a file of this user or of root", f"one of uid {status.st_uid}")
    assert key.secret is not None, "parsed as a secret file"
    if keypair.public_of(key.secret) != key.public:
        raise ConfigError(path, _SERVER_KEY, "the public key that belongs to the secret one", "another")
    return key


def _is_credential(path: str) -> bool:
    credentials = places.credentials_dir()
    return bool(credentials) and os.path.dirname(os.path.abspath(path)) == os.path.abspath(str(credentials))


# ---- the keys of clients ---------------------------------------------------------------------------------------


def client_files(directory: str) -> list[Entry]:
    """All `*.key` of the directory, by name. Raises ConfigError."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(SUFFIX) and name[0] != ".")
    except OSError as error:
        expected = "a directory of key files (`edgectl keys server` makes it)"
        raise ConfigError(directory, _CLIENTS_DIR, expected, error.strerror or str(error)) from None
    if len(names) > MAX_CLIENTS:
        raise ConfigError(directory, _CLIENTS_DIR, f"at most {MAX_CLIENTS} keys", str(len(names)))
    paths = [os.path.join(directory, name) for name in names]
    return [Entry(path, _read(path, _CLIENTS_DIR, secret=False)[0]) for path in paths]


def table(entries: Iterable[Entry]) -> Clients:
    """Who has which key. Raises ConfigError for a key in two files, and for files of one name that disagree. Pure."""
    found: dict[bytes, Known] = {}
    places_of: dict[str, str] = {}
    limits: dict[str, tuple[object, ...]] = {}
    for path, file in ((entry.path, entry.file) for entry in entries):
        raw = z85(file.public)
        assert raw is not None, "the parser took it"
        if raw in found:
            raise ConfigError(path, _CLIENTS_DIR, "a key in one file only", f"that of {places_of[file.public]}")
        identity = f"name:{file.name}" if file.name else f"key:{file.public}"
        own = (file.max_queued, file.max_priority)
        if limits.setdefault(identity, own) != own:
            expected = f"the limits of the other files of `{file.name}`"
            raise ConfigError(path, _CLIENTS_DIR, expected, f"max_queued {own[0]}, max_priority {own[1]}")
        places_of[file.public] = path
        found[raw] = Known(file.public, identity, *own)
    return found


def doubts(directory: str) -> list[str]:
    """What is allowed and hardly meant: others who may add keys, secrets that lie about. No file is named: its name is
    that of a caller, and `status` tells warnings to all of them."""
    out: dict[str, str] = {}
    above = os.path.dirname(os.path.abspath(directory))
    try:
        status = os.stat(above)
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            out["above"] = f"everybody may put another directory in place of {directory}: `chmod o-w {above}`"
        elif status.st_uid not in (0, os.geteuid()):
            out["above"] = f"{above} belongs to uid {status.st_uid}, who may put another in place of {directory}"
        names = sorted(os.listdir(directory))
        for path in (directory, *(os.path.join(directory, name) for name in names if name.endswith(SUFFIX))):
            what = directory if path == directory else f"a key in {directory}"
            status = os.stat(path)
            if status.st_mode & stat.S_IWOTH:
                out.setdefault("mode", f"everybody may write {what} and so let himself in: `chmod -R o-w {directory}`")
            elif status.st_uid not in (0, os.geteuid()):
                out.setdefault("owner", f"{what} belongs to uid {status.st_uid}, who may let himself in")
    except OSError:  # gone meanwhile
        return list(out.values())
    if any(name.endswith(SECRET_SUFFIX) for name in names):
        out["secret"] = f"{directory} has secret keys: they belong on the clients' devices and nowhere else"
    return list(out.values())


def _read(path: str, key: str, *, secret: bool) -> tuple[KeyFile, os.stat_result]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            data = os.read(descriptor, MAX_BYTES + 1) if stat.S_ISREG(status.st_mode) else None
        finally:
            os.close(descriptor)
    except OSError as error:
        expected = "a key file that can be read" + (" (`edgectl keys server` makes it)" if secret else "")
        raise ConfigError(path, key, expected, error.strerror or str(error)) from None
    if data is None:
        raise ConfigError(path, key, "a key file", "something that is not a file")
    try:
        return parse(data, path, secret=secret), status
    except KeyFileError as error:
        raise ConfigError(f"{path}:{error.line}", key, error.expected, error.found) from None
