"""`edgectl status`: the daemon at a glance, once or again and again."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

import click

from edged import client
from edged.cli import glance, reach
from edged.cli.number import Number
from edged.cli.options import EXITS, json_option
from edged.cli.output import ANSWER_S, Session, error_words, print_json, print_lines, silence_words
from edged.cli.past import past
from edged.cli.plots import ramp
from edged.cli.sparklines import last_hour
from edged.cli.terminal import width

PIPE_COLUMNS = 100
HOME, TO_END_OF_LINE, TO_END_OF_SCREEN, ALL = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"


@click.command(epilog=EXITS)
@click.option(
    "--watch",
    type=Number(min=0.1, max=3600),
    is_flag=False,
    flag_value=2.0,
    metavar="[S]",
    help="Again every S seconds (default 2), in place on a terminal. Goes on while the daemon is restarted.",
)
@click.option(
    "--history/--no-history",
    "history",
    default=None,
    help="The last hour as small plots below; default: on a terminal. With --json: as `history` in the object.",
)
@json_option("Print the whole reply as one JSON object; with --watch one a line.")
@click.pass_obj
def command(session: Session, /, watch: float | None, *, history: bool | None) -> None:
    """Show state, model, queue, speed, threads and warnings. Answered also while the model loads.

    \b
    Examples:
      edgectl status
      edgectl status --watch 5
      edgectl status --history | less
      edgectl status --json | jq .queue.length
    """
    if watch is not None:
        Watch(session, watch, history=history).run()
        return
    with session.client() as edged:
        reply = edged.call("status", deadline_s=session.timeout())
        if wanted(session, history=history):
            reply = with_past(edged, reply, session.timeout())
    if session.as_json:
        print_json(reply)
        return
    for line in lines(reply, time.time()):
        click.echo(line)


def wanted(session: Session, *, history: bool | None) -> bool:
    """On a terminal unless told otherwise."""
    return (width() is not None and not session.as_json) if history is None else history


def with_past(edged: client.Client, reply: dict[str, Any], patience_s: float) -> dict[str, Any]:
    """The reply with that to `history` in it; an older daemon has none."""
    try:
        return reply | {"history": edged.call("history", deadline_s=patience_s)}
    except client.EdgedError:
        return reply


def lines(reply: dict[str, Any], now: float) -> list[str]:
    """State, then the last hour where it was asked for."""
    columns = width()
    out = glance.drawn(glance.glance(reply, now), columns)
    history = reply.get("history")
    found = past(history) if isinstance(history, dict) else None
    return out if found is None else out + last_hour(found, columns or PIPE_COLUMNS, ramp())


class Watch:
    """One picture after the other. A daemon that is gone is a picture too."""

    def __init__(self, session: Session, every_s: float, *, history: bool | None) -> None:
        self._session = session
        self._every_s = every_s
        self._patience_s = session.timeout(min(ANSWER_S, max(1.0, every_s)))
        self._drawn = False
        self._history = wanted(session, history=history)

    def run(self) -> None:
        while True:
            reply = self._look()
            if self._session.as_json:
                print_lines([reply])
            else:
                self._show(reply)
            sys.stdout.flush()
            time.sleep(self._every_s)

    def _look(self) -> dict[str, Any]:
        """The reply, or an error in the shape of one."""
        endpoint = self._session.endpoint
        why = reach.unreachable(endpoint)
        try:
            if not why:
                with self._session.connect(endpoint) as edged:
                    reply = edged.call("status", deadline_s=self._patience_s)
                    return with_past(edged, reply, self._patience_s) if self._history else reply
        except client.NoAnswer as error:
            why = silence_words(endpoint, error)
        except client.BadEndpoint as error:
            raise click.UsageError(str(error)) from None
        except client.ReplyError as error:
            why = error_words(error)
        return {"ok": False, "error": {"code": "no_answer", "message": why}}

    def _show(self, reply: dict[str, Any]) -> None:
        now = time.time()
        columns = width()
        shown = glance.drawn(iter([("time", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)))]), columns)
        if reply.get("ok"):
            shown += lines(reply, now)
        else:
            shown += glance.drawn(iter([("state", "no answer"), ("why", reply["error"]["message"])]), columns)
        if columns is None:
            sys.stdout.write("\n".join(shown) + "\n\n")
            return
        shown = shown[: max(1, shutil.get_terminal_size().lines - 1)]
        start = HOME if self._drawn else ALL + HOME
        self._drawn = True
        sys.stdout.write(start + "".join(f"{line}{TO_END_OF_LINE}\n" for line in shown) + TO_END_OF_SCREEN)
