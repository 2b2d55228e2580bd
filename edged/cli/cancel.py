"""`edgectl cancel`: end a request."""

from __future__ import annotations

import click

from edged.cli.options import EXITS, json_option
from edged.cli.output import Session, one_line, print_json


@click.command(epilog=EXITS)
@click.argument("request_id", metavar="ID")
@click.option("--identity", help="Whose request it is, for operators (over the control socket).")
@json_option()
@click.pass_obj
def command(session: Session, /, request_id: str, identity: str | None) -> None:
    """End the request ID; it keeps what it has written so far. Doing it twice does no harm.

    \b
    Examples:
      edgectl cancel sensor7-000042
      edgectl cancel sensor7-000042 --identity uid:1001
    """
    fields = {"id": request_id} if identity is None else {"id": request_id, "identity": identity}
    reply = session.call("cancel", control=identity is not None, **fields)
    if session.as_json:
        print_json(reply)
        return
    state = str(reply.get("state", "?"))
    click.echo(one_line("it had finished already" if state == "finished" else state))
