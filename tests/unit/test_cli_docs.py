"""docs/edgectl.md says what the program says."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/edgectl_help.py"
HELP = runpy.run_path(str(SCRIPT))
COMMANDS = [path for path in HELP["commands"]() if path]
GROUPS = [("config",), ("keys",), ("model",), ("session",)]


def test_the_page_is_up_to_date():
    page = HELP["PAGE"].read_text(encoding="utf-8")
    assert HELP["renewed"](page) == page, "run scripts/edgectl_help.py"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_has_an_example_json_and_exit_statuses(path):
    block = HELP["block"](path)
    assert "Example" in block or path[0] == "completion" or path in GROUPS
    assert "--json" in block or path[0] in ("completion", "config") or path in GROUPS
    assert "Exit status:" in block or path in GROUPS


def test_a_verb_without_a_mark_is_told():
    page = HELP["PAGE"].read_text(encoding="utf-8")
    with pytest.raises(KeyError, match="edgectl drain"):
        HELP["renewed"](page.replace("<!-- edgectl drain -->", ""))


@pytest.mark.parametrize("word", ["--help", "ask"])
def test_a_short_reader_of_the_help(word):
    command = f"{sys.executable} -m edged.cli.main {word} --help | head -1"
    done = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Usage: ")
    assert done.stderr == ""
