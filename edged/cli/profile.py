"""`edgectl profile`: which ways to run the model there are, which one is in force, and an operator's choice."""

from __future__ import annotations

from typing import Any

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json
from edged.cli.table import Column, table
from edged.cli.terminal import width
from edged.cli.words import words


@click.command(epilog=EXITS)
@click.argument("name", required=False)
@click.option("--auto", is_flag=True, help="Let the watchdog choose again.")
@json_option()
@click.pass_obj
def command(session: Session, /, name: str | None, *, auto: bool) -> None:
    """List the profiles of the configuration, or pin NAME: it is loaded, and heat and deaths lead to no other.

    A critical level unloads a pinned one too. A pin ends with --auto or with the daemon. Goes over the control socket.

    \b
    Examples:
      edgectl profile
      edgectl profile small
      edgectl profile --auto
    """
    if name is not None and auto:
        raise click.UsageError("give NAME or --auto")
    fields: dict[str, Any] = {"auto": True} if auto else {} if name is None else {"profile": name}
    reply = session.call("profile", control=True, **fields)
    if session.as_json:
        print_json(reply)
        return
    for line in listed(reply, width()):
        click.echo(one_line(line) if width() is None else line)


def listed(reply: dict[str, Any], columns: int | None) -> list[str]:
    """A row a profile. Pure."""
    found = reply.get("profiles")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    if not rows:
        return ["no profiles"]
    shown = [
        Column("PROFILE", _cells(rows, "name"), least=8),
        Column("", tuple(_marks(row, reply) for row in rows)),
        Column("CONTEXT", _cells(rows, "context"), rank=1, right=True),
        Column("SEQUENCES", _cells(rows, "sequences"), rank=3, right=True),
        Column("MEMORY", tuple(_need(row) for row in rows)),
        Column("FILE", _cells(rows, "file"), rank=2, least=12),
    ]
    out = table(shown, columns)
    if isinstance(reply.get("available_mb"), int):
        out.append(f"{reply['available_mb']} MB available, counting what the model at hand would give back")
    return out


def _cells(rows: list[dict[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(one_line(words(row.get(key))) for row in rows)


def _marks(row: dict[str, Any], reply: dict[str, Any]) -> str:
    name = row.get("name")
    wanted = name == reply.get("wanted") and not row.get("current")
    marks = ["current"] * bool(row.get("current")) + ["wanted"] * wanted + ["pinned"] * (name == reply.get("pinned"))
    return ", ".join(marks)


def _need(row: dict[str, Any]) -> str:
    """About how much it takes, as far as its file was read."""
    if not isinstance(row.get("need_mb"), int):
        return "?"
    return f"{row['need_mb']} MB" + (", does not fit" if row.get("fits") is False else "")
