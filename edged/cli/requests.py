"""`edgectl requests`: what waits and runs, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json
from edged.cli.table import Column, table
from edged.cli.terminal import width
from edged.cli.words import duration, words


@click.command(epilog=EXITS, short_help="List what waits and runs, whoever it belongs to.")
@json_option()
@click.pass_obj
def command(session: Session, /) -> None:
    """List what waits and runs, whoever it belongs to; never any text. Goes over the control socket.

    TOKENS are those written, of those allowed. ENDS IN is what is left of the deadline.

    \b
    Example:
      edgectl requests
    """
    reply = session.call("requests", control=True)
    if session.as_json:
        print_json(reply)
        return
    found = reply.get("requests")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    if not rows:
        click.echo("nothing waits or runs")
        return
    for line in table(columns(rows), width()):
        click.echo(line)


def columns(rows: Sequence[dict[str, Any]]) -> list[Column]:
    def of(name: str) -> tuple[str, ...]:
        return tuple(one_line(words(row.get(name))) for row in rows)

    def seconds(name: str) -> tuple[str, ...]:
        return tuple(duration(ms / 1000) if isinstance(ms := row.get(name), int | float) else "?" for row in rows)

    def pair(done: str, total: str) -> tuple[str, ...]:
        return tuple(f"{words(row.get(done))}/{words(row.get(total))}" for row in rows)

    return [
        Column("ID", of("id"), least=8),
        Column("IDENTITY", of("identity"), rank=2, least=8),
        Column("STATE", of("state")),
        Column("TOKENS", pair("completion_tokens", "max_tokens"), right=True),
        Column("AGE", seconds("age_ms"), rank=1, right=True),
        Column("ENDS IN", seconds("deadline_in_ms"), rank=3, right=True),
        Column("PRIORITY", of("priority"), rank=4),
        Column("PROMPT", of("prompt_tokens"), rank=5, right=True),
        Column("STREAM", of("stream"), rank=6),
    ]
