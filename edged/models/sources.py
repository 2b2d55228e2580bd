"""What `edgectl model pull` may be given, taken apart: NAME, hf:REPO/FILE[@REVISION], URL. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from edged.models import catalog

HUB: Final = "https://huggingface.co"

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,122}\.gguf\Z", re.IGNORECASE)
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf\Z", re.IGNORECASE)
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class SourceError(Exception):
    """Not a source, with the reason in words."""


class Remote(Struct, frozen=True):
    """One file that can be had over HTTP, and what is known of it beforehand."""

    url: str
    file: str
    size: int | None = None
    sha256: str | None = None
    memory: int | None = None
    hub: bool = False
    known_by: str = ""

    @property
    def place(self) -> str:
        return place(self.url)


def place(url: str) -> str:
    """The URL without query and fragment: what may be shown and kept, for a signed query is a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def parse(text: str, *, hub: str = HUB, sha256: str | None = None, rename: str | None = None) -> Remote:
    """The remote file behind a name of the catalog that lies on the hub, an hf: source or a URL. Raises SourceError."""
    given = checksum(sha256)
    entry = catalog.by_name(text)
    if entry is not None and entry.repo is not None:
        if given and entry.sha256 and given != entry.sha256:
            raise SourceError(f"{text}: the catalog has sha256 {entry.sha256}, you gave {given}")
        url = _hub_url(hub, entry.repo, entry.file, entry.revision)
        by = "the catalog" if entry.sha256 else ""
        known = entry.sha256 or given
        return Remote(url, rename or entry.file, entry.size, known, entry.memory, hub=True, known_by=by)
    by = "--sha256" if given else ""
    if text.startswith("hf:"):
        repo, path, revision = _hub_parts(text)
        name = file_name(rename or path.rpartition("/")[2])
        return Remote(_hub_url(hub, repo, path, revision), name, sha256=given, hub=True, known_by=by)
    if "://" in text:
        parts = _url(text)
        name = file_name(rename or unquote(parts.rpartition("/")[2]))
        return Remote(text, name, sha256=given, known_by=by)
    names = ", ".join(e.name for e in catalog.ENTRIES)
    raise SourceError(f"{text!r} is no model of the catalog ({names}), no hf:REPO/FILE.gguf and no URL")


def checksum(text: str | None) -> str | None:
    """A sha256 as an operator writes it. Raises SourceError."""
    if text is not None and not _SHA256.match(text.strip().lower()):
        raise SourceError("a sha256 has 64 hexadecimal digits")
    return text.strip().lower() if text else None


def file_name(name: str) -> str:
    """A name that is safe in the models directory. Raises SourceError."""
    if _SPLIT.search(name):
        raise SourceError(
            f"{name}: one part of a split model: join them with llama-gguf-split --merge, then import that"
        )
    if not _FILE.match(name):
        raise SourceError(f"{name[:128]!r}: expected a file name of letters, digits and . _ + - that ends with .gguf")
    return name


def check_url(url: str, *, insecure: bool) -> None:
    """https, or http to this very machine, or http because the operator says so. Raises SourceError."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not parts.hostname:
        raise SourceError(f"{place(url)}: expected https://HOST/…")
    if not insecure and not _loopback(parts.hostname):
        raise SourceError(
            f"{place(url)}: http without TLS: anybody on the way may change the file; --insecure allows it"
        )


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _hub_parts(text: str) -> tuple[str, str, str]:
    rest, _, revision = text.removeprefix("hf:").partition("@")
    owner, _, tail = rest.partition("/")
    name, _, path = tail.partition("/")
    repo = f"{owner}/{name}"
    clean = all(part not in ("", ".", "..") for part in path.split("/"))
    if not _REPO.match(repo) or not clean or re.search(r"[\s?#\\]", path) or re.search(r"\s|\.\.", revision):
        raise SourceError(f"{text!r}: expected hf:OWNER/REPO/FILE.gguf or hf:OWNER/REPO/FILE.gguf@REVISION")
    return repo, path, revision or "main"


def _hub_url(hub: str, repo: str, path: str, revision: str) -> str:
    return f"{hub.rstrip('/')}/{repo}/resolve/{quote(revision, safe='')}/{quote(path)}"


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises when it is none
    except ValueError as error:
        raise SourceError(f"{text[:128]!r}: {error}") from None
    if parts.username or parts.password:
        raise SourceError("a URL with a password in it ends up in logs and process lists: use one without")
    if not text.isascii() or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise SourceError(f"{text[:128]!r}: expected a URL of ASCII characters without blanks")
    return parts.path
