"""`edgectl ping`: does the daemon's loop turn?"""

from __future__ import annotations

import time

import click

from edged.cli.output import Session, print_json, printable

ANSWER_S = 5.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the reply as one JSON object.")
@click.pass_obj
def command(session: Session, /, *, as_json: bool) -> None:
    """Ask for a sign of life; answered also while the model loads."""
    with session.client() as edged:
        begun = time.monotonic()
        reply = edged.call("ping", deadline_s=session.timeout(ANSWER_S))
        took = time.monotonic() - begun
    if as_json or session.as_json:
        print_json(reply)
    else:
        features = ", ".join(str(f) for f in reply.get("features", []))
        click.echo(printable(f"edged {reply.get('version', '?')} answered in {took * 1000:.1f} ms ({features})"))
