"""Is this box as it should be? The judging of `edgectl verify`. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

TOO_HOT: Final = ("hot", "critical")
"""Levels at which the board refuses work."""


class Expected(Struct, frozen=True):
    """None: whatever it is. `max_temperature`: °C; None: the level says whether it is too hot."""

    version: str | None = None
    model_sha256: str | None = None
    tokens_sha256: str | None = None
    max_temperature: float | None = None


class Answer(Struct, frozen=True):
    """What a generation came to: token ids and bytes of text, or `error` in words."""

    tokens: tuple[int, ...] = ()
    text_bytes: int = 0
    error: str = ""

    @property
    def tokens_sha256(self) -> str | None:
        return tokens_sha256(self.tokens) if self.tokens else None


def tokens_sha256(tokens: Sequence[int]) -> str:
    """Of the ids in decimal with a comma between: `7,42` is `printf 7,42 | sha256sum`."""
    return hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest()


def verdict(expected: Expected, status: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """What is printed: `problems` in words, the rest is what was found. `restarts`: of the worker, since the start."""
    watchdog = _part(status, "watchdog")
    problems = list(_problems(expected, status, answer))
    return {
        "ok": not problems,
        "version": status.get("version"),
        "state": status.get("state"),
        "instance": status.get("instance"),
        "model": {name: _part(status, "model").get(name) for name in ("name", "sha256")},
        "level": watchdog.get("level"),
        "temperature_c": _temperature(status),
        "tokens_sha256": answer.tokens_sha256,
        "tokens": len(answer.tokens),
        "text_bytes": answer.text_bytes,
        "restarts": watchdog.get("worker_deaths"),
        "problems": problems,
    }


def _problems(expected: Expected, status: dict[str, Any], answer: Answer) -> Iterator[str]:
    version, sha256 = status.get("version"), _part(status, "model").get("sha256")
    if expected.version is not None and version != expected.version:
        yield f"version is {version}, expected {expected.version}"
    if status.get("ready") is not True:
        said = _warnings(status)
        yield f"not ready: {status.get('state')}" + (f" ({said})" if said else "")
    if expected.model_sha256 is not None and sha256 != expected.model_sha256:
        yield f"the model's sha256 is {sha256 or 'not known yet'}, expected {expected.model_sha256}"
    if answer.error:
        yield f"no answer was generated: {answer.error}"
    elif not answer.tokens:
        yield "the answer has no tokens"
    elif expected.tokens_sha256 not in (None, answer.tokens_sha256):
        yield f"the tokens' sha256 is {answer.tokens_sha256}, expected {expected.tokens_sha256}"
    yield from _heat(expected, status)


def _heat(expected: Expected, status: dict[str, Any]) -> Iterator[str]:
    level, temperature = _part(status, "watchdog").get("level"), _temperature(status)
    if expected.max_temperature is None:
        if level in TOO_HOT:
            why = _part(status, "watchdog").get("why")
            yield f"the level is {level}" + (f": {why}" if why else "")
    elif temperature is None:
        yield f"the temperature is not known, expected at most {expected.max_temperature:g} °C"
    elif temperature > expected.max_temperature:
        yield f"the temperature is {temperature:g} °C, expected at most {expected.max_temperature:g}"


def _temperature(status: dict[str, Any]) -> float | None:
    found = _part(_part(status, "watchdog"), "readings").get("temperature_c")
    return float(found) if isinstance(found, int | float) else None


def _warnings(status: dict[str, Any]) -> str:
    found = status.get("warnings")
    return "; ".join(map(str, found)) if isinstance(found, list) else ""


def _part(whole: dict[str, Any], name: str) -> dict[str, Any]:
    found = whole.get(name)
    return found if isinstance(found, dict) else {}
