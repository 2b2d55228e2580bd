"""What can go wrong, typed. `EdgedError` catches all of it.

`ReplyError` is the daemon's own word (protocol 10), with a subclass per wire code; a code that this library does not
know is a plain `ReplyError`. `MissingFeature` is what an older daemon says to a newer field. `NoAnswer` is the absence
of any word, and `NotAdmitted` says why there can be none. `BadEndpoint` and `BadKey` are the caller's mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

# The names say what happened, not that it is an error, as in the wire's own codes.
# ruff: noqa: N818


class EdgedError(Exception):
    """Everything this library raises on purpose, apart from ValueError and TypeError for what cannot be encoded.

    `boxes`: of several boxes that all failed, what each said; the message has it too.
    """

    boxes: Mapping[str, str] = {}


class BadEndpoint(EdgedError):
    """Not an address that one can connect to."""


class BadKey(EdgedError):
    """Not a key, or a key file that cannot be used."""


class NoAnswer(EdgedError):
    """Nothing came back in time."""

    def __init__(self, endpoints: str, waited_s: float) -> None:
        super().__init__(f"no answer from {endpoints} within {waited_s:.1f} s")
        self.endpoints = endpoints
        self.waited_s = waited_s


class NotAdmitted(NoAnswer):
    """The box is there and refuses the connection: keys are missing, wrong or revoked. `reason` is one of `REASONS`."""

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(endpoint, 0.0)
        self.reason = reason
        self.args = (f"{endpoint} refuses the connection: {REASONS[reason]}",)


KEY_UNKNOWN, KEYS_WANTED, NO_KEYS = "key unknown", "keys wanted", "no keys"
CUT, CUT_WITHOUT_KEYS = "cut", "cut without keys"
CUTS = frozenset({CUT, CUT_WITHOUT_KEYS})
"""Not certain: a connection that is closed in the handshake may also be that of a box that is just starting."""
REASONS: Mapping[str, str] = {
    KEY_UNKNOWN: "it does not know this key (`edgectl keys list` on the box tells which; a new one needs a reload)",
    KEYS_WANTED: "it wants keys: give `key` and `server_key`",
    NO_KEYS: "it takes no keys: leave `key` and `server_key` away, or give the box a key (`edgectl keys server`)",
    CUT: "it ends the handshake: is `server_key` that of this box (`edgectl keys show-public` there)?",
    CUT_WITHOUT_KEYS: "it ends the handshake: perhaps it wants keys (`key` and `server_key`)",
}


class ReplyError(EdgedError):
    """The daemon answered with an error. `retry_after` is in seconds, None when the daemon did not say."""

    code = "internal"

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after
        self.raw = dict(raw or {})
        """The whole reply or `end` event."""


class BadRequest(ReplyError):
    code = "bad_request"


class UnsupportedVersion(ReplyError):
    code = "unsupported_version"


class UnknownOp(ReplyError):
    code = "unknown_op"


class TooLarge(ReplyError):
    code = "too_large"


class ContextOverflow(ReplyError):
    code = "context_overflow"


class IdConflict(ReplyError):
    code = "id_conflict"


class NotFound(ReplyError):
    code = "not_found"


class Forbidden(ReplyError):
    code = "forbidden"


class Busy(ReplyError):
    code = "busy"


class Loading(ReplyError):
    code = "loading"


class Unavailable(ReplyError):
    code = "unavailable"


class ShuttingDown(ReplyError):
    code = "shutting_down"


class Overheated(ReplyError):
    code = "overheated"


class LowMemory(ReplyError):
    code = "low_memory"


class DeadlineExceeded(ReplyError):
    code = "deadline_exceeded"


class WorkerLost(ReplyError):
    code = "worker_lost"


class Internal(ReplyError):
    code = "internal"


BY_CODE: Mapping[str, type[ReplyError]] = {kind.code: kind for kind in ReplyError.__subclasses__()}


Failure = TypeVar("Failure", bound=EdgedError)


def with_each(error: Failure, each: Mapping[str, str]) -> Failure:
    """The error of a request that several boxes failed, with what each did."""
    told = "; ".join(f"{endpoint}: {why}" for endpoint, why in each.items())
    error.boxes = dict(each)
    if isinstance(error, ReplyError):
        error.message = f"{error.message} [{told}]"
        error.args = (f"{error.code}: {error.message}",)
    else:
        error.args = (f"{error} [{told}]",)
    return error


class MissingFeature(BadRequest, UnknownOp):
    """This daemon is too old for what was asked: `feature` is not among its `features` (`ping`)."""

    feature = ""


FEATURES = frozenset({"session", "json_schema", "grammar", "tools", "thinking", "logprobs", "logit_bias"})
"""Of `generate`; a field is named like its feature but for those of `_PART_OF`."""
VERBS = frozenset({"embed", "warm", "session", "tokenize"})
_PART_OF = {"reset": "session", "tool_choice": "tools", "tool_calls": "tools", "tool_call_id": "tools"}
_UNKNOWN_FIELD = re.compile(r"unknown field `(?:[^`]*\.)?(\w+)`|field `(?:[^`]*\.)?(\w+)`: edged \S+ has not got it")
_UNKNOWN_OP = re.compile(r'op "(\w+)"')


def _missing(code: str, message: str) -> str | None:
    """The feature that an older daemon lacks, by what it says to fields and verbs that it does not know."""
    found = {"bad_request": _UNKNOWN_FIELD, "unknown_op": _UNKNOWN_OP}.get(code)
    match = found.match(message) if found is not None else None
    if match is None:
        return None
    name = next(group for group in match.groups() if group)
    name = _PART_OF.get(name, name)
    return name if name in (VERBS if code == "unknown_op" else FEATURES) else None


def missing(feature: str, version: str) -> MissingFeature:
    """By what `ping` says."""
    error = MissingFeature("bad_request", f"edged {version or '?'} has no feature `{feature}`")
    error.feature = feature
    return error


SHORTEST_S, LONGEST_S = 0.05, 86_400.0
"""Bounds of what a server may ask to wait: one that says 0 would be asked without end."""


def _seconds(milliseconds: object) -> float | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not milliseconds >= 0:
        return None
    return min(max(min(milliseconds, LONGEST_S * 1000) / 1000, SHORTEST_S), LONGEST_S)


def error_of(reply: Mapping[str, Any]) -> ReplyError:
    """The exception for a reply, or an `end` event, that carries `error`; a malformed one is an error all the same."""
    error = reply.get("error")
    if not isinstance(error, Mapping):
        return Internal("internal", f"an error reply without an error: {error!r}", raw=reply)
    code, after = str(error.get("code", "internal")), error.get("retry_after_ms")
    message = str(error.get("message", ""))
    feature = _missing(code, message)
    if feature is not None:
        lacking = MissingFeature(code, f"this daemon has no feature `{feature}` ({message})", raw=reply)
        lacking.feature = feature
        return lacking
    return BY_CODE.get(code, ReplyError)(
        code,
        message,
        retryable=error.get("retryable") is True,
        retry_after=_seconds(after),
        raw=reply,
    )
