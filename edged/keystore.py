"""Key files made, replaced and taken away, for `edgectl keys`. The daemon only reads them (`edged.keyring`).

* Nothing is overwritten without being told to. A file is there whole or not at all: written beside, synced, then linked
  or renamed. Secrets are 0600 from their first byte on, what is public 0644.
* Two keys of a caller, while a device changes its key: NAME.key and NAME~new.key, both of the same `name`. The old one
  ends when the new file takes its place, in one rename.
* Two keys of the box: server.key_secret, which is in force, and server-next.key_secret, whose public half is handed out
  ahead. `switch` puts it in force, in one rename, at the daemon's next start.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from edged import keyfile, keypair, keyring
from edged.keyfile import KeyFile
from edged.keyring import SECRET_SUFFIX, SUFFIX, Entry

NEW: Final = "~new"
NEXT: Final = "-next"
FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z")
"""A caller's name that can be a file's: no dot or dash in front."""


class KeyStoreError(Exception):
    """It cannot be done; one line that says what to do."""


class Made(Struct, frozen=True):
    """`files`: what was written, with what it is for."""

    key: KeyFile
    files: tuple[tuple[str, str], ...]


class KeyStore:
    """`clients`: where the public keys lie. `server`: path of the box's secret. Raises KeyStoreError, ConfigError."""

    def __init__(self, clients: str, server: str) -> None:
        self.clients = Path(clients)
        self.server = Path(server)

    # ---- the box ---------------------------------------------------------------------------------------------

    def server_file(self, suffix: str, *, upcoming: bool = False) -> Path:
        stem = self.server.name.removesuffix(SECRET_SUFFIX)
        return self.server.with_name(f"{stem}{NEXT if upcoming else ''}{suffix}")

    def make_server(self, *, upcoming: bool, force: bool) -> Made:
        """Also the directory for clients' keys. `force`: in place of the one there is."""
        secret = self._secret_path(upcoming=upcoming)
        if secret.exists() and not force:
            other = "--switch puts it in force" if upcoming else "--next prepares another beside it"
            raise KeyStoreError(f"{secret} is there already: {other}, --force replaces it")
        if upcoming and not self.server.exists():
            raise KeyStoreError(f"there is no {self.server} yet: make it first, without --next")
        make_directory(self.server.parent, 0o700)
        make_directory(self.clients, 0o755)
        key = new_pair()
        public = self.server_file(SUFFIX, upcoming=upcoming)
        write(secret, keyfile.secret_text(key), 0o600, replace=force)
        write(public, keyfile.public_text(key), 0o644, replace=True)
        return Made(key, ((str(secret), "the secret of this box"), (str(public), "for every client")))

    def switch_server(self) -> KeyFile:
        """The next key becomes the one in force."""
        upcoming = self._secret_path(upcoming=True)
        if not upcoming.exists():
            raise KeyStoreError(f"there is no {upcoming}: `edgectl keys server --next` prepares it")
        key = keyring.server_key(str(upcoming))
        with explained(self.server):
            os.replace(upcoming, self.server)
            sync_directory(self.server.parent)
            write(self.server_file(SUFFIX), keyfile.public_text(key), 0o644, replace=True)
            self.server_file(SUFFIX, upcoming=True).unlink(missing_ok=True)
        return key

    def server_public(self, *, upcoming: bool = False) -> KeyFile | None:
        """From the secret, where it can be read, else from the file beside it. None: there is none."""
        secret, public = self._secret_path(upcoming=upcoming), self.server_file(SUFFIX, upcoming=upcoming)
        if os.access(secret, os.R_OK):
            return msgspec.structs.replace(keyring.server_key(str(secret)), secret=None)
        with explained(public):
            return parsed(public) if public.exists() or secret.exists() else None

    def _secret_path(self, *, upcoming: bool) -> Path:
        return self.server_file(SECRET_SUFFIX, upcoming=True) if upcoming else self.server

    # ---- callers ---------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All keys of clients; they have been checked against one another."""
        found = keyring.client_files(str(self.clients))
        keyring.table(found)
        return found

    def of(self, name: str) -> list[Entry]:
        """The files of a caller: those that say its name, or say none and are called so."""
        stem = {f"{name}{SUFFIX}", f"{name}{NEW}{SUFFIX}"}
        return [e for e in self.entries() if e.file.name == name or (not e.file.name and Path(e.path).name in stem)]

    def make_client(self, key: KeyFile, out: Path | None, *, rotate: bool) -> Made:
        """`key` has the caller's name. `out`: where its secret goes, with the key of the box; None: it stays where it
        was made."""
        assert key.name is not None, "a caller has a name"
        check_name(key.name)
        for upcoming in (False, True):
            own = None
            with contextlib.suppress(KeyStoreError):  # who lets clients in need not be able to look at the box's own
                own = self.server_public(upcoming=upcoming)
            if own is not None and own.public == key.public:
                raise KeyStoreError(f"{key.public} is a key of this box itself: give the one that the device made")
        there = self.of(key.name)
        path = self.clients / f"{key.name}{NEW if rotate else ''}{SUFFIX}"
        if there and not rotate:
            raise KeyStoreError(
                f"{key.name} has a key already ({there[0].path}): --rotate makes a second one beside it, "
                f"`edgectl keys revoke {key.name}` ends it"
            )
        if rotate:
            key = self._second(key, there, path)
        keyring.table([*self.entries(), Entry(str(path), key)])
        files = [(str(path), "what the box keeps")]
        if out is not None:
            files += self._hand_out(key, out, Path(f"{key.name}{NEW if rotate else ''}{SECRET_SUFFIX}"))
        try:
            write(path, keyfile.public_text(key), 0o644, replace=False)
        except KeyStoreError:
            for made, _ in files[1:2]:
                os.unlink(made)  # a secret that nobody knows of
            raise
        return Made(key, tuple(files))

    def _second(self, key: KeyFile, there: list[Entry], path: Path) -> KeyFile:
        """With the limits of the first."""
        old = self.clients / f"{key.name}{SUFFIX}"
        if [Path(entry.path) for entry in there] != [old]:
            if not there:
                raise KeyStoreError(f"{key.name} has no key to rotate: leave --rotate away")
            if path.exists():
                raise KeyStoreError(f"{path} is there already: `edgectl keys revoke {key.name} --old` ends the old key")
            raise KeyStoreError(f"{key.name} has other files than {old}: {', '.join(entry.path for entry in there)}")
        first = there[0].file
        if not first.name:
            raise KeyStoreError(f"{old} says no name, so that a second key would be another caller: add `name` to it")
        return msgspec.structs.replace(key, max_queued=first.max_queued, max_priority=first.max_priority)

    def _hand_out(self, key: KeyFile, out: Path, name: Path) -> list[tuple[str, str]]:
        """For the device."""
        make_directory(out, 0o700)
        if out.resolve() in (self.clients.resolve(), self.server.parent.resolve()):
            raise KeyStoreError(f"{out} is for keys of the box: choose another --out for the secret of a device")
        own, box = self.server_public(), out / "server.key"
        if own is not None and box.exists() and parsed(box).public != own.public:
            raise KeyStoreError(f"{box} is the key of another box: choose another --out")
        write(out / name, keyfile.secret_text(key), 0o600, replace=False)
        files = [(str(out / name), "SECRET, for the device alone: carry it there, then remove it here")]
        if own is not None:
            write(box, keyfile.public_text(own), 0o644, replace=True)
            files.append((str(box), "for the device: the key of this box"))
        return files

    def revoke(self, name: str, *, old: bool) -> list[str]:
        """The files that are gone. `old`: the key before the last one only."""
        there = self.of(name)
        if not there:
            raise KeyStoreError(f"{name} has no key in {self.clients}; `edgectl keys list` tells who has")
        if not old:
            for entry in there:
                with explained(Path(entry.path)):
                    os.unlink(entry.path)
            sync_directory(self.clients)
            return [entry.path for entry in there]
        first, second = self.clients / f"{name}{SUFFIX}", self.clients / f"{name}{NEW}{SUFFIX}"
        if not second.exists():
            raise KeyStoreError(f"{name} has no second key: `edgectl keys client {name} --rotate` makes one")
        with explained(first):
            os.replace(second, first)
            sync_directory(self.clients)
        return [entry.path for entry in there if Path(entry.path) == first]


def new_pair(name: str | None = None) -> KeyFile:
    public, secret = keypair.new()
    return KeyFile(public=public, secret=secret, name=name)


def make_pair(name: str, out: Path) -> Made:
    """Made on the device itself: the secret never leaves it."""
    check_name(name)
    make_directory(out, 0o700)
    key, path = new_pair(name), out / f"{name}{SECRET_SUFFIX}"
    write(path, keyfile.secret_text(key), 0o600, replace=False)
    return Made(key, ((str(path), "SECRET, for this device alone"),))


def check_name(name: str) -> None:
    if not FILE_NAME.match(name):
        raise KeyStoreError(f"{name!r:.80}: a name is 1 to 64 of A-Z a-z 0-9 . _ : - and begins with a letter or digit")
    if name == "server":
        raise KeyStoreError("server is the name of the box's own files: call the client something else")


def parsed(path: Path) -> KeyFile:
    """A public key file."""
    try:
        return keyfile.parse(path.read_bytes(), str(path), secret=False)
    except keyfile.KeyFileError as error:
        raise KeyStoreError(str(error)) from None


# ---- files -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an OSError into words."""
    try:
        yield
    except PermissionError:
        raise KeyStoreError(f"no permission for {path}: use sudo, or --dir for a box of your own") from None
    except OSError as error:
        raise KeyStoreError(f"{error.filename or path}: {error.strerror or error}") from None


def make_directory(path: Path, mode: int) -> None:
    """With this mode, and 0755 for what is missing above it, whatever the umask: the daemon is another user, and nobody
    else may put a directory of his own in its place. What is there is left as it is."""
    with explained(path):
        for directory in (*reversed(path.parents), path):
            if not directory.exists():
                directory.mkdir(exist_ok=True)
                directory.chmod(mode if directory == path else 0o755)


def write(path: Path, text: str, mode: int, *, replace: bool) -> None:
    """Whole or not at all. Not `replace`: KeyStoreError when it is there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(beside, path)
            else:
                os.link(beside, path)
            sync_directory(path.parent)
        except FileExistsError:
            raise KeyStoreError(f"{path} is there already; it is left as it is") from None
        finally:
            beside.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """A rename is only on the disk when its directory is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
