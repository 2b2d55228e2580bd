"""The error taxonomy (protocol 10): wire code, whether a retry makes sense, exit code.

Blame is in the type: `WireError` answers a peer and goes no further; `ConfigError` is the operator's
and ends a command with 78; `EngineError` is ours and costs the worker, never the daemon.
"""

from __future__ import annotations

from enum import StrEnum

from edged.printable import line

EXIT_CONFIG = 78
"""EX_CONFIG of sysexits(3)."""


class Code(StrEnum):
    """Every error code of protocol 10."""

    BAD_REQUEST = "bad_request"
    UNSUPPORTED_VERSION = "unsupported_version"
    UNKNOWN_OP = "unknown_op"
    TOO_LARGE = "too_large"
    CONTEXT_OVERFLOW = "context_overflow"
    ID_CONFLICT = "id_conflict"
    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    BUSY = "busy"
    LOADING = "loading"
    UNAVAILABLE = "unavailable"
    SHUTTING_DOWN = "shutting_down"
    OVERHEATED = "overheated"
    LOW_MEMORY = "low_memory"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    WORKER_LOST = "worker_lost"
    INTERNAL = "internal"


RETRYABLE = frozenset(
    {
        Code.BUSY,
        Code.LOADING,
        Code.UNAVAILABLE,
        Code.SHUTTING_DOWN,
        Code.OVERHEATED,
        Code.LOW_MEMORY,
        Code.DEADLINE_EXCEEDED,
        Code.WORKER_LOST,
        Code.INTERNAL,
    }
)


class WireError(Exception):
    """An error reply: what a peer is told, and nothing else happens.

    `retry_after_ms` is an estimate in milliseconds, or None when nothing is known. `final`: a retry makes no sense
    although the code allows one: the request itself is to blame.
    """

    def __init__(self, code: Code, message: str, retry_after_ms: int | None = None, *, final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.final = final

    @property
    def retryable(self) -> bool:
        return self.code in RETRYABLE and not self.final

    def fields(self) -> dict[str, str | bool | int]:
        """The `error` object of protocol 2."""
        fields: dict[str, str | bool | int] = {
            "code": str(self.code),
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.retry_after_ms is not None:
            fields["retry_after_ms"] = self.retry_after_ms
        return fields


class ConfigError(Exception):
    """The configuration is wrong: one line naming file, key path, expected, found."""

    def __init__(self, file: str, key: str, expected: str, found: str) -> None:
        self.file, self.key = file, line(key, 150)
        self.expected, self.found = line(expected, 250), line(found, 250)
        super().__init__(f"{file}: {self.key}: expected {self.expected}, found {self.found}")


class ModelFileError(Exception):
    """A model file that must not be loaded. `kind` is one of the constants below."""

    NOT_GGUF = "not_gguf"
    TRUNCATED = "truncated"
    WRONG_SHA256 = "wrong_sha256"
    UNSUPPORTED = "unsupported_architecture"
    MISSING = "missing"

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EngineError(Exception):
    """llama.cpp refused or broke: the worker ends, the daemon starts another."""
