"""The reply to `status` as lines for people. Pure, but for what the terminal is.

What is missing is left out; what has another shape than this version knows is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from edged.cli.output import one_line
from edged.cli.terminal import coloured, dot, wrapped
from edged.cli.words import duration, times, words

LABEL: Final = 10
COLOUR_OF: Final = {"ready": "green", "unavailable": "red", "no answer": "red"}
"""Of a state; every other one is yellow."""

Row = tuple[str, str]


def drawn(rows: Iterator[Row], columns: int | None) -> list[str]:
    """`columns` None: into a pipe, one line a row, neither dot nor colour."""
    out = []
    for label, value in rows:
        if not value:
            continue
        said = one_line(value)
        if columns is None:
            out.append(f"{label:<{LABEL}}{said}")
            continue
        marked = f"{dot()} {said}" if label == "state" else said
        first, *rest = wrapped(marked, columns - LABEL)
        out.append(f"{label:<{LABEL}}{_painted(label, first)}")
        out += [" " * LABEL + line for line in rest]
    return out


def _painted(label: str, line: str) -> str:
    """The dot and the state's name, and the whole of a warning."""
    if label == "warning":
        return coloured(line, "yellow")
    if label != "state":
        return line
    head, comma, tail = line.partition(",")
    state = head.partition(" ")[2]
    colour = next((c for name, c in COLOUR_OF.items() if state == name), "yellow")
    return coloured(head, colour) + comma + tail


def glance(status: dict[str, Any], now: float) -> Iterator[Row]:
    """Label and value. `now` is Unix time."""
    yield "state", ", ".join(filter(None, [_state(status), f"edged {status.get('version', '?')}", _up(status)]))
    yield "model", _model(status.get("model"))
    yield "profile", _profile(status)
    watchdog = status.get("watchdog")
    yield "level", words(watchdog.get("level")) if isinstance(watchdog, dict) else words(watchdog)
    yield "queue", _queue(status.get("queue"))
    yield "slots", _slots(status.get("slots"))
    yield "cache", _cache(status.get("cache"))
    yield "sessions", _sessions(status.get("sessions"))
    yield "speed", _speed(status.get("speed"))
    yield "threads", _threads(status.get("threads"))
    yield "worker", _worker(watchdog, now) if isinstance(watchdog, dict) else ""
    warnings = status.get("warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        yield "warning", words(warning)


def how(status: dict[str, Any]) -> str:
    """`ready`, `loading 43%`, `draining (new requests are refused)`."""
    return one_line(_state(status))


def _state(status: dict[str, Any]) -> str:
    state = str(status.get("state", "?"))
    model = status.get("model")
    loaded = model.get("loaded") if isinstance(model, dict) else None
    if state == "loading":
        return f"{state} {loaded:.0%}" if isinstance(loaded, int | float) else state
    if state == "draining":
        return f"{state} (new requests are refused)"
    return state if status.get("ready") else f"{state} (not ready)"


def _up(status: dict[str, Any]) -> str:
    seconds = status.get("uptime_s")
    return f"up {duration(seconds)}" if isinstance(seconds, int | float) else ""


def _model(model: object) -> str:
    if not isinstance(model, dict):
        return words(model)
    shown = [str(model.get("name", "?"))]
    if isinstance(model.get("size_bytes"), int) and model["size_bytes"] > 0:
        shown.append(f"{model['size_bytes'] / 1e6:.0f} MB")
    if model.get("sha256"):
        shown.append(f"sha256 {str(model['sha256'])[:12]}…")
    return ", ".join(shown)


def _profile(status: dict[str, Any]) -> str:
    model = status.get("model")
    context = model.get("context") if isinstance(model, dict) else None
    named = words(status.get("profile"))
    return f"{named}, context of {context} tokens" if named and context else named


def _queue(queue: object) -> str:
    if not (isinstance(queue, dict) and "length" in queue):
        return words(queue)
    by_priority = queue.get("by_priority")
    priorities = by_priority if isinstance(by_priority, dict) else {}
    waiting = words({name: n for name, n in priorities.items() if n and name != "normal"})
    return f"{queue['length']} waiting of {queue.get('limit', '?')}" + (f" ({waiting})" if waiting else "")


def _slots(slots: object) -> str:
    if not (isinstance(slots, dict) and {"busy", "total"} <= slots.keys()):
        return words(slots)
    said = [f"{slots['busy']} busy of {slots['total']}"]
    if slots.get("set_aside"):
        said.append(f"{slots['set_aside']} set aside")
    if slots.get("cells_total"):
        said.append(f"{slots.get('cells_used', 0)} of {slots['cells_total']} KV cells in use")
    return ", ".join(said)


def _cache(cache: object) -> str:
    """`12 of 15 prompts found their beginning (3400 tokens were not read again), …`."""
    if not isinstance(cache, dict):
        return words(cache)
    found, missed, reused = (_count(cache, name) for name in ("hits", "misses", "reused_tokens"))
    said = []
    if found + missed:
        said.append(f"{found} of {found + missed} prompts found their beginning ({reused} tokens not read again)")
    if _count(cache, "idle_sequences"):
        said.append(f"{_count(cache, 'idle_cells')} cells kept in {_count(cache, 'idle_sequences')} sequences")
    for tier, name in (("ram", "in RAM"), ("disk", "on disk")):
        files = _count(cache, f"{tier}_files")
        if files:
            said.append(f"{files} {'snapshot' if files == 1 else 'snapshots'} {name}, {_size(cache, tier)}")
    if _count(cache, "set_aside_files"):
        said.append(f"bad files set aside: {_count(cache, 'set_aside_files')}")
    return ", ".join(said)


def _sessions(sessions: object) -> str:
    if not (isinstance(sessions, dict) and "count" in sessions):
        return words(sessions)
    said = [words(sessions["count"]), f"{_count(sessions, 'bytes') / 1e3:.0f} kB"]
    if _count(sessions, "failures"):
        said.append(f"failures: {_count(sessions, 'failures')}")
    return ", ".join(filter(None, said))


def _size(cache: dict[str, Any], tier: str) -> str:
    return f"{_count(cache, f'{tier}_bytes') / 1e6:.1f} MB"


def _count(facts: dict[str, Any], name: str) -> int:
    value = facts.get(name)
    return max(0, min(value, 1 << 62)) if isinstance(value, int) else 0


def _speed(speed: object) -> str:
    rate = speed.get("tokens_per_second") if isinstance(speed, dict) else None
    return f"{rate:.1f} tokens/s" if isinstance(rate, int | float) and rate > 0 else ""


def _threads(threads: object) -> str:
    """`2 decode+prefill on core 0, 1`: each role with the cores read back from the kernel."""
    if not isinstance(threads, list):
        return words(threads)
    by_role: dict[str, list[str]] = {}
    for thread in threads:
        if isinstance(thread, dict):
            core = str(thread.get("core", "?"))
            cores = thread.get("cores")
            if isinstance(cores, list) and cores != [thread.get("core")]:
                core += f" (runs on {','.join(map(str, cores))})"
            by_role.setdefault(str(thread.get("role", "compute")), []).append(core)
    return "; ".join(f"{len(cores)} {role} on core {', '.join(cores)}" for role, cores in by_role.items())


def _worker(watchdog: dict[str, Any], now: float) -> str:
    said = []
    deaths, last = watchdog.get("worker_deaths"), watchdog.get("last_exit")
    if deaths:
        said.append(f"died {times(deaths)}")
    if isinstance(last, dict):
        at = last.get("time")
        ago = f" {duration(now - at)} ago" if isinstance(at, int | float) else ""
        said.append(f"last exit {last.get('cause', '?')}{ago}")
    return ", ".join(said)
