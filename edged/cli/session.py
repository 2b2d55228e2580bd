"""`edgectl session`: conversations that the daemon keeps: list, show, delete."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, model_text, one_line, print_json
from edged.cli.table import Column, table
from edged.cli.terminal import width
from edged.cli.words import duration, words

identity_option = click.option("--identity", help="Whose session it is, for operators (over the control socket).")


@click.group(short_help="List, show and delete conversations that the daemon keeps.")
def command() -> None:
    """Conversations that the daemon keeps: list, show, delete.

    A session belongs to the caller that began it, with `"session"` in a request. NAME is what was said there.
    """


@command.command("list", epilog=EXITS)
@click.option("--identity", help="Of this caller only.")
@json_option()
@click.pass_obj
def list_command(session: Session, /, identity: str | None) -> None:
    """List the sessions, whoever they belong to; never any text. Goes over the control socket.

    USED is how long ago the last turn ended.

    \b
    Examples:
      edgectl session list
      edgectl session list --identity uid:1001
    """
    reply = session.call("sessions", control=True, **({} if identity is None else {"identity": identity}))
    if session.as_json:
        print_json(reply)
        return
    rows = _dicts(reply.get("sessions"))
    if not rows:
        click.echo("no sessions")
        return
    for line in table(columns(rows, time.time()), width()):
        click.echo(line)
    if reply.get("omitted"):
        click.echo(one_line(f"and {words(reply['omitted'])} more, used longer ago"))


@command.command("show", epilog=EXITS)
@click.argument("name")
@identity_option
@json_option()
@click.pass_obj
def show_command(session: Session, /, name: str, identity: str | None) -> None:
    """Print what was said in a session: the newest turns, as far as one reply holds them.

    \b
    Examples:
      edgectl session show kitchen
      edgectl session show kitchen --identity uid:1001 --json
    """
    reply = _about(session, "get", name, identity)
    if session.as_json:
        print_json(reply)
        return
    for line in transcript(reply):
        click.echo(line)


@command.command("delete", epilog=EXITS)
@click.argument("name")
@identity_option
@json_option()
@click.pass_obj
def delete_command(session: Session, /, name: str, identity: str | None) -> None:
    """Delete a session and its text. Refused while a turn of it waits or runs.

    \b
    Examples:
      edgectl session delete kitchen
      edgectl session delete kitchen --identity uid:1001
    """
    reply = _about(session, "delete", name, identity)
    if session.as_json:
        print_json(reply)
    else:
        click.echo("deleted")


def _about(session: Session, action: str, name: str, identity: str | None) -> dict[str, Any]:
    if identity is None:
        return session.call("session", session=name, action=action)
    return session.call("sessions", control=True, session=name, action=action, identity=identity)


def columns(rows: Sequence[dict[str, Any]], now: float) -> list[Column]:
    def of(name: str) -> tuple[str, ...]:
        return tuple(one_line(words(row.get(name))) for row in rows)

    def ago(row: dict[str, Any]) -> str:
        return duration(now - at) if isinstance(at := row.get("updated"), int | float) else "?"

    return [
        Column("SESSION", of("session"), least=8),
        Column("IDENTITY", of("identity"), rank=1, least=8),
        Column("TURNS", of("turns"), right=True),
        Column("BYTES", of("bytes"), rank=3, right=True),
        Column("USED", tuple(map(ago, rows)), rank=2, right=True),
    ]


def transcript(reply: dict[str, Any]) -> Iterator[str]:
    """Role and text of each message; what is not shown is said first."""
    if reply.get("omitted"):
        yield one_line(f"({words(reply['omitted'])} of {words(reply.get('turns_total'))} turns are not shown)")
    messages = [*_dicts(reply.get("system"))]
    for turn in _dicts(reply.get("turns")):
        messages += _dicts(turn.get("messages"))
    for message in messages:
        yield f"{one_line(words(message.get('role')))}: {model_text(words(message.get('content')))}"
        for call in _dicts(message.get("tool_calls")):
            yield f"  calls {one_line(words(call.get('function')))}"


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
