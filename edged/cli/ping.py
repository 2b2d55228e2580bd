"""`edgectl ping`: does the daemon's loop turn?"""

from __future__ import annotations

import time

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json


@click.command(epilog=EXITS)
@json_option()
@click.pass_obj
def command(session: Session, /) -> None:
    """Ask for a sign of life; answered also while the model loads.

    \b
    Example:
      edgectl ping
    """
    with session.client() as edged:
        begun = time.monotonic()
        reply = edged.call("ping", deadline_s=session.timeout())
        took = time.monotonic() - begun
    if session.as_json:
        print_json(reply)
        return
    features = reply.get("features")
    named = f" ({', '.join(map(str, features))})" if isinstance(features, list) else ""
    click.echo(one_line(f"edged {reply.get('version', '?')} answered in {took * 1000:.1f} ms{named}"))
