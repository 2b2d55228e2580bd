"""An answer as it comes: pieces to stdout, what it waits for to stderr."""

from __future__ import annotations

import sys

import click

from edged import client
from edged.cli.output import model_text
from edged.cli.terminal import Passing


def whole(stream: client.Stream) -> client.Result:
    """Shows it up to its end and closes the line, also when it breaks off. Raises what the request ended in."""
    try:
        _show(stream)
    except client.ReplyError:
        if stream.text:
            click.echo()
        raise
    click.echo()
    return stream.result


def _show(stream: client.Stream) -> None:
    """The line is left open."""
    passing = Passing()
    try:
        for event in stream.events():
            match event:
                case client.Piece(text=text):
                    passing.clear()
                    sys.stdout.write(model_text(text))
                    sys.stdout.flush()
                case client.Accepted(position=int(position)) | client.Queued(position=position) if position > 0:
                    passing.show(f"waiting, {position} before this one")
                case client.Prefill(done=done, total=total) if done < total:
                    passing.show(f"reading the prompt, {done} of {total} tokens")
                case client.Postponed(code=code, message=message, after_s=after):
                    passing.say(f"{code}: {message}; trying again in {after:.2g} s (--no-wait: don't)")
                case client.Anew(discarded=discarded) if discarded:
                    click.echo("\nedgectl: the daemon was restarted; the answer begins anew", err=True)
                case _:
                    pass
    finally:
        passing.clear()
