"""Options on what an answer must look like and belongs to: for `ask`; and the session, for `chat` too."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from edged import client
from edged.cli.options import STDIN_BYTES, text_or_stdin
from edged.cli.output import one_line
from edged.cli.table import Column, table
from edged.cli.terminal import width

Command = TypeVar("Command", bound=Callable[..., Any])
STDIN: Final = "-"


def session_option(command: Command) -> Command:
    return click.option(
        "--session", "talk", metavar="NAME", help="A conversation that the daemon keeps: it knows what was said before."
    )(command)


def shape_options(command: Command) -> Command:
    for option in reversed(
        [
            click.option("--reset", is_flag=True, help="The session begins afresh."),
            click.option(
                "--schema", metavar="FILE", help="The answer is JSON of the schema in FILE; - reads it from stdin."
            ),
            click.option("--grammar", metavar="FILE", help="The answer is of the GBNF grammar in FILE, or -."),
            click.option(
                "--thinking/--no-thinking", default=None, help="For models that can; --json shows what was thought."
            ),
            click.option(
                "--logprobs", type=click.IntRange(0, 20), metavar="N", help="A table of N alternatives per token."
            ),
        ]
    ):
        command = option(command)
    return command


def shape(
    prompt: str | None,
    *,
    talk: str | None,
    reset: bool,
    schema: str | None,
    grammar: str | None,
    thinking: bool | None,
    logprobs: int | None,
) -> dict[str, Any]:
    """The options that were used, as fields of the request."""
    if reset and talk is None:
        raise click.UsageError("--reset needs --session")
    if schema is not None and grammar is not None:
        raise click.UsageError("one of --schema and --grammar")
    if STDIN in (schema, grammar) and prompt is None:
        raise click.UsageError("stdin is the schema or grammar: give the prompt as an argument")
    fields: dict[str, Any] = {"session": talk, "thinking": thinking, "logprobs": logprobs}
    if reset:
        fields["reset"] = True
    if schema is not None:
        fields["json_schema"] = _schema(_read(schema, "--schema"))
    if grammar is not None:
        fields["grammar"] = _read(grammar, "--grammar")
    return {name: value for name, value in fields.items() if value is not None}


def _read(name: str, option: str) -> str:
    if name == STDIN:
        return text_or_stdin(None, f"{option} -: nothing on stdin")
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read(STDIN_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.UsageError(f"{option}: {name}: {why}") from None
    if len(text) > STDIN_BYTES:
        raise click.UsageError(f"{option}: {name} is longer than {STDIN_BYTES} bytes")
    return text


def _schema(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--schema: not JSON: {one_line(str(error))}") from None
    if not isinstance(schema, dict):
        raise click.UsageError("--schema: expected a JSON object")
    return schema


def remarks(result: client.Result) -> list[str]:
    """What is to be known about a turn of a session."""
    out = []
    if result.dropped_turns:
        out.append(f"turns that no longer fit and were left out: {result.dropped_turns}")
    if not result.stored:
        out.append("this turn could not be stored: the session goes on without it")
    return out


def likelihoods(result: client.Result) -> list[str]:
    """Each token with its probability and the alternatives."""
    if not result.logprobs:
        return []
    tokens = tuple(_token(one.token) for one in result.logprobs)
    chances = tuple(_percent(one.logprob) for one in result.logprobs)
    others = tuple(" ".join(f"{_token(t.token)} {_percent(t.logprob)}" for t in one.top) for one in result.logprobs)
    return table(
        [Column("TOKEN", tokens, least=6), Column("%", chances, right=True), Column("LIKELIEST", others, least=10)],
        width(),
    )


def _token(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)


def _percent(logprob: float) -> str:
    return f"{100 * math.exp(min(0.0, logprob)):.1f}"
