"""`edgectl tokenize`: how many tokens a text is, and whether it fits."""

from __future__ import annotations

from typing import Any

import click

from edged.cli.options import EXITS, json_option, text_or_stdin, turns_of
from edged.cli.output import Session, print_json
from edged.cli.terminal import width, wrapped

PATIENCE_S = 30.0


@click.command(epilog=EXITS, short_help="Count the tokens of a text: does it fit?")
@click.argument("text", required=False)
@click.option("--chat", is_flag=True, help="As one message of a user, with the model's chat template.")
@click.option("--messages", is_flag=True, help='TEXT is a JSON list of {"role", "content"}: a whole conversation.')
@json_option()
@click.pass_obj
def command(session: Session, /, text: str | None, *, chat: bool, messages: bool) -> None:
    """Count the tokens of TEXT (or of what comes on stdin), and say whether they fit into the context.

    \b
    Examples:
      edgectl tokenize "Why is the sky blue?"
      edgectl tokenize --messages < conversation.json
    """
    if chat and messages:
        raise click.UsageError("one of --chat and --messages")
    given = text_or_stdin(text, 'nothing to count: edgectl tokenize "…", or a text on stdin')
    asked: dict[str, Any] = {"text": given}
    if chat:
        asked = {"messages": [{"role": "user", "content": given}]}
    elif messages:
        asked = {"messages": turns_of(given)}
    with session.client(any_of=True) as edged:
        found = edged.tokenize(**asked, deadline_s=session.timeout(PATIENCE_S))
    if session.as_json:
        print_json(found.raw)
        return
    click.echo(f"{found.count} tokens, {'fits' if found.fits else 'too many for the context'}")
    line, columns = " ".join(map(str, found.tokens)), width()
    for part in [line] if columns is None else wrapped(line, columns):
        click.echo(part)
