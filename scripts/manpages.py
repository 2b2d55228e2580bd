"""Writes docs/man from the programs' own help and from config.yaml. A test says when that is due."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from edged.__main__ import parser
from edged.cli.main import cli

ROOT: Final = Path(__file__).parents[1]
DIRECTORY: Final = ROOT / "docs/man"
SEE: Final = "The pages in docs/ of the release: operations.md, protocol.md, edgectl.md."
RULER: Final = re.compile(r"^# -+ (.*?) -+$")


# ---- roff ---------------------------------------------------------------------------------------------------------


def text(line: str) -> str:
    """A line that says what it says: no escapes, no requests, hyphens that can be copied."""
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line[:1] in (".", "'") else line


def head(name: str, section: int, what: str) -> Iterator[str]:
    yield f'.TH "{text(name.upper())}" {section} "" "edged" "edged"'
    yield from (".SH NAME", f"{text(name)} \\- {text(what)}")


def bold(words: str) -> str:
    return f"\\fB{text(words)}\\fR"


def tagged(tag: str, *lines: str) -> Iterator[str]:
    yield from (".TP", bold(tag), *(text(line) for line in lines))


def page(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


# ---- edged.8 ------------------------------------------------------------------------------------------------------


def daemon() -> Iterator[str]:
    program = parser()
    yield from head("edged", 8, "serve a small language model over ZeroMQ")
    yield from (".SH SYNOPSIS", f"{bold('edged')} [{bold('--config')} \\fIFILE\\fR]")
    yield from (".SH DESCRIPTION", text(program.description or ""))
    yield text(
        "It stays in the foreground and logs to stderr, one event a line. Sessions, the journal and what it keeps in"
    )
    yield text("files are told in docs/operations.md; the wire in docs/protocol.md.")
    yield ".SH OPTIONS"
    for action in program._actions:  # noqa: SLF001 - argparse has no other way to list them
        if action.help is not argparse.SUPPRESS:
            value = f" {action.metavar}" if action.metavar else ""
            yield from tagged(", ".join(action.option_strings) + value, action.help or "")
    exits, signals, *more = (program.epilog or "").split("\n")
    yield from (".SH EXIT STATUS", *(text(one) + "\n.br" for one in listed(exits)))
    yield from (".SH SIGNALS", *(text(line) for line in (signals.partition(": ")[2], *more)))
    yield ".SH FILES"
    yield from tagged("/etc/edged/config.yaml", "The configuration of the system's service, see edged.yaml(5).")
    yield from tagged("/run/edged/request.sock, stream.sock, control.sock", "Where it listens.")
    yield from tagged("/var/lib/edged", "Sessions, snapshots, models.")
    yield from (".SH SEE ALSO", ".BR edgectl (1),", ".BR edged.yaml (5)", ".br", text(SEE))


def listed(sentence: str) -> list[str]:
    """`exit status: 0 done, 1 failed.` → its parts."""
    return [part.strip(" .") for part in re.split(r"[,;] (?=\d)", sentence.partition(": ")[2])]


# ---- edgectl.1 ----------------------------------------------------------------------------------------------------


def control() -> Iterator[str]:
    yield from head("edgectl", 1, "ask and watch the edged daemon")
    yield from (".SH SYNOPSIS", f"{bold('edgectl')} [\\fIOPTIONS\\fR] \\fIVERB\\fR [\\fIARGS\\fR]")
    yield ".SH DESCRIPTION"
    yield from prose(cli.help or "")
    yield ".SH OPTIONS"
    yield from options(cli, click.Context(cli, info_name="edgectl"))
    yield ".SH VERBS"
    commands = runpy.run_path(str(ROOT / "scripts/edgectl_help.py"))["commands"]
    for path in commands():
        if path:
            yield from verb(path)
    yield from (".SH EXIT STATUS", text((cli.epilog or "").removeprefix("Exit status: ")))
    yield ".SH ENVIRONMENT"
    yield from tagged("EDGED_ENDPOINT", "As --endpoint.")
    yield from tagged("EDGED_CONFIG", "As --config.")
    yield from (".SH SEE ALSO", ".BR edged (8),", ".BR edged.yaml (5)", ".br", text(SEE))


def verb(path: tuple[str, ...]) -> Iterator[str]:
    ctx = click.Context(cli, info_name="edgectl")
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(ctx, name)
        assert found is not None
        command = found
        ctx = click.Context(command, info_name=name, parent=ctx, **command.context_settings)
    yield f".SS edgectl {' '.join(path)}"
    pieces = " ".join(command.collect_usage_pieces(ctx))
    yield f"{bold('edgectl ' + ' '.join(path))} {text(pieces)}"
    yield from prose(command.help or "")
    yield from options(command, ctx)
    if command.epilog:
        yield from (".PP", text(command.epilog))


def options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None and "--help" not in param.opts:
            yield from tagged(record[0], record[1])


def prose(docstring: str) -> Iterator[str]:
    """Paragraphs; what stands after click's \\b keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        lines = [line for line in paragraph.split("\n") if line.strip()]
        if lines and lines[0].strip() == "\b":
            yield from (".PP", ".nf", *(text(line) for line in lines[1:]), ".fi")
        else:
            yield from (".PP", text(" ".join(" ".join(lines).split())))


# ---- edged.yaml.5 -------------------------------------------------------------------------------------------------


def configuration() -> Iterator[str]:
    lines = (ROOT / "config.yaml").read_text(encoding="utf-8").splitlines()
    start = lines.index("---")
    yield from head("edged.yaml", 5, "configuration of edged")
    yield from (".SH SYNOPSIS", bold("/etc/edged/config.yaml"))
    yield from (".SH DESCRIPTION", text(" ".join(line.removeprefix("# ") for line in lines[:start])))
    yield from keys(lines[start + 1 :])
    yield from (".SH SEE ALSO", ".BR edged (8),", ".BR edgectl (1)", ".br", text(SEE))


def keys(lines: list[str]) -> Iterator[str]:
    """A comment belongs to the key below it; indentation is the path."""
    said: list[str] = []
    path: list[tuple[int, str]] = []
    for line in lines:
        ruler = RULER.match(line)
        bare = line.strip()
        if ruler:
            yield f".SH {text(ruler[1].upper())}"
            said = []
        elif bare.startswith("#"):
            said.append(bare.removeprefix("#").strip())
        elif ":" in bare:
            indent = len(line) - len(line.lstrip())
            key, _, value = bare.removeprefix("- ").partition(":")
            path = [one for one in path if one[0] < indent + 2 * bare.startswith("- ")]
            path.append((indent + 2 * bare.startswith("- "), key))
            yield from entry(".".join(name for _, name in path), value.strip(), said)
            said = []
        elif not bare:
            said = []


def entry(name: str, value: str, said: list[str]) -> Iterator[str]:
    default = f"Default: {value}." if value else ""
    words = " ".join(filter(None, [" ".join(said), default]))
    yield from tagged(name, words or "A section.")


# -------------------------------------------------------------------------------------------------------------------

PAGES: Final[dict[str, Callable[[], str]]] = {
    "edged.8": lambda: page(daemon()),
    "edgectl.1": lambda: page(control()),
    "edged.yaml.5": lambda: page(configuration()),
}

if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (DIRECTORY / name).write_text(make(), encoding="utf-8")
        sys.stdout.write(f"docs/man/{name}\n")
