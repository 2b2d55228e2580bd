"""`edgectl embed`: texts as vectors."""

from __future__ import annotations

import click

from edged.cli.options import EXITS, deadline_option, json_option, text_or_stdin, utf8
from edged.cli.output import Session, print_json

DEADLINE_S = 120.0
SHOWN = 6


@click.command(epilog=EXITS, short_help="Turn texts into vectors: how alike are they?")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@deadline_option
@json_option("Print the reply with all numbers as one JSON object.")
@click.pass_obj
def command(session: Session, /, texts: tuple[str, ...], deadline: float | None) -> None:
    """Turn each TEXT (or each line of stdin, at most 64) into a unit vector: the dot product of two tells how alike
    their texts are.

    \b
    Examples:
      edgectl embed "a cat sleeps" "a kitten is sleeping"
      edgectl embed --json < lines.txt | jq '.embeddings | length'
    """
    given = list(texts)
    if not given:
        read = text_or_stdin(None, 'nothing to embed: edgectl embed "…", or lines on stdin')
        given = [line for line in read.splitlines() if line]
    if not given or not all(given):
        raise click.UsageError("a text is empty")
    asked = [utf8(text, "a text") for text in given]
    with session.client(any_of=True) as edged:
        found = edged.embed(asked, deadline_s=deadline or session.timeout(DEADLINE_S))
    if session.as_json:
        print_json(found.raw)
        return
    for vector in found.embeddings:
        more = " …" if len(vector) > SHOWN else ""
        click.echo(f"{len(vector)} numbers: {' '.join(f'{x:.4f}' for x in vector[:SHOWN])}{more}")
