"""`edgectl drain`: no new requests."""

from __future__ import annotations

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json


@click.command(epilog=EXITS)
@json_option()
@click.pass_obj
def command(session: Session, /) -> None:
    """Refuse new requests; what is accepted goes on to its end. `edgectl resume` ends this, and so does a restart.

    Goes over the control socket.

    \b
    Example:
      edgectl drain && edgectl requests
    """
    reply = session.call("drain", control=True)
    if session.as_json:
        print_json(reply)
    else:
        click.echo(one_line(f"{reply.get('state', '?')}: new requests are refused until `edgectl resume`"))
