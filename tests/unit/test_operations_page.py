"""docs/operations.md tells every event of the log, every refusal, every check of `edgectl doctor`, and no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import edged
from edged import doctor
from edged.errors import Code
from edged.observe.log import LEVELS

PACKAGE = Path(edged.__file__).parent
PAGE = (PACKAGE.parent / "docs/operations.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]


def first_column(text: str) -> set[str]:
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def events(source: str) -> set[str]:
    """Names of events: first arguments of a log's methods, of `tell` where it is one of them, and of Note."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
            continue
        called = node.func
        logs = isinstance(called, ast.Attribute) and called.attr in LEVELS and ast.unparse(called.value).endswith("log")
        tells = ast.unparse(called) in ("Note", "tell", "self._tell")
        if logs or (tells and isinstance(node.args[0].value, str)):
            found.add(node.args[0].value)
    return found


def test_every_event_of_the_log():
    told = set().union(*(events(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")))
    assert {"started", "level", "request_end", "bug"} <= told  # the reader sees each kind of call
    assert first_column(section("The log")) == told | {"log_dropped"}


def test_every_refusal():
    assert first_column(section("Refusals")) == {code.value for code in Code}


def test_every_check_of_the_doctor():
    assert first_column(section("Doctor")) == set(doctor.CHECKS)
