"""The service's figures as metrics: the reply to `status` and two histograms, named by Prometheus' rules. Pure.

* Names begin with `edged_`, base units (seconds, bytes, Celsius, hertz) are their last part, counters end in `_total`.
* Labels have few values and never an id, an identity, a topic or a text: outcomes, error codes, causes of a worker's
  end, zones (64 at most), levels, the model's and the profile's name.
* What is unknown is left out, so that an alert on it does not mistake it for 0.
* Counters begin at 0 with the daemon, those of the cache with the worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from edged.broker.histogram import Histogram
from edged.level import Level

MB: Final = 1 << 20

STATES: Final = ("loading", "ready", "degraded", "draining", "unavailable")

Labels = tuple[str, ...]


class Buckets(Struct, frozen=True):
    """Counts up to and with each bound, the last of all; and the sum of the values."""

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    sum: float


class Family(Struct, frozen=True):
    """A metric: `samples` are the values by their labels, for a histogram `buckets` stand in their place."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    samples: tuple[tuple[Labels, float], ...] = ()
    buckets: Buckets | None = None


class Snapshot(Struct, frozen=True):
    """What the loop hands over: nothing in it changes any more."""

    status: Mapping[str, Any]
    first_token: Buckets
    interval: Buckets


def buckets(histogram: Histogram) -> Buckets:
    counted, out = 0, []
    for count in histogram.counts:
        counted += count
        out.append(counted)
    return Buckets(histogram.bounds, tuple(out), histogram.sum)


def families(snapshot: Snapshot, daemon_bytes: int | None) -> list[Family]:
    """`daemon_bytes`: resident memory of the daemon."""
    status = snapshot.status
    found = [
        *_service(status),
        *_requests(status, snapshot),
        *_worker(status),
        *_board(status, daemon_bytes),
        *_kept(status),
    ]
    return [family for family in found if family.samples or family.buckets is not None]


# ---- parts --------------------------------------------------------------------------------------------------------


def _service(status: Mapping[str, Any]) -> Iterator[Family]:
    version = ((str(status["version"]),), 1.0)
    yield Family("edged_build_info", "gauge", "The release that runs; always 1.", ("version",), (version,))
    yield _gauge("edged_uptime_seconds", "Since the daemon's start.", status["uptime_s"])
    states = tuple(((state,), float(state == status["state"])) for state in STATES)
    yield Family("edged_state", "gauge", "1 for the state that the service is in.", ("state",), states)
    yield _gauge("edged_ready", "1 when prompts are taken now.", status["ready"])
    yield _gauge("edged_warnings", "Warnings that `edgectl status` shows.", len(status["warnings"]))
    levels = {kind: _level(status["watchdog"].get(kind)) for kind in ("heat", "memory")}
    samples = tuple(((kind,), float(level)) for kind, level in levels.items() if level is not None)
    text = "Level of heat and of memory: 0 normal, 1 warm, 2 hot, 3 critical."
    yield Family("edged_level", "gauge", text, ("kind",), samples)


def _requests(status: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Family]:
    counters, queue, slots = status["counters"], status["queue"], status["slots"]
    ended = {**_named(counters, "finished_"), **_named(counters, "failed_")}
    yield _counter("edged_requests_accepted_total", "Requests that were accepted.", counters.get("accepted", 0))
    text = "Requests that ended, by finish_reason or error code."
    yield Family("edged_requests_total", "counter", text, ("outcome",), _by_label(ended))
    refused = _named(counters, "refused_")
    text = "Requests that were not accepted, by error code."
    yield Family("edged_requests_refused_total", "counter", text, ("code",), _by_label(refused))
    yield _gauge("edged_requests_in_progress", "Accepted and not ended.", queue["accepted"])
    waiting = _by_label(queue["by_priority"])
    yield Family("edged_queue_length", "gauge", "Requests that wait, by priority.", ("priority",), waiting)
    yield _gauge("edged_queue_limit", "Requests that may wait (limits.queue).", queue["limit"])
    yield _gauge("edged_slots", "Requests that are written at the same time, at most.", slots["total"])
    yield _gauge("edged_slots_busy", "Requests that are read or written now.", slots["busy"])
    text = "From receipt to the first token, queueing included."
    yield Family("edged_time_to_first_token_seconds", "histogram", text, buckets=snapshot.first_token)
    text = "Between one token of a request and the next."
    yield Family("edged_token_interval_seconds", "histogram", text, buckets=snapshot.interval)
    text = "Tokens of prompts that were read, also for requests that have not ended."
    yield _counter("edged_prefill_tokens_total", text, counters.get("prefill_tokens", 0))
    text = "Tokens of prompts of ended requests."
    yield _counter("edged_prompt_tokens_total", text, counters.get("prompt_tokens", 0))
    text = "Of these, tokens that had been read before."
    yield _counter("edged_prompt_tokens_cached_total", text, counters.get("cached_tokens", 0))
    yield _counter("edged_completion_tokens_total", "Tokens written.", counters.get("tokens", 0))
    text = "Per request, average over the last few."
    yield _gauge("edged_tokens_per_second", text, status["speed"]["tokens_per_second"])
    named = ("tokens", "accepted", "prompt_tokens", "cached_tokens", "prefill_tokens")
    rest = {name: n for name, n in counters.items() if name not in named and not name.startswith(_PREFIXES)}
    text = "What else is counted: malformed, rejected, tainted, orphans, carried, bugs and others of `status`."
    yield Family("edged_incidents_total", "counter", text, ("kind",), _by_label(rest))


_PREFIXES: Final = ("finished_", "failed_", "refused_")


def _worker(status: Mapping[str, Any]) -> Iterator[Family]:
    watchdog, model, slots = status["watchdog"], status["model"], status["slots"]
    yield _counter("edged_worker_starts_total", "Workers that were started.", watchdog["worker_starts"])
    text = "Workers that ended, by cause: a signal, `exit N`, stalled, oom; heat, memory, reload, profile: on purpose."
    yield Family("edged_worker_ends_total", "counter", text, ("cause",), _by_label(watchdog["ends"]))
    labels = (str(model["name"]), str(status["profile"]))
    loaded = "load_ms" in model
    text = "The model and profile in service; 0 while it is not loaded."
    yield Family("edged_model_info", "gauge", text, ("model", "profile"), ((labels, float(loaded)),))
    if loaded:
        yield _gauge("edged_model_load_seconds", "How long the model took to load.", model["load_ms"] / 1000)
        yield _gauge("edged_model_size_bytes", "Size of its weights.", model.get("size_bytes"))
    yield _gauge("edged_kv_cells", "Cells of the KV cache, in tokens.", slots.get("cells_total"))
    yield _gauge("edged_kv_cells_used", "Of these, in use.", slots.get("cells_used"))
    pace = watchdog.get("pace", {})
    yield _gauge("edged_pace_duty_ratio", "Part of the time that is worked; below 1: paced for heat.", pace.get("duty"))


def _board(status: Mapping[str, Any], daemon_bytes: int | None) -> Iterator[Family]:
    watchdog = status["watchdog"]
    readings = watchdog.get("readings", {})
    zones = _by_label(readings.get("zones", {}))
    yield Family("edged_temperature_celsius", "gauge", "Thermal zones of the board.", ("zone",), zones)
    for name, field, text in (
        ("edged_throttled", "throttled", "1 while the firmware throttles."),
        ("edged_soft_temperature_limit", "soft_limit", "1 at the firmware's soft temperature limit."),
        ("edged_under_voltage", "under_voltage", "1 while the supply is too weak."),
        ("edged_frequency_capped", "capped", "1 while the firmware caps the clock."),
    ):
        yield _gauge(name, text, readings.get(field))
    yield _gauge("edged_frequency_hertz", "Clock of the fastest cores.", _times(readings.get("frequency_khz"), 1000))
    text = "The highest clock that they have."
    yield _gauge("edged_frequency_max_hertz", text, _times(readings.get("frequency_max_khz"), 1000))
    for name, field, text in (
        ("edged_memory_available_bytes", "available_mb", "MemAvailable of the board."),
        ("edged_memory_total_bytes", "total_mb", "All memory of the board."),
        ("edged_swap_free_bytes", "swap_free_mb", "Free swap."),
    ):
        yield _gauge(name, text, _times(readings.get(field), MB))
    yield _gauge(
        "edged_memory_pressure_ratio",
        "Part of the last 10 s in which somebody waited for memory (PSI).",
        _times(readings.get("psi_some10"), 0.01),
    )
    if "worker_anon_mb" in readings:
        held = readings["worker_anon_mb"] + readings.get("worker_swap_mb", 0)
        text = "What the worker costs: anonymous memory and swap, without the mapped weights."
        yield _gauge("edged_worker_memory_bytes", text, held * MB)
    yield _gauge("edged_daemon_memory_bytes", "Resident memory of the daemon.", daemon_bytes)
    yield _gauge("edged_alarms", "Sensors that fail, and under-voltage.", len(watchdog.get("alarms", [])))


def _kept(status: Mapping[str, Any]) -> Iterator[Family]:
    cache, journal, results = status["cache"], status["journal"], status["results"]
    for name, field, text in (
        ("edged_cache_hits_total", "hits", "Prompts that found their beginning; since the worker's start."),
        ("edged_cache_misses_total", "misses", "Prompts that did not."),
        ("edged_cache_reused_tokens_total", "reused_tokens", "Tokens that were not read again."),
        ("edged_cache_written_bytes_total", "written_bytes", "Snapshots written to the disk."),
        ("edged_cache_set_aside_total", "set_aside_files", "Bad or foreign snapshots moved aside."),
    ):
        yield _counter(name, text, cache.get(field, 0))
    places = {place: journal[f"{place}_bytes"] for place in ("ram", "disk") if f"{place}_bytes" in journal}
    text = "Size of the journal's files."
    yield Family("edged_journal_bytes", "gauge", text, ("place",), _by_label(places))
    yield _gauge("edged_results_kept", "Results that are kept for clients that lost the reply.", results["kept"])
    yield _gauge("edged_results_kept_bytes", "Their size.", results["kept_bytes"])
    sessions = status["sessions"]
    yield _gauge("edged_sessions", "Conversations that are kept.", sessions.get("count"))
    yield _gauge("edged_sessions_bytes", "Their size.", sessions.get("bytes"))
    if "failures" in sessions:
        yield _counter("edged_sessions_failures_total", "Turns that could not be written.", sessions["failures"])


# ---- words --------------------------------------------------------------------------------------------------------


def _gauge(name: str, text: str, value: float | None) -> Family:
    return Family(name, "gauge", text, samples=() if value is None else (((), float(value)),))


def _counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, samples=(((), float(value)),))


def _by_label(values: Mapping[str, float]) -> tuple[tuple[Labels, float], ...]:
    return tuple(((name,), float(value)) for name, value in sorted(values.items()))


def _named(counters: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix)}


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _level(word: object) -> int | None:
    return next((int(level) for level in Level if level.word == word), None)
