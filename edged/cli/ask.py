"""`edgectl ask`: one prompt, the tokens as they come."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click

from edged import client
from edged.cli.output import EXIT_INTERRUPTED, Session, fail, model_text, print_json, tell_error

ANSWER_S = 30.0
CANCEL_S = 2.0


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
    fields: dict[str, Any] = {"id": client.new_id(), **{k: v for k, v in sampling.items() if v is not None}}
    if raw:
        fields["prompt"] = text
    else:
        turns = [{"role": "user", "content": text}]
        fields["messages"] = turns if system is None else [{"role": "system", "content": system}, *turns]
    seconds = deadline if deadline is not None else session.config.defaults.deadline_ms / 1000
    quiet = as_json or session.as_json
    with session.connection() as connection:
        try:
            end = _stream(connection, seconds, session.timeout(ANSWER_S), fields, quiet=quiet)
        except KeyboardInterrupt:
            with contextlib.suppress(client.ReplyError, client.NoAnswer):
                connection.call("cancel", CANCEL_S, id=fields["id"])
            fail("cancelled", EXIT_INTERRUPTED)
        except BrokenPipeError:
            with contextlib.suppress(client.ReplyError, client.NoAnswer):
                connection.call("cancel", CANCEL_S, id=fields["id"])
            raise
    _finish(end, quiet=quiet)


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


def _stream(
    connection: client.Connection, deadline_s: float, answer_s: float, fields: dict[str, Any], *, quiet: bool
) -> client.Reply:
    text = client.Text()
    event: client.Reply = {}
    for event in connection.stream(deadline_s, answer_s=answer_s, **fields):
        had = text.whole
        new = text.take(event)
        if had and not text.whole and not quiet:
            click.echo("\nedgectl: the daemon was restarted; it begins again", err=True)
        if new and not quiet:
            sys.stdout.write(model_text(new))
            sys.stdout.flush()
    return event


def _finish(end: client.Reply, *, quiet: bool) -> None:
    if quiet:
        print_json(end)
    else:
        click.echo()
    if end.get("error"):
        tell_error(client.ReplyError.of(end["error"]))
    reason = end.get("finish_reason")
    if reason not in ("stop", "length") and not quiet:
        click.echo(f"edgectl: cut off: {reason}", err=True)
