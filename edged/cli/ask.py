"""`edgectl ask`: one prompt, the tokens as they come."""

from __future__ import annotations

from typing import Any

import click

from edged import client
from edged.cli import answering, shaping
from edged.cli.options import EXITS, deadline_option, given, json_option, sampling_options, text_or_stdin
from edged.cli.output import EXIT_INTERRUPTED, Session, fail, print_json

PATIENCE_S = 30.0


@click.command(epilog=EXITS, short_help="Send a prompt and print the answer as it is written.")
@click.argument("prompt", required=False)
@sampling_options
@click.option("--system", help="A system message before the prompt.")
@click.option("--raw", is_flag=True, help="Send the text as it is, without the model's chat template.")
@shaping.session_option
@shaping.shape_options
@click.option("--no-wait", is_flag=True, help="Do not wait for a box that is being restarted: say so at once.")
@deadline_option
@json_option("Print the final result as one JSON object.")
@click.pass_obj
def command(
    session: Session,
    /,
    prompt: str | None,
    system: str | None,
    deadline: float | None,
    *,
    talk: str | None,
    schema: str | None,
    grammar: str | None,
    thinking: bool | None,
    logprobs: int | None,
    raw: bool,
    reset: bool,
    no_wait: bool,
    **sampling: Any,
) -> None:
    """Send PROMPT (or what comes on stdin) and print the answer as it is written.

    While the service is restarted or loads its model, it is asked again until the deadline. Ctrl-C cancels the request
    in the daemon too.

    \b
    Examples:
      edgectl ask "Why is the sky blue?" --max-tokens 60
      journalctl -u nginx -n 20 | edgectl ask --system "What is wrong here? One sentence."
      edgectl ask "Name a bird." --session birds
      edgectl ask "A person, invented." --schema person.json
    """
    if raw and system is not None:
        raise click.UsageError("--system needs the chat template that --raw leaves out")
    if raw and talk is not None:
        raise click.UsageError("--session needs the messages that --raw does without")
    shaped = shaping.shape(
        prompt, talk=talk, reset=reset, schema=schema, grammar=grammar, thinking=thinking, logprobs=logprobs
    )
    text = text_or_stdin(prompt, 'nothing to ask: edgectl ask "…", or a text on stdin')
    if not text:
        raise click.UsageError("the prompt is empty")
    options = given(sampling) | shaped
    if raw:
        options["prompt"] = text
    else:
        turns = [{"role": "user", "content": text}]
        options["messages"] = turns if system is None else [{"role": "system", "content": system}, *turns]
    patience = session.timeout(PATIENCE_S)
    with session.client(any_of=True) as edged:
        try:
            retry = () if no_wait else client.STARTING
            with edged.stream(deadline_s=deadline, answer_s=patience, retry=retry, **options) as stream:
                _show(stream, as_json=session.as_json)
        except KeyboardInterrupt:
            fail("cancelled", EXIT_INTERRUPTED)


def _show(stream: client.Stream, *, as_json: bool) -> None:
    """The answer as it comes, or the end as one JSON object."""
    if as_json:
        print_json(stream.result.raw)
        return
    result = answering.whole(stream)
    for line in shaping.likelihoods(result):
        click.echo(line)
    if result.finish_reason not in ("stop", "length"):
        click.echo(f"edgectl: cut off: {result.finish_reason}", err=True)
    for remark in shaping.remarks(result):
        click.echo(f"edgectl: {remark}", err=True)
