"""Writes the --help of every verb into docs/edgectl.md, between its marks. A test says when that is due.

In the page, `<!-- edgectl ask -->` stands before the block of `edgectl ask --help`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from edged.cli.main import cli

PAGE = Path(__file__).parents[1] / "docs/edgectl.md"
BLOCK = re.compile(r"<!-- (edgectl[a-z -]*) -->\n```text\n.*?```\n", re.DOTALL)
COLUMNS = 100


def commands(group: click.Group = cli, *path: str) -> Iterator[tuple[str, ...]]:
    """`()`, `("ask",)`, …, `("config", "check")`, …"""
    yield path
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


def block(path: tuple[str, ...]) -> str:
    shown = CliRunner().invoke(cli, [*path, "--help"], prog_name="edgectl", terminal_width=COLUMNS)
    assert shown.exit_code == 0, shown.output
    return f"<!-- {' '.join(('edgectl', *path))} -->\n```text\n{shown.output}```\n"


def renewed(page: str) -> str:
    """The page as it should be. Raises KeyError when a mark is missing, or is of no verb."""
    blocks = {" ".join(("edgectl", *path)): block(path) for path in commands()}
    missing = blocks.keys() ^ set(BLOCK.findall(page))
    if missing:
        raise KeyError(f"docs/edgectl.md: no mark, or no such verb: {', '.join(sorted(missing))}")
    return BLOCK.sub(lambda found: blocks[found[1]], page)


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8")
    after = renewed(before)
    PAGE.write_text(after, encoding="utf-8")
    sys.stdout.write("docs/edgectl.md " + ("is as it was\n" if before == after else "is renewed\n"))
