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
    yield "level", _level(watchdog)
    yield "unloaded", _unloaded(watchdog)
    yield "board", _board(watchdog)
    yield "reload", _reload(watchdog)
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
    watchdog = status.get("watchdog")
    chosen = watchdog.get("profile") if isinstance(watchdog, dict) else None
    name = words(chosen.get("pinned")) if isinstance(chosen, dict) and chosen.get("pinned") else ""
    pinned = f" ({'pinned' if name == named else f'{name} is pinned'})" if name else ""
    return f"{named}{pinned}, context of {context} tokens" if named and context else f"{named}{pinned}"


def _level(watchdog: object) -> str:
    """`hot for 12.0 s: 81.0 °C for 3 samples (hot from 79); ends below 74 °C for 30 s`."""
    if not isinstance(watchdog, dict):
        return words(watchdog)
    level = words(watchdog.get("level"))
    if level in ("", "normal"):
        return level
    lasted = f" for {duration(watchdog['since'])}" if _number(watchdog, "since") else ""
    why = f": {words(watchdog['why'])}" if watchdog.get("why") else ""
    back = f"; ends {words(watchdog['back'])}" if watchdog.get("back") else ""
    return f"{level}{lasted}{why}{back}"


def _unloaded(watchdog: object) -> str:
    """`the board is too hot: 86.0 °C for 3 samples (critical from 84); loaded again in about 40.0 s`."""
    facts = watchdog.get("unloaded") if isinstance(watchdog, dict) else None
    if not isinstance(facts, dict):
        return ""
    waits = (
        f"in about {duration(facts['seconds'])}" if _number(facts, "seconds") else "when the level is warm or better"
    )
    return f"{words(facts.get('why'))}; loaded again {waits}"


def _board(watchdog: object) -> str:
    """Temperature, memory, clock, and how far work is held back."""
    readings = watchdog.get("readings") if isinstance(watchdog, dict) else None
    if not isinstance(watchdog, dict) or not isinstance(readings, dict):
        return ""
    said = []
    if _number(readings, "temperature_c"):
        said.append(f"{readings['temperature_c']:.1f} °C")
    if _number(readings, "available_mb"):
        total = f" of {readings['total_mb']:.0f}" if _number(readings, "total_mb") else ""
        said.append(f"{readings['available_mb']:.0f}{total} MB available")
    if _number(readings, "frequency_khz"):
        said.append(f"{readings['frequency_khz'] / 1e6:.1f} GHz")
    said += [words(name) for name in ("throttled", "under-voltage") if readings.get(name.replace("-", "_")) is True]
    pace = watchdog.get("pace")
    if isinstance(pace, dict):
        if _number(pace, "duty") and pace["duty"] < 1:
            said.append(f"working {pace['duty']:.0%} of the time")
        if _number(pace, "threads") and pace["threads"] > 0:
            said.append(f"{pace['threads']:.0f} thread{'' if pace['threads'] == 1 else 's'}")
        if _number(pace, "frequency_khz"):
            said.append(f"at most {pace['frequency_khz'] / 1e6:.1f} GHz")
    return ", ".join(said)


def _number(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _reload(watchdog: object) -> str:
    """`heat, to profile small, loading 40%`."""
    change = watchdog.get("reload") if isinstance(watchdog, dict) else None
    if not isinstance(change, dict):
        return ""
    at = words(change.get("at"))
    loaded = f" {change['loaded']:.0%}" if _number(change, "loaded") else ""
    profile = f"to profile {words(change['profile'])}" if change.get("profile") else ""
    return ", ".join(filter(None, [words(change.get("reason")), profile, f"{at}{loaded}"]))


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
