"""One GET, with the standard library: timeouts, https also after a redirect, a range, errors in words.

The headers are looked at before a byte of the body is read, so a separate HEAD is not needed (some object stores
refuse it). The hub answers with a redirect that carries the file's real size and, as `X-Linked-ETag`, its sha256;
the storage it leads to knows neither.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import urllib.error
import urllib.request
from http.client import HTTPMessage
from typing import IO, Final
from urllib.parse import urlsplit

from edged import __version__
from edged.models.sources import SourceError, check_url, place

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)\Z")
_UNSATISFIED = re.compile(r"bytes \*/(\d+)\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")

OTHER_WAY: Final = "fetch the file on another machine and use `edgectl model import FILE`"


class UnreachableError(Exception):
    """Nothing answered, or it broke off: worth another try."""


class RefusedError(Exception):
    """The server answered, with something else than the file."""


class Answer:
    """The headers of a 200 or 206, understood; the body still to be read."""

    def __init__(self, response: http.client.HTTPResponse, linked: dict[str, str]) -> None:
        self._response = response
        self.place = place(response.url)
        headers = response.headers
        self.kind = headers.get_content_type()
        encoding = headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise RefusedError(
                f"{self.place}: the server packs the file ({encoding[:32]}): not to be resumed or checked"
            )
        span = _RANGE.match(headers.get("Content-Range", "")) if response.status == 206 else None
        if response.status == 206 and span is None:
            raise RefusedError(f"{self.place}: a partial answer without a Content-Range")
        self.offset = int(span[1]) if span else 0
        self.size = int(span[3]) if span else _number(headers.get("Content-Length"))
        if self.size is None:
            self.size = _number(linked.get("x-linked-size"))
        self.validator = _validator(headers)
        linked_sum = linked.get("x-linked-etag", "").removeprefix("W/").strip('"').lower()
        self.sha256 = linked_sum if _SHA256.match(linked_sum) else None

    def read(self, count: int) -> bytes:
        """What is there, at most `count` bytes; b"" at the end. Raises UnreachableError."""
        try:
            return self._response.read1(count)
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{self.place}: {_words(error)}") from None

    def close(self) -> None:
        self._response.close()


class NothingLeftError(Exception):
    """416: what was asked for begins at or behind the end. `size` is the file's, if the server says."""

    def __init__(self, size: int | None) -> None:
        super().__init__("416")
        self.size = size


def get(
    url: str,
    *,
    offset: int = 0,
    validator: str | None = None,
    timeout: float,
    insecure: bool = False,
    token: str | None = None,
) -> Answer:
    """Asks for the file from `offset` on, if it is still the one of `validator`.

    Raises UnreachableError, RefusedError, NothingLeftError, SourceError.
    """
    check_url(url, insecure=insecure)
    headers = {"User-Agent": f"edged/{__version__}", "Accept-Encoding": "identity", "Accept": "*/*"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator:
            headers["If-Range"] = validator
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme has been checked
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    redirects = _Redirects(insecure=insecure)
    try:
        response = urllib.request.build_opener(redirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:
                size = _UNSATISFIED.match(error.headers.get("Content-Range", ""))
                raise NothingLeftError(int(size[1]) if size else None) from None
            if error.code in (408, 425, 429) or error.code >= 500:
                raise UnreachableError(f"{place(url)}: HTTP {error.code} {error.reason}") from None
            raise RefusedError(f"{place(url)}: HTTP {error.code} {error.reason}{_hint(error.code)}") from None
    except urllib.error.URLError as error:
        raise UnreachableError(f"{place(url)}: {_words(error.reason)}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnreachableError(f"{place(url)}: {_words(error)}") from None
    if response.status not in (200, 206):
        response.close()
        raise RefusedError(f"{place(url)}: HTTP {response.status} where the file was expected")
    try:
        return Answer(response, redirects.linked)
    except RefusedError:
        response.close()
        raise


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Keeps what the hub says on its redirects; a token goes on to the same host only."""

    def __init__(self, *, insecure: bool) -> None:
        self._insecure = insecure
        self.linked: dict[str, str] = {}

    def redirect_request(  # noqa: PLR0917 - the signature is urllib's
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        try:
            check_url(newurl, insecure=self._insecure)
        except SourceError as error:
            raise RefusedError(f"{place(req.full_url)}: sent on to {error}") from None
        for name in ("x-linked-etag", "x-linked-size"):
            value = headers.get(name)
            if value:
                self.linked.setdefault(name, value)
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        if new is not None and token and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            new.add_unredirected_header("Authorization", token)
        return new


def _validator(headers: HTTPMessage) -> str | None:
    """For If-Range: a strong ETag, else the time of the last change."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _hint(code: int) -> str:
    if code in (401, 403):
        return " (if the model asks for its licence to be accepted: do that on the hub, then give a token in $HF_TOKEN)"
    return " (is the name right, in upper and lower case?)" if code == 404 else ""


def _words(error: object) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted ({error.verify_message}): is the clock of this machine right?"
    if isinstance(error, socket.gaierror):
        return "the name cannot be resolved: no network here?"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
