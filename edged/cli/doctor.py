"""`edgectl doctor`: looks at the box and says what to do. Needs no daemon."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

import click
import msgspec

from edged import __version__, config, doctor
from edged.cli import reach
from edged.cli.options import json_option
from edged.cli.output import Session, one_line, print_json
from edged.cli.terminal import coloured, width, wrapped
from edged.doctor import Finding, Severity
from edged.errors import ConfigError

EXITS: Final = {Severity.WARNING: 10, Severity.ERROR: 20}
"""Every other severity: 0. Apart from what edgectl's other statuses mean."""

COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.OK: "green"}
ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.UNKNOWN, Severity.INFO, Severity.OK)
SYSTEM_CONFIG: Final = "/etc/edged/config.yaml"


@click.command(
    epilog="Exit status: 0 nothing is wrong (what could not be seen does not count); 2 usage; 10 there are warnings; "
    "20 there are errors; 130 interrupted."
)
@click.option(
    "--check",
    "only",
    multiple=True,
    metavar="NAME",
    help=f"This check alone; may be given several times. {', '.join(doctor.CHECKS)}.",
)
@click.option("--all", "everything", is_flag=True, help="Tell in full what is fine, too.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False),
    default="/",
    metavar="DIR",
    help="Look at another box by its files, such as a card mounted at DIR, with the configuration that lies there.",
)
@json_option("Print all findings as one JSON object.")
@click.pass_obj
def command(session: Session, /, only: tuple[str, ...], root: str, *, everything: bool) -> None:
    """Check the whole box, and say what is wrong, why it matters and what to do.

    Nothing is changed or started, and no daemon is needed. It takes at most five seconds. What the user may not see is
    said to be unknown: sudo shows it.

    \b
    Examples:
      sudo edgectl doctor
      edgectl doctor --check temperature --check supply
      edgectl doctor --json | jq '.findings[] | select(.severity == "error")'
    """
    for name in only:
        if name not in doctor.CHECKS:
            raise click.UsageError(f"no check {name!r}; there are {', '.join(doctor.CHECKS)}")
    settings, refused = _settings(session, root)
    findings = doctor.run(settings, root=root, only=only, refused=refused)
    severity = doctor.worst(findings)
    if session.as_json:
        told = msgspec.to_builtins(findings)
        print_json({"ok": severity not in EXITS, "version": __version__, "severity": severity, "findings": told})
    else:
        for line in drawn(findings, width(), everything=everything):
            click.echo(line)
    sys.exit(EXITS.get(severity, 0))


def _settings(session: Session, root: str) -> tuple[config.Config, str]:
    """The box's configuration, or the defaults and what is wrong with it."""
    path = session.path or reach.default_config()
    elsewhere = os.path.realpath(root) != "/"
    if elsewhere:
        path = os.path.join(root, SYSTEM_CONFIG.lstrip("/"))
        path = path if os.path.exists(path) else None
    try:
        settings = config.load(path)
    except ConfigError as error:
        return config.load(None), str(error)
    return (msgspec.structs.replace(settings, path=SYSTEM_CONFIG) if elsewhere and path else settings), ""


def drawn(findings: list[Finding], columns: int | None, *, everything: bool) -> Iterator[str]:
    """The worst first; what is fine in one line."""
    label = max((len(finding.check) for finding in findings), default=0) + 2
    for severity in ORDER:
        if severity is Severity.OK and not everything:
            continue
        for finding in findings:
            if finding.severity is severity:
                yield from _one(finding, label, columns, full=everything or severity is not Severity.INFO)
    fine = [finding.check for finding in findings if finding.severity is Severity.OK]
    if fine and not everything:
        yield from _put(Severity.OK, "", ", ".join(fine), label, columns)
    yield ""
    yield _sum(findings)


def _one(finding: Finding, label: int, columns: int | None, *, full: bool) -> Iterator[str]:
    yield from _put(finding.severity, finding.check, finding.what, label, columns)
    for word, text in (("why", finding.why), ("do", finding.do)):
        if text and full:
            yield from _put(None, "", f"{word}: {text}", label, columns)


def _put(severity: Severity | None, name: str, text: str, label: int, columns: int | None) -> Iterator[str]:
    head = f"{severity or '':<9}{name:<{label}}"
    said = one_line(text)
    lines = [said] if columns is None else wrapped(said, columns - len(head))
    shown = coloured(head[:9], COLOURS[severity]) + head[9:] if severity in COLOURS else head
    yield f"{shown}{lines[0]}"
    yield from (" " * len(head) + line for line in lines[1:])


def _sum(findings: list[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    names = {
        Severity.ERROR: "errors",
        Severity.WARNING: "warnings",
        Severity.UNKNOWN: "not seen",
        Severity.INFO: "notes",
    }
    said = [f"{name}: {counts[severity]}" for severity, name in names.items() if counts[severity]]
    return ", ".join([*said, f"fine: {counts[Severity.OK]}"])
