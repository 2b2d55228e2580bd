"""What a check says. Data, and which finding is worse than which."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct


class Severity(StrEnum):
    """`error`: it does not work, or will stop to. `warning`: it works, and something ought to be done. `unknown`: it
    could not be seen. `info`: good to know, nothing to do."""

    OK = "ok"
    INFO = "info"
    UNKNOWN = "unknown"
    WARNING = "warning"
    ERROR = "error"


RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Finding(Struct, frozen=True):
    """`check`: its name, as for `--check`. `what` is so, `why` it matters, what to `do`."""

    check: str
    severity: Severity
    what: str
    why: str = ""
    do: str = ""


def worst(findings: Iterable[Finding]) -> Severity:
    return max((finding.severity for finding in findings), key=RANK.__getitem__, default=Severity.OK)


def ok(check: str, what: str) -> Finding:
    return Finding(check, Severity.OK, what)


def info(check: str, what: str, why: str = "", do: str = "") -> Finding:
    return Finding(check, Severity.INFO, what, why, do)


def unknown(check: str, what: str, why: str = "", do: str = "") -> Finding:
    return Finding(check, Severity.UNKNOWN, what, why, do)


def warning(check: str, what: str, why: str = "", do: str = "") -> Finding:
    return Finding(check, Severity.WARNING, what, why, do)


def error(check: str, what: str, why: str = "", do: str = "") -> Finding:
    return Finding(check, Severity.ERROR, what, why, do)
