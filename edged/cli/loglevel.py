"""`edgectl loglevel`: how much the daemon logs, until its next start."""

from __future__ import annotations

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json


@click.command(epilog=EXITS, short_help="Log more or less, until the daemon is restarted.")
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error"]))
@json_option()
@click.pass_obj
def command(session: Session, /, level: str) -> None:
    """Log from LEVEL on, until the daemon is restarted (`log_level` in the configuration is for good).

    Goes over the control socket.

    \b
    Example:
      edgectl loglevel debug
    """
    reply = session.call("loglevel", control=True, level=level)
    if session.as_json:
        print_json(reply)
    else:
        click.echo(one_line(f"log level {reply.get('level', level)}"))
