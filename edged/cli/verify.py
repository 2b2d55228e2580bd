"""`edgectl verify`: is this box as it should be? The gate of a rollout."""

from __future__ import annotations

import re
import sys
import time
from typing import Any, Final

import click

from edged import client
from edged.cli import verdict
from edged.cli.failure import CODES
from edged.cli.health import LEAST_S, POLL_S, Seen, look
from edged.cli.number import Number
from edged.cli.options import json_option, utf8
from edged.cli.output import ANSWER_S, EXIT_ERROR, EXIT_NO_ANSWER, Session, error_words, fail, one_line, print_json
from edged.cli.terminal import Passing

PROMPT: Final = "Repeat after me: one two three four five six seven eight nine ten eleven twelve"
"""What follows is as good as certain to a model, so that rounding decides nothing: with the embedded default each token
is 1.17 nats likelier than the next best, at least (counting without an example: 0.01; measured, x86-64)."""
DEADLINE_S: Final = 60.0
EXACT: Final[dict[str, Any]] = {
    "temperature": 0,
    "seed": 1,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logprobs": 1,
    "priority": "high",
}
"""The likeliest token each time, whatever the box's `defaults` say; `logprobs` brings the ids of the tokens."""

PATIENT: Final = client.STARTING | {"busy"}
"""Right after a restart everybody who waited asks at once."""


def _sha256(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """64 hexadecimal digits, in either case."""
    if value is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise click.BadParameter(f"{one_line(value)!r} is not a sha256: 64 hexadecimal digits")
    return value and value.lower()


@click.command(
    short_help="Check version, model, a generation and the heat of a box.",
    epilog="Exit status: 0 all of it is right; 1 something is wrong (problems say what); 2 usage; 3 nothing answered; "
    "130 interrupted.",
)
@click.option("--version", metavar="VERSION", help="The release that must run.")
@click.option("--model-sha256", callback=_sha256, metavar="SHA256", help="Of the model's file.")
@click.option(
    "--tokens-sha256", callback=_sha256, metavar="SHA256", help="Of the answer's token ids, as printed before."
)
@click.option("--max-temperature", type=Number(0, 150), metavar="C", help="In °C. Default: the level is below hot.")
@click.option("--prompt", default=PROMPT, show_default=True, metavar="TEXT", help="What is asked.")
@click.option("--max-tokens", type=click.IntRange(1, 4096), default=16, show_default=True, help="Of the answer.")
@click.option(
    "--wait", type=Number(0, 86_400), default=0.0, metavar="S", help="Wait up to S seconds until it is ready."
)
@click.option(
    "--deadline",
    type=Number(0.001, 86_400),
    default=DEADLINE_S,
    show_default=True,
    metavar="S",
    help="Seconds for the answer.",
)
@json_option("Print what was found and what is wrong as one JSON object.")
@click.pass_obj
def command(
    session: Session,
    /,
    *,
    version: str | None,
    model_sha256: str | None,
    tokens_sha256: str | None,
    max_temperature: float | None,
    prompt: str,
    max_tokens: int,
    wait: float,
    deadline: float,
) -> None:
    """Say whether the box runs what it should, and does it: its version, the model's sha256, an answer at temperature 0
    whose tokens have the right sha256, and that it is not too hot.

    Without expectations it prints what it finds, to be expected of the next box. The sha256 of the tokens is that of
    their ids in decimal with commas between; processors that add up in another order may differ in it.

    \b
    Examples:
      edgectl verify --wait 120
      edgectl verify --json | jq -r .tokens_sha256
    """
    expected = verdict.Expected(version, model_sha256, tokens_sha256, max_temperature)
    utf8(prompt, "the prompt")
    if not prompt or "\0" in prompt:
        raise click.UsageError("the prompt is empty, or has a NUL")
    seen = _until_ready(session, wait, hashed=model_sha256 is not None)
    answer = _ask(session, prompt, max_tokens, deadline) if seen.ready else verdict.Answer(error=seen.words)
    after = look(session, session.timeout(ANSWER_S)) if seen.ready else seen
    if not after.status:
        _nothing(session, after)
    found = verdict.verdict(expected, after.status, answer)
    if session.as_json:
        print_json(found)
    else:
        _tell(found)
    sys.exit(0 if found["ok"] else EXIT_ERROR)


def _until_ready(session: Session, wait: float, *, hashed: bool) -> Seen:
    """`hashed`: until the daemon knows the sha256 of the model too, which it makes beside its work."""
    until, passing = time.monotonic() + wait, Passing()
    while True:
        left = until - time.monotonic()
        patience = session.timeout(ANSWER_S)
        seen = look(session, min(patience, max(left, LEAST_S)) if wait else patience)
        known = not hashed or (seen.status.get("model") or {}).get("sha256")
        left = until - time.monotonic()
        if (seen.ready and known) or left <= 0:
            break
        passing.show(f"{seen.words} … {left:.0f} s")
        time.sleep(min(POLL_S, left))
    passing.clear()
    if not seen.status:
        _nothing(session, seen)
    return seen


def _nothing(session: Session, seen: Seen) -> None:
    if session.as_json:
        error = {"code": CODES[EXIT_NO_ANSWER], "message": one_line(seen.words)}
        print_json({"ok": False, "error": error, "problems": [error["message"]]})
    fail(seen.words, EXIT_NO_ANSWER)


def _ask(session: Session, prompt: str, max_tokens: int, deadline_s: float) -> verdict.Answer:
    turns = [{"role": "user", "content": prompt}]
    try:
        with session.connect(session.endpoint) as edged:
            result = edged.generate(turns, deadline_s=deadline_s, retry=PATIENT, max_tokens=max_tokens, **EXACT)
    except client.ReplyError as error:
        return verdict.Answer(error=error_words(error))
    except client.NoAnswer as error:
        return verdict.Answer(error=str(error))
    tokens = tuple(entry.id for entry in result.logprobs)
    short = "" if len(tokens) == result.usage.completion_tokens else "the daemon did not tell the ids of all tokens"
    cut = "" if result.finish_reason in ("stop", "length") else f"it was cut off: {result.finish_reason}"
    return verdict.Answer(tokens, len(result.text.encode()), cut or short)


def _tell(found: dict[str, Any]) -> None:
    model, temperature = found["model"], found["temperature_c"]
    heat = f", {temperature:g} °C" if temperature is not None else ""
    click.echo(
        one_line(f"{'right' if found['ok'] else 'wrong'}: edged {found['version']}, level {found['level']}{heat}")
    )
    click.echo(one_line(f"model   {model['name']}, sha256 {model['sha256'] or 'not known yet'}"))
    if found["tokens"]:
        click.echo(
            f"answer  {found['tokens']} tokens, {found['text_bytes']} bytes, tokens' sha256 {found['tokens_sha256']}"
        )
    for problem in found["problems"]:
        click.echo(one_line(f"problem {problem}"))
