"""YAML → one frozen, typed `Config`.

Every key, its unit, its default and the reason for it stand in `config.yaml`; the defaults here are the same
(a test compares them). An unknown key, a wrong type or a value out of range is a `ConfigError` that names
file, key path, expected and found. What the configuration leaves open is in `edged.places`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import config_metrics, config_watchdog, yamlfile
from edged.config_metrics import Metrics
from edged.config_types import SHA256, Count, Natural, Seconds, SecondsOrNone, Section, Text
from edged.config_watchdog import Heat, Memory, Pacing, Restart, Watchdog
from edged.errors import ConfigError
from edged.messages import Priority
from edged.places import EMBEDDED_MODEL, default_runtime_dir, default_state_dir, models_dir
from edged.yamlfile import show, shown_key

__all__ = [
    "Cache",
    "Config",
    "Cpu",
    "Defaults",
    "Heat",
    "Limits",
    "Listen",
    "Memory",
    "Metrics",
    "Model",
    "Pacing",
    "Profile",
    "Restart",
    "Security",
    "Watchdog",
    "load",
    "parse",
]

UNIX_PATH_MAX = 107
"""Longest path of a Unix socket in bytes (sockaddr_un.sun_path less its NUL, unix(7))."""


class Listen(Section, frozen=True):
    """Endpoints. An empty list or string: the default below `runtime_dir`."""

    request: list[Text] = msgspec.field(default_factory=list)
    stream: list[Text] = msgspec.field(default_factory=list)
    control: str = ""


class Model(Section, frozen=True):
    """The weights. `path` empty: the embedded default in the models directory."""

    path: str = ""
    sha256: SHA256 | None = None


class Profile(Section, frozen=True):
    """One way to run a model; counts of 0 are chosen from the machine."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")] = "default"
    model: str | None = None
    context: Annotated[int, Meta(ge=256, le=1_048_576)] = 4096
    sequences: Annotated[int, Meta(ge=1, le=64)] = 4
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    prefill_threads: Annotated[int, Meta(ge=0, le=256)] = 0
    batch: Annotated[int, Meta(ge=8, le=4096)] = 128
    prefill_chunk: Annotated[int, Meta(ge=4, le=2048)] = 32
    kv_type: Literal["f16", "q8_0", "q4_0"] = "f16"


class Cpu(Section, frozen=True):
    """-1: one core when there are four or more, else none."""

    reserve_cores: Annotated[int, Meta(ge=-1, le=64)] = -1


class Limits(Section, frozen=True):
    """Protocol 11."""

    request_bytes: Annotated[int, Meta(ge=256, le=16 << 20)] = 262_144
    max_tokens: Count = 4096
    queue: Count = 128
    queue_per_identity: Count = 64
    waiters: Count = 8
    grammar_bytes: Annotated[int, Meta(ge=1, le=1 << 20)] = 65_536
    sessions_per_identity: Count = 64
    session_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 1 << 20
    orphan_grace_ms: Count = 5000
    result_ttl_s: Seconds = 300
    results_kept_bytes: Natural = 2 << 20
    drain_s: SecondsOrNone = 10
    max_restarts: Natural = 2
    connections: Annotated[int, Meta(ge=1, le=65_536)] = 256
    connections_per_identity: Annotated[int, Meta(ge=1, le=65_536)] = 128
    spare_memory_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 80 << 20


class Defaults(Section, frozen=True):
    """What a request gets that does not say (protocol 3)."""

    max_tokens: Count = 256
    deadline_ms: Annotated[int, Meta(ge=1, le=86_400_000)] = 120_000
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    top_k: Annotated[int, Meta(ge=0, le=1000)] = 20
    top_p: Annotated[float, Meta(gt=0, le=1)] = 0.95
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    repeat_penalty: Annotated[float, Meta(ge=0.5, le=2)] = 1.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0


class Security(Section, frozen=True):
    """Empty places: see `edged.places`; what lies there is read by `edged.keyring`."""

    clients_dir: str = ""
    server_key: str = ""
    allow_insecure_tcp: bool = False
    group: str | None = None
    ban_s: SecondsOrNone = 60
    tcp_max_priority: Priority = "normal"
    prefix_sharing: Literal["identity", "system", "all"] = "system"


class Cache(Section, frozen=True):
    """What is remembered of prompts that were read (design 3). Bytes bound each tier."""

    reuse: bool = True
    ram_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 64 << 20
    disk: Literal["sessions", "all", "off"] = "sessions"
    disk_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 256 << 20
    spill_bytes_per_hour: Annotated[int, Meta(ge=0, le=1 << 40)] = 64 << 20
    save_s: Annotated[float, Meta(ge=0, le=600)] = 5
    checkpoint_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 64 << 20


class Config(Section, frozen=True):
    """The whole configuration; `path` is the file it came from ("defaults" without one)."""

    path: str = "defaults"
    runtime_dir: str = ""
    state_dir: str = ""
    listen: Listen = Listen()
    model: Model = Model()
    profiles: Annotated[list[Profile], Meta(min_length=1)] = msgspec.field(default_factory=lambda: [Profile()])
    cpu: Cpu = Cpu()
    cache: Cache = Cache()
    limits: Limits = Limits()
    defaults: Defaults = Defaults()
    security: Security = Security()
    watchdog: Watchdog = Watchdog()
    journal: Literal["ram", "disk", "off"] = "ram"
    metrics: Metrics = Metrics()
    health_interval_s: Seconds = 5
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def request_endpoints(self) -> list[str]:
        return self.listen.request or [f"ipc://{self.runtime_dir}/request.sock"]

    @property
    def stream_endpoints(self) -> list[str]:
        return self.listen.stream or [f"ipc://{self.runtime_dir}/stream.sock"]

    @property
    def control_endpoint(self) -> str:
        return self.listen.control or f"ipc://{self.runtime_dir}/control.sock"

    @property
    def profile(self) -> Profile:
        """The profile in force: the best one (the watchdog that steps down the list arrives later)."""
        return self.profiles[0]

    @property
    def model_path(self) -> str:
        return self.profile.model or self.model.path


def load(path: str | Path | None, *, again: bool = False) -> Config:
    """Reads and checks a configuration file; None: the defaults. Raises ConfigError.

    `again`: it replaces one in force, and an empty file is more likely one that is just being written.
    """
    if path is None:
        return parse({}, "defaults")
    data = yamlfile.read(str(path))
    if data is None and again:
        raise ConfigError(str(path), "(top)", "a mapping of keys", "an empty file")
    return parse({} if data is None else data, str(path))


def parse(data: object, name: str) -> Config:
    """Checks decoded YAML and fills the places in. Pure but for the environment. Raises ConfigError."""
    if not isinstance(data, dict):
        raise ConfigError(name, "(top)", "a mapping of keys", show(data))
    yamlfile.only_text_keys(name, data)
    if "path" in data:
        raise ConfigError(name, "path", "a key of config.yaml", "an unknown key")
    try:
        config = msgspec.convert(data, Config)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _explain(name, data, str(error)) from None
    config = msgspec.structs.replace(
        config,
        path=name,
        runtime_dir=config.runtime_dir or default_runtime_dir(),
        state_dir=config.state_dir or default_state_dir(),
        model=msgspec.structs.replace(
            config.model, path=_expand(config.model.path) or str(models_dir() / EMBEDDED_MODEL)
        ),
        profiles=[msgspec.structs.replace(p, model=_expand(p.model)) if p.model else p for p in config.profiles],
        security=msgspec.structs.replace(
            config.security,
            clients_dir=_expand(config.security.clients_dir),
            server_key=_expand(config.security.server_key),
        ),
    )
    _check(config, name)
    return config


def _expand(path: str) -> str:
    return os.path.expanduser(path)


def _check(config: Config, name: str) -> None:
    """Rules that tie keys together."""
    security = config.security
    for key, directory in (
        ("runtime_dir", config.runtime_dir),
        ("state_dir", config.state_dir),
        ("security.clients_dir", security.clients_dir or "/"),
        ("security.server_key", security.server_key or "/"),
    ):
        if not os.path.isabs(directory) or "\0" in directory:
            raise ConfigError(name, key, "an absolute path", show(directory))
    for key, endpoints in (
        ("listen.request", config.request_endpoints),
        ("listen.stream", config.stream_endpoints),
        ("listen.control", [config.control_endpoint]),
    ):
        for endpoint in endpoints:
            _check_endpoint(name, key, endpoint)
    every = [*config.request_endpoints, *config.stream_endpoints, config.control_endpoint]
    for endpoint in every:
        if every.count(endpoint) > 1:
            raise ConfigError(name, "listen", "endpoints that differ", f"{endpoint} twice")
    names = [p.name for p in config.profiles]
    for index, profile in enumerate(config.profiles):
        at = f"profiles[{index}]"
        if names.index(profile.name) != index:
            raise ConfigError(name, f"{at}.name", "names that differ", f"{profile.name!r} twice")
        if profile.prefill_chunk + profile.sequences > profile.batch:
            least = profile.prefill_chunk + profile.sequences
            raise ConfigError(name, f"{at}.batch", f"prefill_chunk + sequences (≥ {least})", str(profile.batch))
    if config.defaults.max_tokens > config.limits.max_tokens:
        expected = f"at most limits.max_tokens ({config.limits.max_tokens})"
        raise ConfigError(name, "defaults.max_tokens", expected, str(config.defaults.max_tokens))
    config_watchdog.check(config.watchdog, name)
    config_metrics.check(config.metrics, name)


def doubts(config: Config) -> list[str]:
    """What is allowed and hardly meant, in words, for `status`."""
    deaths, least = config.watchdog.restart.max, config.limits.max_restarts + 1
    if deaths >= least:
        return []
    return [f"watchdog.restart.max is {deaths}: with less than {least} a request that kills its workers is not found"]


def _check_endpoint(name: str, key: str, endpoint: str) -> None:
    scheme, _, rest = endpoint.partition("://")
    if scheme == "ipc" and rest.startswith("/"):
        if len(os.fsencode(rest)) > UNIX_PATH_MAX:
            raise ConfigError(name, key, f"a socket path of at most {UNIX_PATH_MAX} bytes", show(rest))
    elif scheme == "tcp" and key != "listen.control":
        host, _, port = rest.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise ConfigError(name, key, "tcp://ADDRESS:PORT", show(endpoint))
    else:
        also = "" if key == "listen.control" else " or tcp://ADDRESS:PORT"
        raise ConfigError(name, key, f"ipc:///absolute/path{also}", show(endpoint))


def _explain(name: str, data: dict[Any, Any], message: str) -> ConfigError:
    """msgspec says "Expected `int`, got `str` - at `$.limits.queue`"; we want file, key, expected, found."""
    what, _, at = message.rpartition(" - at `") if " - at `" in message else (message, "", "")
    path = at.rstrip("`").removeprefix("$").removeprefix(".") or "(top)"
    if what.startswith("Object contains unknown field"):
        field = shown_key(what.partition("`")[2].rpartition("`")[0])
        key = field if path == "(top)" else f"{path}.{field}"
        return ConfigError(name, key, "a key of config.yaml", "an unknown key")
    expected = what.partition(", got ")[0].removeprefix("Expected ").replace("`", "")
    return ConfigError(name, path, expected, show(_lookup(data, path)))


def _lookup(data: Any, path: str) -> object:
    for part in path.replace("[", ".[").split("."):
        try:
            data = data[int(part[1:-1])] if part.startswith("[") else data[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return data
    return data
