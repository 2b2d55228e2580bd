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
    with session.client() as edged:
        reply = edged.call("status", deadline_s=session.timeout(ANSWER_S))
    if as_json or session.as_json:
        print_json(reply)
        return
    for label, value in glance(reply):
        if value:
            click.echo(printable(f"{label:<{LABEL}}{value}"))


def glance(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of the table. What is missing is left out; what has another shape is shown as it is."""
    state = str(status.get("state", "?"))
    yield "state", f"{state}{_how_far(status)}, edged {status.get('version', '?')}{_up(status)}"
    yield "model", _model(status.get("model"))
    yield "profile", _words(status.get("profile"))
    yield "queue", _queue(status.get("queue"))
    yield "slots", _slots(status.get("slots"))
    yield "threads", _threads(status.get("threads"))
    yield "speed", _speed(status.get("speed"))
    yield "watchdog", _watchdog(status.get("watchdog"))
    for warning in status.get("warnings") or []:
        yield "warning", str(warning)


def _how_far(status: dict[str, Any]) -> str:
    """`loading 43%`, `draining (not ready)`."""
    model = status.get("model")
    loaded = model.get("loaded") if isinstance(model, dict) else None
    if status.get("state") == "loading":
        return f" {loaded:.0%}" if isinstance(loaded, int | float) else ""
    return "" if status.get("ready") else " (not ready)"


def _queue(queue: object) -> str:
    if not (isinstance(queue, dict) and "length" in queue):
        return _words(queue)
    by_priority = queue.get("by_priority")
    priorities = by_priority if isinstance(by_priority, dict) else {}
    waiting = _words({name: n for name, n in priorities.items() if n and name != "normal"})
    return f"{queue['length']} waiting of {queue.get('limit', '?')}" + (f" ({waiting})" if waiting else "")


def _slots(slots: object) -> str:
    if not (isinstance(slots, dict) and {"busy", "total"} <= slots.keys()):
        return _words(slots)
    words = [f"{slots['busy']} busy of {slots['total']}"]
    if slots.get("set_aside"):
        words.append(f"{slots['set_aside']} set aside")
    if slots.get("cells_total"):
        words.append(f"{slots.get('cells_used', 0)} of {slots['cells_total']} KV cells in use")
    return ", ".join(words)


def _speed(speed: object) -> str:
    rate = speed.get("tokens_per_second") if isinstance(speed, dict) else None
    return f"{rate:.1f} tokens/s" if isinstance(rate, int | float) and rate > 0 else ""


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
    words = [f"level {watchdog['level']}"] if watchdog.get("level") else []
    if watchdog.get("worker_deaths"):
        words.append(f"worker died {watchdog['worker_deaths']} times")
    last = watchdog.get("last_exit")
    if isinstance(last, dict):
        words.append(f"last exit {last.get('cause', '?')}")
    return ", ".join(words)


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
