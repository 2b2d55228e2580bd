"""`edgectl resume`: the end of a drain."""

from __future__ import annotations

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json


@click.command(epilog=EXITS)
@json_option()
@click.pass_obj
def command(session: Session, /) -> None:
    """Take new requests again after `edgectl drain`. Goes over the control socket.

    \b
    Example:
      edgectl resume
    """
    reply = session.call("resume", control=True)
    if session.as_json:
        print_json(reply)
    else:
        click.echo(one_line(f"{reply.get('state', '?')}: no longer draining"))
