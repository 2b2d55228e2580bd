"""What stands on the screen, for any size of it. Pure: rich's texts and tables, made from what is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from rich.console import RenderableType
from rich.text import Text

from edged.cli import glance
from edged.cli.happened import local
from edged.cli.output import one_line
from edged.cli.past import known
from edged.cli.terminal import wrapped
from edged.cli.top.box import Box
from edged.cli.top.charts import charts, grid
from edged.cli.top.keys import Ui
from edged.cli.top.lists import events, requests
from edged.cli.top.shares import PLOTS, share

STATES: Final = {"ready": "green", "unavailable": "red"}

KEYS: Final = "q quit  p pause  h hour/minutes  j/k choose  c cancel  ? help"
KEY: Final = 13
"""Columns for the keys of the help."""
HELP: Final = (
    ("q", "quit (Ctrl-C too)"),
    ("p, space", "stop the picture, go on"),
    ("h", "the last hour instead of the last five minutes, and back"),
    ("j k, arrows", "choose a request"),
    ("c", "cancel the chosen request; asks first"),
    ("?", "this help; any key leaves it"),
    "",
    "Plots: a blank is a gap: nothing was seen then (the daemon was down or stopped, the box asleep).",
    "level: normal, warm, hot, critical. slots: requests being written. prompt/s: tokens of prompts read.",
)


class Size(Struct, frozen=True):
    columns: int
    rows: int


def picture(box: Box, ui: Ui, size: Size, marks: str, now: float) -> Sequence[RenderableType]:
    """At most `size.rows` rows."""
    if ui.help:
        return [Text(line, no_wrap=True) for line in _help(size.columns)][: size.rows]
    rows = box.coarse if ui.hour else box.fine
    there = [series for series in PLOTS if known(rows.of(series))]
    head = list(_head(box, size.columns, now))[: max(1, size.rows // 4)]
    shares = share(size.rows - len(head) - 1, there, 1 if box.hidden else len(box.requests), len(box.events))
    parts: list[RenderableType] = [*head]
    parts += charts(
        rows, grid(rows, size.columns, marks), shares.plots, axis=bool(shares.axis), away=box.away_since is not None
    )
    if shares.requests:
        parts += requests(box, ui, shares.requests)
    if shares.events:
        parts += events(box, shares.events)
    used = len(head) + sum(shares.plots.values()) + shares.axis + shares.requests + shares.events
    parts += [Text("")] * max(0, size.rows - used - 1)
    return [*parts, *_foot(ui)]


def _help(columns: int) -> Iterator[str]:
    """Wrapped; what belongs to a key stays behind it."""
    for line in HELP:
        key, text = line if isinstance(line, tuple) else ("", line)
        hung = KEY if key and columns >= 2 * KEY else 0
        first, *rest = wrapped(text if hung or not key else f"{key}: {text}", columns - hung)
        yield f"{key:<{hung}}{first}" if hung else first
        yield from (f"{'':<{hung}}{more}" for more in rest)


def _head(box: Box, columns: int, now: float) -> Iterator[Text]:
    rows = list(glance.glance(box.status, now)) if box.status else []
    said = dict(reversed(rows))
    clock = local(now, "%H:%M:%S")
    if box.away_since is not None:
        since = f"not reachable since {local(box.away_since, '%H:%M:%S')}, trying again"
        yield _with_clock(Text(since, style="bold red"), clock, columns)
        yield Text(one_line(box.why), style="red", no_wrap=True, overflow="ellipsis")
    elif not box.status:
        yield Text("looking …", no_wrap=True)
        return
    state = str(box.status.get("state", "?"))
    model = said.get("model", "").partition(",")[0]
    facts = [said.get("state", ""), model, f"profile {said.get('profile', '?').partition(',')[0]}"]
    if box.away_since is None:
        style = STATES.get(state, "yellow")
        first, *rest = facts
        words = Text.assemble((one_line(first), style), "  ", one_line("  ".join(filter(None, rest))))
        yield _with_clock(words, clock, columns)
    else:  # how it stood is history: the plots have it
        yield Text("level ?", style="red")
        return
    level = said.get("level", "")
    board = said.get("board", "")
    colour = "" if level.startswith("normal") or not level else "yellow" if level.startswith("warm") else "red"
    stands = [Text(one_line(f"level {level}"), style=colour)] if level else []
    yield from _beside([*stands, *([Text(one_line(board))] if board else [])], columns)
    for label in ("unloaded", "reload"):
        if said.get(label):
            yield Text(one_line(f"{label}: {said[label]}"), style="yellow", no_wrap=True)
    for label, warning in rows:
        if label == "warning":
            yield Text(one_line(warning), style="yellow", no_wrap=True, overflow="ellipsis")


def _beside(parts: Sequence[Text], columns: int) -> Iterator[Text]:
    """In one line, if there is room for all of them."""
    line = Text("  ").join(parts)
    for text in [line] if line.cell_len <= columns else parts:
        text.truncate(columns, overflow="ellipsis")
        yield text


def _with_clock(text: Text, clock: str, columns: int) -> Text:
    """The clock at the right edge, if there is room for it."""
    room = columns - len(clock) - 1
    if room < len(clock):
        return text
    text.truncate(room, overflow="ellipsis", pad=True)
    return text.append(f" {clock}")


def _foot(ui: Ui) -> list[Text]:
    if ui.asked is not None:
        text = f"cancel {ui.asked.get('id')} of {ui.asked.get('identity')}? y/n"
        return [Text(one_line(text), style="bold", no_wrap=True, overflow="ellipsis")]
    text = one_line(ui.said) or f"{'PAUSED  ' if ui.paused else ''}{KEYS}"
    return [Text(text, style="dim", no_wrap=True, overflow="ellipsis")]
