"""`edgectl report`: one page about the box, to keep or to send."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import click

from edged.cli.options import json_option
from edged.cli.output import EXIT_ERROR, Session, fail, one_line, print_json
from edged.cli.report.facts import Facts, gather
from edged.cli.report.page import page
from edged.cli.terminal import Passing

EXITS = (
    "Exit status: 0 the page was written, also when it says that nothing answers; 1 it was not; 2 usage; "
    "130 interrupted."
)


@click.command(epilog=EXITS)
@click.option("-o", "--output", metavar="FILE", help="Default: edged-report-HOST-TIME.html here; - is stdout.")
@click.option("--no-doctor", is_flag=True, help="Leave out what `edgectl doctor` would find.")
@json_option('Print {"file", "bytes", "answered"} as one JSON object.')
@click.pass_obj
def command(session: Session, /, output: str | None, *, no_doctor: bool) -> None:
    """Write one self-contained HTML page about the box: state, plots of the last hour, incidents, counters, versions,
    configuration without secrets, what doctor finds. No ids, no callers, no text of requests.

    Works when the daemon is down, and says so.

    \b
    Examples:
      edgectl report
      edgectl report -o box.html
    """
    if output == "-" and session.as_json:
        raise click.UsageError("the page goes to stdout: give a FILE, or leave --json out")
    passing = Passing()
    passing.show("looking at the box …")
    facts = gather(session, examine=not no_doctor)
    passing.clear()
    text = page(facts)
    if output == "-":
        sys.stdout.buffer.write(text.encode())
    else:
        _told(session, facts, write(Path(output or default_name(facts)), text), len(text.encode()))
    if facts.down:
        click.echo(f"edgectl: {one_line(facts.down)}; the page says so", err=True)


def default_name(facts: Facts) -> str:
    host = "".join(c if c.isalnum() or c in "-." else "_" for c in facts.host)
    return f"edged-report-{host}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(facts.made))}.html"


def write(path: Path, text: str) -> Path:
    """Whole or not at all."""
    try:
        if path.is_dir():
            fail(f"{path} is a directory", EXIT_ERROR)
        if path.exists() and not path.is_file():  # a pipe, a device
            path.write_text(text, encoding="utf-8")
            return path
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as new:
            new.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(new.name, 0o666 & ~umask)
        os.replace(new.name, path)
    except OSError as error:
        fail(f"{path}: {error.strerror}", EXIT_ERROR)
    return path


def _told(session: Session, facts: Facts, path: Path, size: int) -> None:
    if session.as_json:
        print_json({"file": str(path), "bytes": size, "answered": not facts.down})
    else:
        click.echo(f"{path}: {size / 1000:.0f} kB, open it in a browser")
