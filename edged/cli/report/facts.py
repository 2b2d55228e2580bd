"""What the page is made of: read from this machine, asked of the daemon. What cannot be had is left out, with why."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from edged import __version__, client, config, doctor
from edged.cli import reach
from edged.cli.output import ANSWER_S, Session, error_words, silence_words
from edged.cli.past import Past, past
from edged.cli.report.redact import redacted, sentence
from edged.errors import ConfigError

EVENTS: Final = 200
PACKAGES: Final = ("pyzmq", "msgspec", "llama-cpp-python", "numpy", "systemd-python", "prometheus-client")
BOARD_FILES: Final = ("proc/device-tree/model", "sys/class/dmi/id/product_name")


class Settings(Struct, frozen=True):
    """`every` and `changed` (by dotted key: value, default) without secrets. `wrong`: why it could not be read."""

    path: str
    every: dict[str, Any] = {}
    changed: dict[str, tuple[Any, Any]] = {}
    wrong: str = ""


class Facts(Struct, frozen=True):
    """`down`: why the daemon did not answer. `findings` None: doctor was not asked."""

    made: float
    host: str
    machine: list[tuple[str, str]]
    endpoint: str
    settings: Settings
    down: str = ""
    status: dict[str, Any] = {}
    past: Past | None = None
    findings: list[doctor.Finding] | None = None


def gather(session: Session, *, examine: bool) -> Facts:
    settings, found = _settings(session)
    endpoint = session.given or reach.connectable(found or config.parse({}, "defaults"))
    down, status, history = _asked(session, endpoint)
    findings = _examined(found, settings.wrong) if examine else None
    return Facts(
        made=time.time(),
        host=socket.gethostname(),
        machine=machine(Path("/")),
        endpoint=endpoint,
        settings=settings,
        down=down,
        status=status,
        past=past(history),
        findings=findings,
    )


def machine(root: Path) -> list[tuple[str, str]]:
    """The machine that this runs on."""
    release = dict(line.split("=", 1) for line in _text(root / "etc/os-release").splitlines() if "=" in line)
    board = next(filter(None, (_text(root / path) for path in BOARD_FILES)), "unknown")
    facts = [
        ("board", board),
        ("system", release.get("PRETTY_NAME", "unknown").strip('"')),
        ("kernel", f"{platform.release()}, {platform.machine()}"),
        ("processors", str(os.cpu_count() or "unknown")),
        ("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 20} MB"),
        ("page size", f"{os.sysconf('SC_PAGE_SIZE') >> 10} KiB"),
        ("up", _text(root / "proc/uptime").partition(" ")[0]),
        ("Python", platform.python_version()),
        ("edgectl", __version__),
    ]
    return facts + [(name, found) for name in PACKAGES if (found := _version(name))]


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[:4096].decode("utf-8", "replace").strip("\0\n ")
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _asked(session: Session, endpoint: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Why it does not answer, or its status and its past."""
    patience_s = session.timeout(ANSWER_S)
    why = reach.unreachable(endpoint)
    if why:
        return why, {}, {}
    try:
        with session.connect(endpoint) as edged:
            status = edged.call("status", deadline_s=patience_s)
            try:
                return "", status, edged.call("history", deadline_s=patience_s, events=EVENTS)
            except client.EdgedError:
                return "", status, {}
    except client.NoAnswer as error:
        return silence_words(endpoint, error), {}, {}
    except client.ReplyError as error:
        return error_words(error), {}, {}


def _settings(session: Session) -> tuple[Settings, config.Config | None]:
    try:
        found = session.configuration()
    except ConfigError as error:
        return Settings(path=session.config_path or "defaults", wrong=f"{error.key}: {error.expected}"), None
    every, default = (_plain(one) for one in (found, config.parse({}, "defaults")))
    flat, usual = _flat(every), _flat(default)
    changed = {key: (value, usual.get(key)) for key, value in flat.items() if usual.get(key) != value}
    return Settings(path=found.path, every=every, changed=changed), found


def _plain(found: config.Config) -> dict[str, Any]:
    plain: dict[str, Any] = redacted(msgspec.to_builtins(found))
    plain.pop("path", None)
    return plain


def _flat(value: Any, at: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{at}.{name}" if at else name).items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {k: v for index, item in enumerate(value) for k, v in _flat(item, f"{at}[{index}]").items()}
    return {at: value}


def _examined(found: config.Config | None, wrong: str) -> list[doctor.Finding]:
    findings = doctor.run(found or config.parse({}, "defaults"), refused=wrong)
    return [doctor.Finding(f.check, f.severity, *map(sentence, (f.what, f.why, f.do))) for f in findings]
