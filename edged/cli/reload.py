"""`edgectl reload`: a fresh worker, while requests go on."""

from __future__ import annotations

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json


@click.command(epilog=EXITS)
@click.option("--profile", metavar="NAME", help="Load this profile; the watchdog may choose another later.")
@json_option()
@click.pass_obj
def command(session: Session, /, profile: str | None) -> None:
    """Replace the worker: the model is loaded anew, running requests go on where they were.

    Returns at once; `edgectl status` shows how far it is. Ends `unavailable` too: past deaths are forgotten. Goes over
    the control socket.

    \b
    Examples:
      edgectl reload
      edgectl reload --profile small && edgectl status --watch
    """
    fields = {} if profile is None else {"profile": profile}
    reply = session.call("reload", control=True, **fields)
    if session.as_json:
        print_json(reply)
    else:
        state, name = reply.get("state", "?"), reply.get("profile", "?")
        click.echo(one_line(f"{state}: profile {name}; `edgectl status` shows how far it is"))
