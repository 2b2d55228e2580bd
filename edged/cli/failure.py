"""How `edgectl` fails with --json: stdout has one object in the shape of protocol 2, whatever went wrong and wherever.

What is said to people goes to stderr at once (`edged.cli.output.fail`); the object is printed at the one way out, by
`edged.cli.main`. A reply of the daemon is printed as it came. Verbs with an object of their own for what is wrong
(`doctor`, `verify`, `health`, `fleet status`) have printed it by then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import click

from edged.errors import EXIT_CONFIG

EXIT_ERROR: Final = 1
EXIT_NO_ANSWER: Final = 3
EXIT_NOT_YET: Final = 4
EXIT_INTERRUPTED: Final = 130

CODES: Final = {
    EXIT_ERROR: "failed",
    click.UsageError.exit_code: "usage",
    EXIT_NO_ANSWER: "no_answer",
    EXIT_NOT_YET: "not_yet",
    EXIT_CONFIG: "configuration",
    EXIT_INTERRUPTED: "interrupted",
}
"""Exit status → `code`, where the daemon said none."""


class Failed(SystemExit):
    """It was told on stderr. `reply`: the daemon's own, with its code."""

    def __init__(self, message: str, status: int, reply: dict[str, Any] | None = None) -> None:
        super().__init__(status)
        self.message = message
        self.status = status
        self.reply = reply


class Stdout:
    """What stdout has already. `whole`: the one object; `lines`: some of a row that goes on."""

    whole = False
    lines = False


STDOUT: Final = Stdout()


def is_json(words: Sequence[str]) -> bool:
    """Of a command line. Not by the parsed option: a usage error may come before it is parsed."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def text(failed: Failed) -> str | None:
    """The object, as one line of ASCII; None when it would be a second one, or ends a row that was interrupted."""
    interrupted = failed.status == EXIT_INTERRUPTED
    if STDOUT.whole or (STDOUT.lines and interrupted):
        return None
    error = {"code": CODES.get(failed.status, "failed"), "message": " ".join(failed.message.split())}
    return json.dumps(failed.reply or {"ok": False, "error": error})
