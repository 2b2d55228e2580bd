"""`edgectl ask`: one prompt, the tokens as they come."""

from __future__ import annotations

import sys
from typing import Any

import click

from edged import client
from edged.cli.output import EXIT_INTERRUPTED, Session, fail, model_text, print_json

ANSWER_S = 30.0


@click.command()
@click.argument("prompt", required=False)
@click.option("--max-tokens", type=click.IntRange(min=1), help="At most so many tokens.")
@click.option("--temperature", type=click.FloatRange(0, 2), help="0 is greedy.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Repeat a random answer.")
@click.option("--system", help="A system message before the prompt.")
@click.option("--raw", is_flag=True, help="Send the text as it is, without the model's chat template.")
@click.option("--deadline", type=click.FloatRange(min=0.001, max=86_400), help="Seconds until the answer is cut off.")
@click.option("--json", "as_json", is_flag=True, help="Print the final result as one JSON object.")
@click.pass_obj
def command(
    session: Session,
    /,
    prompt: str | None,
    system: str | None,
    deadline: float | None,
    *,
    raw: bool,
    as_json: bool,
    **sampling: float | None,
) -> None:
    """Send PROMPT (or what comes on stdin) and print the answer as it is written.

    Ctrl-C cancels the request in the daemon too.
    """
    if raw and system is not None:
        raise click.UsageError("--system needs the chat template that --raw leaves out")
    text = _prompt(prompt)
    options: dict[str, Any] = {k: v for k, v in sampling.items() if v is not None}
    if raw:
        options["prompt"] = text
    else:
        turns = [{"role": "user", "content": text}]
        options["messages"] = turns if system is None else [{"role": "system", "content": system}, *turns]
    quiet = as_json or session.as_json
    patience = session.timeout(ANSWER_S)
    with session.client() as edged:
        try:
            with edged.stream(deadline_s=deadline, answer_s=patience, retry=False, **options) as stream:
                _show(stream, quiet=quiet)
        except KeyboardInterrupt:
            fail("cancelled", EXIT_INTERRUPTED)


def _prompt(given: str | None) -> str:
    if given is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError('nothing to ask: edgectl ask "…", or a text on stdin')
        try:
            given = sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
        except UnicodeDecodeError as error:
            raise click.UsageError(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        given.encode("utf-8")
    except UnicodeEncodeError:
        raise click.UsageError("the prompt is not UTF-8") from None
    if not given:
        raise click.UsageError("the prompt is empty")
    return given


def _show(stream: client.Stream, *, quiet: bool) -> None:
    """The answer as it comes, or the end as one JSON object."""
    try:
        for event in stream.events():
            if quiet:
                continue
            if isinstance(event, client.Piece):
                sys.stdout.write(model_text(event.text))
                sys.stdout.flush()
            elif isinstance(event, client.Anew) and event.discarded:
                click.echo("\nedgectl: the daemon was restarted; it begins again", err=True)
    except client.ReplyError as error:
        if quiet:
            print_json(error.raw)
        elif stream.text:
            click.echo()
        raise
    result = stream.result
    if quiet:
        print_json(result.raw)
        return
    click.echo()
    if result.finish_reason not in ("stop", "length"):
        click.echo(f"edgectl: cut off: {result.finish_reason}", err=True)
