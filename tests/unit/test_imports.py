"""Who may import whom (docs/architecture.md), read from the source: a broken rule fails here, not in a review."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import edged

PACKAGE = Path(edged.__file__).parent

IMPURE = frozenset(
    "asyncio multiprocessing os random secrets select selectors signal socket subprocess threading time".split()  # noqa: SIM905 - shorter so
)
"""What does I/O, reads a clock or draws lots: not for modules that turn events into instructions."""

BROKER_MAY = ("msgspec", "edged.messages", "edged.errors", "edged.level", "edged.config", "edged.broker")
PURE_NAMES = "scheduler kvcache prefix residency jobs plan prompt detok chat stateformat".split()  # noqa: SIM905 - shorter so
PURE_WORKER = tuple(
    f"edged.worker.{name}"
    for name in [
        "scheduler",
        "kvcache",
        "detok",
        "chat",
        "guard",
        "probing",
        "grammar",
        "gbnf",
        "network",
        "automaton",
        "utf8ranges",
        "masks",
        "jsontext",
        "schema",
        "calling",
        "form",
        "answer",
        "logprobs",
        "checkformat",
        "copying",
        "pacing",
    ]
)
PURE_WATCHDOG = (
    *(f"edged.watchdog.{name}" for name in ("budget", "change", "descent", "fit", "happenings", "readings", "stall")),
    *(f"edged.watchdog.{name}" for name in ("ladder", "pacing", "policy", "stair")),
    *(f"edged.watchdog.{name}" for name in ("alarms", "back", "care", "refusal", "spare", "thresholds")),
    *(f"edged.wire.{name}" for name in ("bans", "connections", "outbox")),
    "edged.observe.watch",
    "edged.observe.metrics",
    "edged.observe.sentence",
    "edged.observe.history",
)
PURE_CLIENT = tuple(
    f"edged.client.{name}"
    for name in ("steps", "errors", "replies", "reading", "boxes", "choice", "attempts", "exchange", "call")
)
CLIENT_MAY = ("msgspec", "zmq", "edged.client", "edged.places", "edged.keyfile", "edged.keypair")
"""A machine that only asks installs no more than this."""
PURE_FORMATS = ("edged.journal.format", "edged.journal.upkeep", "edged.keyfile")
PURE_WORKER_NOT = ("zmq", "llama_cpp", "time", "os", "socket", "threading")

CLIENT_SOCKETS = tuple(f"edged.client.{name}" for name in ("lines", "aiolines", "sync", "aio"))

ONLY_IN = {
    "llama_cpp": ("edged.worker.llama",),
    "numpy": ("edged.worker",),
    "zmq": (
        "edged.wire.sockets",
        "edged.wire.endpoints",
        "edged.wire.incoming",
        "edged.daemon",
        "edged.waiting",
        "edged.keypair",
        *CLIENT_SOCKETS,
    ),
    "systemd": ("edged.system.notify",),
    "jinja2": ("edged.worker.chat",),
    "sqlite3": ("edged.transcripts",),
    "click": ("edged.cli",),
    "readline": ("edged.cli.lineedit",),
    "rich": ("edged.cli.top",),
    "edged.cli": ("edged.cli",),
    "edged.doctor": ("edged.doctor", "edged.cli"),
    "prometheus_client": ("edged.observe.exposition",),
}
"""Imported name → the only modules (or packages, with what lies below) that may."""

NEVER = {
    "edged.cli": ("edged.broker", "edged.daemon", "edged.wire", "edged.worker"),
    "edged.doctor": ("edged.broker", "edged.daemon", "edged.wire", "edged.worker"),
    "edged.daemon": ("edged.worker",),
    "edged.broker": ("edged.worker",),
    "edged.wire": ("edged.worker",),
    "edged.worker": ("edged.broker", "edged.wire", "edged.daemon"),
}


def below(name: str, *tops: str) -> bool:
    """`name` is one of `tops` or lies below it."""
    return any(name == top or name.startswith(top + ".") for top in tops)


def imports(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Every dotted name that the source imports, wherever in it; relative ones resolved."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")
            base = base[: len(base) - node.level + is_package] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from edged import worker` imports edged.worker; of other origins the rest is an attribute
            inner = [f"{origin}.{alias.name}" for alias in node.names] if below(origin, "edged") else []
            yield from inner if origin == "edged" else [origin, *inner]


def broken(module: str, imported: Iterator[str]) -> list[str]:
    """The rules that a module breaks, in words."""
    out = []
    for name in imported:
        for target, homes in ONLY_IN.items():
            if below(name, target) and not below(module, *homes):
                out.append(f"{module} imports {name}: only {', '.join(homes)} may")
        for owner, targets in NEVER.items():
            if below(module, owner) and below(name, *targets):
                out.append(f"{module} imports {name}: {owner} never does")
        if below(module, "edged.broker") and not broker_may(name):
            out.append(f"{module} imports {name}: the broker is pure")
        if below(module, "edged.client") and not client_may(module, name):
            out.append(f"{module} imports {name}: a client has no more than {', '.join(CLIENT_MAY)}, and pure rules")
        if module in PURE_WATCHDOG and below(name, *IMPURE, "zmq"):
            out.append(f"{module} imports {name}: it is pure")
        if module in PURE_WORKER and below(name, *PURE_WORKER_NOT):
            out.append(f"{module} imports {name}: it is pure")
        if module in PURE_FORMATS and name.partition(".")[0] in IMPURE:
            out.append(f"{module} imports {name}: it is pure")
    return out


def broker_may(name: str) -> bool:
    top = name.partition(".")[0]
    return below(name, *BROKER_MAY) or (top in sys.stdlib_module_names and top not in IMPURE)


def client_may(module: str, name: str) -> bool:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return module not in PURE_CLIENT or top not in IMPURE
    return below(name, *CLIENT_MAY)


def every_module() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_the_rules_hold():
    found = []
    for module, path in every_module():
        imported = imports(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py")
        found += broken(module, imported)
    assert found == []


def check(module: str, source: str) -> list[str]:
    return broken(module, imports(source, module, is_package=False))


def test_the_checker_sees_each_rule_broken():
    samples: list[tuple[str, str]] = [
        ("edged.worker.engine", "import llama_cpp"),
        ("edged.worker.engine", "from llama_cpp.llama import Llama"),
        ("edged.observe.metrics", "import numpy as np"),
        ("edged.wire.codec", "import zmq"),
        ("edged.wire.codec", "def late():\n    from zmq.utils import z85"),
        ("edged.worker.sampler", "import jinja2.sandbox"),
        ("edged.serviceside", "from systemd import daemon"),
        ("edged.config", "import click"),
        ("edged.broker.sessions", "import sqlite3"),
        ("edged.daemon", "import sqlite3"),
        ("edged.daemon", "from edged.cli import output"),
        ("edged.cli.chat", "import readline"),
        ("edged.daemon", "from edged import doctor"),
        ("edged.doctor.service", "from edged.wire import codec"),
        ("edged.observe.metrics", "import prometheus_client"),
        ("edged.cli.status", "from rich.table import Table"),
        ("edged.cli.requests", "from edged.broker.table import Table"),
        ("edged.cli.status", "from edged.wire import codec"),
        ("edged.daemon", "from edged import worker"),
        ("edged.daemon", "from .worker import scheduler"),
        ("edged.wire.sockets", "from edged.worker.detok import x"),
        ("edged.worker.engine", "import edged.wire.codec"),
        ("edged.worker.engine", "from .. import daemon"),
        ("edged.worker.engine", "from edged.broker.table import Table"),
        ("edged.broker.table", "import os.path"),
        ("edged.broker.table", "from time import monotonic"),
        ("edged.broker.table", "import yaml"),
        ("edged.broker.table", "from edged import places"),
        ("edged.broker.table", "if TYPE_CHECKING:\n    import socket"),
        ("edged.worker.scheduler", "import threading"),
        ("edged.worker.chat", "import os"),
        ("edged.watchdog.policy", "import time"),
        ("edged.watchdog.ladder", "from os import path"),
        ("edged.journal.format", "import os"),
        ("edged.keyfile", "import os"),
        ("edged.broker.ledger", "from edged.journal import format"),
        ("edged.client.sync", "from edged import config"),
        ("edged.client.base", "import zmq"),
        ("edged.client.exchange", "import time"),
        ("edged.client.reading", "import zmq"),
        ("edged.client.lines", "import yaml"),
    ]
    missed = [sample for sample in samples if not check(*sample)]
    assert missed == []


def test_the_checker_lets_pass_what_is_right():
    assert check("edged.worker.llama", "import llama_cpp, os, numpy") == []
    assert check("edged.worker.chat", "import jinja2.sandbox\nimport re") == []
    assert check("edged.daemon", "import zmq, os, time\nfrom edged import config\nfrom .broker import table") == []
    broker = "from collections import deque\nimport msgspec\nfrom edged.messages import Start\nfrom . import streams"
    assert check("edged.broker.table", broker) == []
    assert check("edged.cli.ask", "import click\nfrom edged.cli.output import Session\nfrom edged import client") == []
    assert check("edged.client.lines", "import os\nimport zmq\nfrom edged.client.steps import Ask") == []
    assert check("edged.client.exchange", "import json\nfrom edged.client.choice import Choice") == []
    assert check("edged.worker_lookalike", "import edged.wire.codec") == []


def test_the_walk_finds_the_package():
    names = {module for module, _ in every_module()}
    assert {"edged", "edged.config", "edged.cli.main", "edged.broker"} <= names
