"""`edgectl result`: what became of a request."""

from __future__ import annotations

import sys

import click

from edged import client
from edged.cli.number import Number
from edged.cli.options import json_option
from edged.cli.output import EXIT_NOT_YET, Session, fail, model_text, print_json

WAIT_MAX_S = 86_400.0


@click.command(
    epilog="Exit status: 0 it has finished; 1 it ended in an error, or nobody knows it (any more); 2 usage; "
    "3 nothing answered; 4 it has not finished yet; 130 interrupted."
)
@click.argument("request_id", metavar="ID")
@click.option("--wait", type=Number(0, WAIT_MAX_S), default=0.0, metavar="S", help="Wait up to S seconds for its end.")
@json_option("Print result, progress or error as one JSON object.")
@click.pass_obj
def command(session: Session, /, request_id: str, wait: float) -> None:
    """Print the text of the request ID. Finished ones are kept for a while (limits.result_ttl_s).

    \b
    Example:
      edgectl result sensor7-000042 --wait 30
    """
    with session.client(any_of=True) as edged:
        found = edged.result(request_id, wait, deadline_s=session.timeout())
    if session.as_json:
        print_json(found.raw)
    elif found.text or isinstance(found, client.Result):
        sys.stdout.write(model_text(found.text) + "\n")  # click.echo takes things out of what goes into a pipe
    if isinstance(found, client.Progress):
        sys.stdout.flush()
        if session.as_json:
            sys.exit(EXIT_NOT_YET)
        fail(f"not finished yet: {found.state}", EXIT_NOT_YET)
    if found.finish_reason not in ("stop", "length") and not session.as_json:
        click.echo(f"edgectl: cut off: {found.finish_reason}", err=True)
