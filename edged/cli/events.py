"""`edgectl events`: what happened to the box, and what happens."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from typing import Any

import click

from edged import client
from edged.cli import reach
from edged.cli.following import Follower
from edged.cli.happened import COLOURS, happened, local
from edged.cli.options import EXITS, json_option
from edged.cli.output import (
    ANSWER_S,
    EXIT_ERROR,
    Session,
    error_words,
    fail,
    one_line,
    print_json,
    print_lines,
    silence_words,
)
from edged.cli.terminal import coloured, cut, width

MOST = 200
"""What a daemon keeps (protocol 7)."""
TAIL = 10
CHECK_S = 10.0
"""Events are looked for at least so often, should the stream be out of reach or have dropped one."""
AGAIN_S = 1.0


class Span(click.ParamType[float]):
    """`90`, `30s`, `10m`, `2h`, `1d` → seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smhd]?)", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no span of time: write 90, 30s, 10m, 2h or 1d.", param, ctx)
        return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]


@click.command(epilog=EXITS)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, also while the daemon is restarted.")
@click.option(
    "--since",
    type=Span(),
    metavar="SPAN",
    help="Only what is not older: 90 (seconds), 10m, 2h. Without it: all, with -f the last 10.",
)
@json_option('Print {"events": […]} as one JSON object; with -f one event a line.')
@click.pass_obj
def command(session: Session, /, since: float | None, *, follow: bool) -> None:
    """Show what happened since the daemon started, 200 events at most: levels, models, deaths, alarms, configuration.

    Never ids or text of requests.

    \b
    Examples:
      edgectl events --since 10m
      edgectl events -f
      edgectl events -f --json | jq 'select(.type == "watchdog")'
    """
    if follow:
        Following(session, since).run()
        return
    with session.client() as edged:
        events = since_then(asked(edged, session.timeout()).get("events"), since)
    if session.as_json:
        print_json({"events": events})
    elif not events:
        click.echo("nothing happened")
    else:
        show(events)


def asked(edged: client.Client, patience_s: float) -> dict[str, Any]:
    """The reply to `history`. Raises what calls raise."""
    try:
        return edged.call("history", deadline_s=patience_s, seconds=1, events=MOST)
    except client.ReplyError as error:
        if error.code == "unknown_op":
            fail("this daemon keeps no events: it is older than this edgectl", EXIT_ERROR)
        raise


def since_then(events: object, since: float | None) -> list[dict[str, Any]]:
    found = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    if since is None:
        return found
    oldest = time.time() - since
    return [e for e in found if isinstance(e.get("time"), int | float) and e["time"] >= oldest]


def show(events: Iterable[dict[str, Any]]) -> None:
    for event in events:
        what = happened(event)
        columns = width()
        at = local(event.get("time"))
        text = what.text if columns is None else cut(what.text, max(columns - len(at) - 2, 20))
        click.echo(f"{at}  {coloured(text, COLOURS[what.weight])}")
    sys.stdout.flush()


class Following:
    """Past and live events as one row without gaps or repetitions."""

    def __init__(self, session: Session, since: float | None) -> None:
        self._session = session
        self._since = since
        self._patience_s = session.timeout(ANSWER_S)
        self._follower = Follower()
        self._away = False

    def run(self) -> None:
        with self._session.client() as edged:
            first = self._follower.past(asked(edged, self._patience_s))
            self._tell(since_then(first, self._since) if self._since is not None else first[-TAIL:])
            with edged.news() as news:
                self._go_on(edged, news)

    def _go_on(self, edged: client.Client, news: client.News) -> None:
        due = time.monotonic()  # what came between the first look and the subscription
        while True:
            heard, lost = news.wait(max(0.0, due - time.monotonic()))
            for event in heard:
                new = self._follower.live(event)
                self._tell(new or [])
                if new is None:
                    due = time.monotonic()
            if lost:
                due = time.monotonic()
            if due <= time.monotonic():
                due = time.monotonic() + (CHECK_S if self._catch_up(edged) else AGAIN_S)

    def _catch_up(self, edged: client.Client) -> bool:
        """Whether the daemon answered."""
        endpoint = self._session.endpoint
        why = reach.unreachable(endpoint)
        try:
            if not why:
                reply = edged.call("history", deadline_s=self._patience_s, seconds=1, events=MOST)
        except client.NoAnswer as error:
            why = silence_words(endpoint, error)
        except client.ReplyError as error:
            why = error_words(error)
        if bool(why) is not self._away:
            self._away = bool(why)
            said = f"not reachable, waiting: {why}" if why else "reachable again"
            click.echo(f"edgectl: {one_line(f'{local(time.time())}  {said}')}", err=True)
        if not why:
            self._tell(self._follower.past(reply))
        return not why

    def _tell(self, events: list[dict[str, Any]]) -> None:
        if self._session.as_json:
            print_lines(events)
        else:
            show(events)
