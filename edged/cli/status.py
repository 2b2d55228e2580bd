"""`edgectl status`: the daemon at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from edged.cli.output import Session, print_json, printable

ANSWER_S = 5.0
LABEL = 10


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the whole reply as one JSON object.")
@click.pass_obj
def command(session: Session, /, *, as_json: bool) -> None:
    """Show state, model, queue, threads and warnings. Answered also while the model loads."""
    with session.connection() as connection:
        reply = connection.call("status", session.timeout(ANSWER_S))
    if as_json or session.as_json:
        print_json(reply)
        return
    for label, value in glance(reply):
        if value:
            click.echo(printable(f"{label:<{LABEL}}{value}"))


def glance(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of the table. What this version does not know is left out, what is missing too."""
    ready = "" if status.get("ready") else " (not ready)" if status.get("state") != "loading" else ""
    loading = status.get("loading", status.get("progress"))
    share = f" {loading:.0%}" if status.get("state") == "loading" and isinstance(loading, float) else ""
    yield "state", f"{status.get('state', '?')}{share}{ready}, edged {status.get('version', '?')}{_up(status)}"
    yield "model", _model(status.get("model"))
    yield "profile", _words(status.get("profile"))
    yield "queue", _words(status.get("queue"))
    yield "slots", _words(status.get("slots"))
    yield "threads", _threads(status.get("threads"))
    yield "watchdog", _watchdog(status.get("watchdog"))
    yield "counters", _words(status.get("counters"))
    for warning in status.get("warnings") or []:
        yield "warning", str(warning)


def _up(status: dict[str, Any]) -> str:
    seconds = status.get("uptime_s")
    if not isinstance(seconds, int | float):
        return ""
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f", up {days} d {hours} h"
    return f", up {hours} h {minutes} min" if hours else f", up {minutes} min {whole % 60} s"


def _model(model: object) -> str:
    if not isinstance(model, dict):
        return _words(model)
    shown = [str(model.get("name", "?"))]
    if isinstance(model.get("size_bytes"), int):
        shown.append(f"{model['size_bytes'] / 1e6:.0f} MB")
    if model.get("sha256"):
        shown.append(f"sha256 {str(model['sha256'])[:12]}…")
    return ", ".join(shown)


def _threads(threads: object) -> str:
    """`decode+prefill on core 0, 1`: each role with the cores read back from the kernel."""
    if not isinstance(threads, list):
        return _words(threads)
    by_role: dict[str, list[str]] = {}
    for thread in threads:
        if isinstance(thread, dict):
            core = str(thread.get("core", "?"))
            cores = thread.get("cores")
            if isinstance(cores, list) and cores != [thread.get("core")]:
                core += f" (runs on {','.join(map(str, cores))})"
            by_role.setdefault(str(thread.get("role", "compute")), []).append(core)
    return "; ".join(f"{len(cores)} {role} on core {', '.join(cores)}" for role, cores in by_role.items())


def _watchdog(watchdog: object) -> str:
    if not isinstance(watchdog, dict):
        return _words(watchdog)
    last = watchdog.get("last_exit")
    rest = {k: v for k, v in watchdog.items() if k != "last_exit"}
    if isinstance(last, dict):
        rest["last_exit"] = last.get("cause", "?")
    return _words(rest)


def _words(value: object) -> str:
    """A value of any shape in a line: `busy 1, waiting 0`."""
    if isinstance(value, dict):
        pairs = ((str(key).replace("_", " "), _words(inner)) for key, inner in value.items() if inner is not None)
        return ", ".join(f"{key} {words}" for key, words in pairs if words)
    if isinstance(value, list):
        return ", ".join(_words(inner) for inner in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
