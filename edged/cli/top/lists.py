"""Requests with their progress, and the last events. Pure. Each fills exactly the rows that it is given."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from edged.cli.happened import COLOURS, happened, local
from edged.cli.output import one_line
from edged.cli.past import number
from edged.cli.top.box import Box
from edged.cli.top.keys import Ui


def requests(box: Box, ui: Ui, rows: int) -> list[RenderableType]:
    running = sum(1 for request in box.requests if request.get("state") == "running")
    title = f"REQUESTS  {running} running, {len(box.requests) - running} waiting" if not box.hidden else "REQUESTS"
    if box.hidden or not box.requests:
        why = one_line(box.hidden or ("nothing waits or runs" if box.away_since is None else "unknown"))
        shown = [Text(title, style="bold", no_wrap=True), Text(why, style="dim", no_wrap=True, overflow="ellipsis")]
        return [*shown[:rows], *[Text("")] * (rows - 2)]
    room = rows - 1
    first = max(0, min(ui.chosen - room + 1, len(box.requests) - room)) if ui.chosen >= room else 0
    table = Table(box=None, expand=True, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    for ratio in (6, 4, 3, 8, 5):
        table.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
    for index, request in enumerate(box.requests[first : first + room], start=first):
        table.add_row(*_request(request), style="reverse" if index == ui.chosen else "")
    blank = room - min(room, len(box.requests) - first)
    return [Text(title, style="bold", no_wrap=True), table, *[Text("")] * blank]


def _request(request: dict[str, Any]) -> list[Text]:
    def of(name: str) -> float:
        return number(request.get(name)) or 0.0

    read, prompt, written, most = (
        of(name) for name in ("prompt_read", "prompt_tokens", "completion_tokens", "max_tokens")
    )
    if request.get("state") == "running" and written:
        progress = f"{_bar(written, most)} {written:.0f}/{most:.0f}"
    elif request.get("state") == "running":
        progress = f"reading {read:.0f}/{prompt:.0f}"
    else:
        progress = "waiting"
    age, left = max(0.0, of("age_ms")) / 1000, max(0.0, of("deadline_in_ms")) / 1000
    spent = f"{age:.0f} of {age + left:.0f} s"
    cells = (request.get("id"), request.get("identity"), request.get("priority"), progress, spent)
    return [Text(one_line(str(cell)), no_wrap=True, overflow="ellipsis") for cell in cells]


def _bar(done: float, of: float, width: int = 8) -> str:
    filled = round(width * max(0.0, min(1.0, done / of))) if of > 0 else 0
    return f"[{'=' * filled}{'-' * (width - filled)}]"


def events(box: Box, rows: int) -> list[RenderableType]:
    out: list[RenderableType] = [Text("EVENTS", style="bold")]
    for event in box.events[-(rows - 1) :] if rows > 1 else []:
        what = happened(event)
        at = local(event.get("time"), "%H:%M:%S")
        out.append(Text.assemble((f"{at}  ", "dim"), (what.text, COLOURS[what.weight]), no_wrap=True))
    return [*out, *[Text("")] * (rows - len(out))]
