"""Options and texts that several verbs take."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from edged.cli.number import Number
from edged.cli.output import Session

Command = TypeVar("Command", bound=Callable[..., Any])

EXITS = "Exit status: 0 done; 1 the daemon answered with an error; 2 usage; 3 nothing answered; 130 interrupted."
STDIN_BYTES = 1024 * 1024
"""Four times `limits.request_bytes` by default: beyond it the daemon cuts the line without a word."""
"""More than any daemon takes, and little enough for the memory of a small board."""


def _set_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    session = ctx.find_object(Session)
    if value and session is not None:
        session.as_json = True


def json_option(what: str = "Print the reply as one JSON object.") -> Callable[[Command], Command]:
    """`edgectl VERB --json`, the same as `edgectl --json VERB`."""
    return click.option("--json", "as_json", is_flag=True, expose_value=False, callback=_set_json, help=what)


def sampling_options(command: Command) -> Command:
    """How an answer is drawn: for `ask` and `chat`. What is left out is the daemon's default."""
    for option in reversed(
        [
            click.option("--max-tokens", type=click.IntRange(min=1), help="At most so many tokens."),
            click.option("--temperature", type=Number(0, 2), help="0 is greedy."),
            click.option("--top-k", type=click.IntRange(0, 1000), help="Of the so many likeliest tokens; 0 is off."),
            click.option("--top-p", type=Number(0, 1, min_open=True), help="Of the likeliest, up to this."),
            click.option("--min-p", type=Number(0, 1), help="None less likely than this part of the best."),
            click.option("--repeat-penalty", type=Number(0.5, 2), help="Over 1 repeats less."),
            click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Repeat a random answer."),
            click.option("--stop", multiple=True, metavar="TEXT", help="End before this text. May be given 8 times."),
        ]
    ):
        command = option(command)
    return command


def deadline_option(command: Command) -> Command:
    seconds = Number(min=0.001, max=86_400)
    return click.option("--deadline", type=seconds, metavar="S", help="Seconds until an answer is cut off.")(command)


def given(sampling: dict[str, Any]) -> dict[str, Any]:
    """The sampling options that were used, as fields of the request."""
    fields = {name: value for name, value in sampling.items() if value not in (None, ())}
    if "stop" in fields:
        fields["stop"] = list(fields["stop"])
    return fields


def text_or_stdin(text: str | None, nothing: str) -> str:
    """The argument, else all of stdin. `nothing`: what to say to a terminal that gives neither."""
    if text is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError(nothing)
        read = sys.stdin.buffer.read(STDIN_BYTES + 1)
        if len(read) > STDIN_BYTES:
            raise click.UsageError(f"stdin is longer than {STDIN_BYTES} bytes")
        try:
            text = read.decode("utf-8").rstrip("\n")
        except UnicodeDecodeError as error:
            raise click.UsageError(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from None
    return utf8(text, "the text")


def utf8(text: str, what: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise click.UsageError(f"{what} is not UTF-8") from None
    return text


def turns_of(text: str) -> list[Any]:
    """--messages: a conversation as JSON."""
    try:
        turns = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--messages: not JSON: {error}") from None
    if not (isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns)):
        raise click.UsageError('--messages: expected a list such as [{"role": "user", "content": "…"}]')
    return turns
