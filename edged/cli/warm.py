"""`edgectl warm`: has the beginning of a conversation read ahead."""

from __future__ import annotations

import click

from edged.cli.options import EXITS, deadline_option, json_option, text_or_stdin, turns_of
from edged.cli.output import Session, print_json

DEADLINE_S = 120.0


@click.command(epilog=EXITS, short_help="Have a system message read ahead, so that answers begin sooner.")
@click.argument("text", required=False)
@click.option("--messages", is_flag=True, help='TEXT is a JSON list of {"role", "content"}: a longer beginning.')
@deadline_option
@json_option()
@click.pass_obj
def command(session: Session, /, text: str | None, deadline: float | None, *, messages: bool) -> None:
    """Have the system message TEXT (or what comes on stdin) read ahead, at low priority: a later prompt that begins
    with it starts sooner.

    \b
    Examples:
      edgectl warm < system.txt
      edgectl warm --messages '[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}]'
    """
    given = text_or_stdin(text, 'nothing to read: edgectl warm "…", or a text on stdin')
    turns = turns_of(given) if messages else [{"role": "system", "content": given}]
    with session.client(any_of=True) as edged:
        found = edged.warm(turns, deadline_s=deadline or session.timeout(DEADLINE_S))
    if session.as_json:
        print_json(found.raw)
        return
    click.echo(f"{found.tokens} tokens, {found.cached_tokens} of them were read before")
