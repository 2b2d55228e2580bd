"""`edgectl top`: level, heat, memory, speed, queue and slots over the last minutes, requests, events."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec import Struct

from edged.cli import reach
from edged.cli.number import Number
from edged.cli.options import EXITS, json_option
from edged.cli.output import ANSWER_S, EXIT_NO_ANSWER, Session, fail, print_json
from edged.cli.plots import ramp
from edged.cli.top.box import Box
from edged.cli.top.keys import Ui, Wish, pressed, settle
from edged.cli.top.poller import Poller, Way

if TYPE_CHECKING:
    from edged.cli.top.screen import Screen

PIPE_COLUMNS: Final = 100
PIPE_ROWS: Final = 40
LEAST_ROWS: Final = 12
OVER_TCP: Final = "requests are shown over the control socket of the box itself, never over TCP"


@click.command(epilog=EXITS)
@click.option(
    "--interval", type=Number(0.2, 60), default=1.0, metavar="S", help="Seconds between two looks (default 1)."
)
@click.option("--once", is_flag=True, help="Print one picture and end: for tickets, and where there is no terminal.")
@json_option('With --once: print {"time", "status", "history", "requests", "hidden"} as one JSON object.')
@click.pass_obj
def command(session: Session, /, interval: float, *, once: bool) -> None:
    """Show the box on a full screen: level, heat, memory, tokens/s, queue and slots over the last minutes, requests
    with their progress, the last events.

    q leaves, ? tells the keys. Goes on while the daemon is restarted. Requests are for operators (the control socket);
    without that right the rest is shown.

    \b
    Examples:
      edgectl top
      edgectl top --interval 5
      edgectl top --once > ticket.txt
    """
    if session.as_json and not once:
        raise click.UsageError("--json goes with --once; `edgectl status --json --watch` goes on")
    ways = Ways.of(session)
    if once:
        _once(ways, interval, as_json=session.as_json)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        raise click.UsageError("no terminal for a full screen: `edgectl status --watch`, or `edgectl top --once`")
    from edged.cli.top.screen import Gone, Screen  # noqa: PLC0415 - for a full screen only

    with Screen() as screen:
        try:
            _run(ways, screen, interval)
        except Gone as gone:
            raise SystemExit(gone.status) from None


class Ways(Struct, frozen=True):
    """Where the daemon is. `control` None: requests are not to be had, `hidden` says why."""

    box: Way
    control: Way | None
    hidden: str
    patience_s: float

    @classmethod
    def of(cls, session: Session) -> Ways:
        tcp = session.given is not None and reach.control_beside(session.given) is None
        hidden = OVER_TCP if tcp else ""
        box = Way(session.endpoint, session.connect(session.endpoint))
        control = None if tcp else Way(session.control, session.connect(session.control))
        return cls(box, control, hidden, session.timeout(ANSWER_S))

    def poller(self, interval_s: float, wake: Callable[[], None]) -> Poller:
        return Poller(
            self.box,
            self.control,
            hidden=self.hidden,
            interval_s=interval_s,
            patience_s=self.patience_s,
            wake=wake,
        )


def _once(ways: Ways, interval: float, *, as_json: bool) -> None:
    look = ways.poller(interval, lambda: None).look()
    if look.why:
        fail(look.why, EXIT_NO_ANSWER)
    if as_json:
        fields = {"history": msgspec.to_builtins(look.past), "requests": look.requests, "hidden": look.hidden}
        print_json({"time": look.at, "status": look.status, **fields})
        return
    from rich.console import Console  # noqa: PLC0415 - rich takes a while to import, and only top wants it

    from edged.cli.top.view import Size, picture  # noqa: PLC0415

    box = Box()
    box.take(look)
    found = shutil.get_terminal_size((PIPE_COLUMNS, PIPE_ROWS))
    console = Console(width=found.columns, highlight=False, markup=False, emoji=False)
    for part in picture(box, Ui(), Size(found.columns, max(found.lines, LEAST_ROWS)), ramp(), look.at)[:-1]:
        console.print(part, no_wrap=True, crop=True)


def _run(ways: Ways, screen: Screen, interval: float) -> None:
    from edged.cli.top.view import Size, picture  # noqa: PLC0415 - as above

    box, ui, marks = Box(), Ui(), ramp()
    poller = ways.poller(interval, screen.wake)
    poller.start()
    while True:
        look = None if ui.paused else poller.take()
        if look is not None:
            box.take(look)
            settle(ui, box.requests)
        screen.draw(picture(box, ui, Size(*screen.size), marks, time.time()))
        for wish in pressed(ui, screen.wait(None), box.requests):
            match wish:
                case Wish.QUIT:
                    poller.stop()
                    return
                case Wish.CANCEL:
                    ui.said, ui.asked = poller.cancel(ui.asked or {}), None
                    poller.hurry()
                case Wish.LOOK:
                    poller.hurry()
        poller.seconds = box.missing_s(time.time(), hour=ui.hour)
