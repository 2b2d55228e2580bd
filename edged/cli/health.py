"""`edgectl health`: is it ready? For scripts, containers and units that come after."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
from msgspec import Struct

from edged import client
from edged.cli import reach
from edged.cli.glance import how
from edged.cli.number import Number
from edged.cli.options import json_option
from edged.cli.output import ANSWER_S, EXIT_ERROR, Session, error_words, fail, one_line, print_json, silence_words
from edged.cli.terminal import Passing

POLL_S = 0.2
LEAST_S = 0.2
"""A look may take this long, however little of --wait is left."""


class Seen(Struct, frozen=True):
    """`words`: `ready`, `loading 43%`, or why nothing answers."""

    ready: bool
    words: str
    status: dict[str, Any]


@click.command(epilog="Exit status: 0 ready; 1 not ready, or nothing answered; 2 usage; 130 interrupted.")
@click.option(
    "--wait", type=Number(0, 86_400), default=0.0, metavar="S", help="Wait up to S seconds until it is ready."
)
@json_option('Print {"ready", "state", "words", "waited_s"} as one JSON object.')
@click.pass_obj
def command(session: Session, /, wait: float) -> None:
    """Say whether the daemon takes prompts now.

    \b
    Example:
      edgectl health --wait 60 && edgectl ask "Good morning!"
    """
    begun = time.monotonic()
    until, passing, told = begun + wait, Passing(), ""
    while True:
        left = until - time.monotonic()
        seen = look(session, min(session.timeout(ANSWER_S), max(left, LEAST_S)) if wait else session.timeout(ANSWER_S))
        left = until - time.monotonic()
        if seen.ready or left <= 0:
            break
        passing.show(f"{seen.words} … {left:.0f} s")
        state = str(seen.status.get("state"))
        if state != told and not sys.stderr.isatty() and not session.as_json:
            click.echo(f"edgectl: {one_line(seen.words)}", err=True)
        told = state
        time.sleep(min(POLL_S, left))
    passing.clear()
    _tell(session, seen, time.monotonic() - begun)


def look(session: Session, patience_s: float) -> Seen:
    endpoint = session.endpoint
    why = reach.unreachable(endpoint)
    try:
        if not why:
            with session.connect(endpoint) as edged:
                status = edged.call("status", deadline_s=patience_s)
            return Seen(status.get("ready") is True, how(status), status)
    except client.NoAnswer as error:
        why = silence_words(endpoint, error)
    except client.ReplyError as error:
        why = error_words(error)
    except client.BadEndpoint as error:
        raise click.UsageError(str(error)) from None
    return Seen(ready=False, words=why, status={})


def _tell(session: Session, seen: Seen, waited_s: float) -> None:
    if session.as_json:
        state = seen.status.get("state")
        print_json({"ready": seen.ready, "state": state, "words": seen.words, "waited_s": round(waited_s, 3)})
    elif seen.ready:
        click.echo(seen.words)
    elif not seen.status:
        fail(seen.words, EXIT_ERROR)
    else:
        words = seen.words if "not ready" in seen.words else f"not ready: {seen.words}"
        click.echo(words)
    if not seen.ready:
        sys.exit(EXIT_ERROR)
