"""`edgectl fleet status`: one table over all boxes of an Ansible inventory."""

from __future__ import annotations

import os
import sys
import time

import click

from edged.cli.fleet.answers import Row, missing, row
from edged.cli.fleet.run import NoAnsible, Order, complete, told
from edged.cli.fleet.show import as_object, lines, well
from edged.cli.number import Number
from edged.cli.options import json_option
from edged.cli.output import EXIT_ERROR, Session, fail, print_json
from edged.cli.terminal import Passing, width

SECONDS = 30.0
GROUP = "edged"
EXITS = "Exit status: 0 every box is ready; 1 one is not, or cannot be reached; 2 usage; 130 interrupted."


@click.group(name="fleet")
def command() -> None:
    """Look at all boxes of an Ansible inventory. Needs Ansible here (`pip install 'edged[fleet]'`)."""


@command.command(name="status", epilog=EXITS)
@click.option(
    "-i",
    "--inventory",
    multiple=True,
    required=True,
    metavar="INVENTORY",
    help="As for ansible-playbook: a file, a directory, or host names with a comma. May be given several times.",
)
@click.option("-l", "--limit", default=GROUP, metavar="PATTERN", help=f"Groups or hosts (default: the group {GROUP}).")
@click.option("-f", "--forks", type=click.IntRange(1, 500), default=25, help="So many boxes at a time (default 25).")
@click.option(
    "--timeout",
    type=Number(min=1, max=3600),
    metavar="S",
    help=f"Seconds for all of it (default {SECONDS:.0f}); who has not answered by then is shown as unreachable.",
)
@json_option('Print {"time", "ok", "boxes"} as one JSON object.')
@click.pass_obj
def status(session: Session, /, inventory: tuple[str, ...], limit: str, forks: int, *, timeout: float | None) -> None:
    """Show each box in a line: state, version, model, level, temperature, memory, tokens/s of the last minute, queue,
    last alarm. Boxes that cannot be reached are shown, with the reason.

    Goes by Ansible's own connections (ssh, become), so what works for the playbooks works here. Variables of the
    inventory: edged_edgectl (/opt/edged/current/venv/bin/edgectl), edged_endpoint (ipc:///run/edged/request.sock).

    \b
    Examples:
      edgectl fleet status -i inventory.yml
      edgectl fleet status -i inventory.yml --limit 'pi-0*' --timeout 10
      edgectl fleet status -i inventory.yml --json | jq '.boxes[] | select(.ready | not)'
    """
    for one in inventory:
        if "," not in one and not os.path.exists(one):
            raise click.UsageError(f"{one}: no such inventory (a list of hosts ends with a comma: `-i {one},`)")
    seconds = timeout or session.timeout(SECONDS)
    try:
        rows = gather(Order(inventories=inventory, limit=limit, forks=forks, seconds=seconds))
    except NoAnsible as error:
        fail(str(error), click.UsageError.exit_code)
    if session.as_json:
        print_json(as_object(rows, time.time()))
    else:
        for text in lines(rows, width()):
            click.echo(text)
    sys.exit(0 if well(rows) else EXIT_ERROR)


def gather(order: Order) -> list[Row]:
    """In the inventory's order. Raises NoAnsible."""
    passing, begun = Passing(), time.monotonic()
    passing.show("asking Ansible …")
    hosts: list[str] = []
    rows: dict[str, Row] = {}
    try:
        for said in told(order):
            if "hosts" in said:
                hosts = complete(said["hosts"])
            elif isinstance(said.get("host"), str):
                rows[said["host"]] = row(said)
            passing.show(f"{len(rows)} of {len(hosts)} boxes answered")
    finally:
        passing.clear()
    over = order.seconds if time.monotonic() - begun >= order.seconds else None
    return [rows.get(host) or missing(host, over) for host in hosts]
