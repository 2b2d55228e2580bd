"""docs/edgectl.md says what the program says."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/edgectl_help.py"
HELP = runpy.run_path(str(SCRIPT))
COMMANDS = [path for path in HELP["commands"]() if path]
GROUPS = {path[:-1] for path in COMMANDS if len(path) > 1}
MAN = runpy.run_path(str(SCRIPT.with_name("manpages.py")))
PRINTED = {
    "edged.8": ["--config FILE", "78 the configuration is wrong", "SIGHUP reads"],
    "edgectl.1": ["edgectl doctor", "--check NAME", "20 there are errors"],
    "edged.yaml.5": ["limits.queue", "Default: 128.", "metrics.textfile", "THE MODEL"],
}
VERBS = SCRIPT.parents[1] / "edged/cli"


def test_the_page_is_up_to_date():
    page = HELP["PAGE"].read_text(encoding="utf-8")
    assert HELP["renewed"](page) == page, "run scripts/edgectl_help.py"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_has_an_example_json_and_exit_statuses(path):
    block = HELP["block"](path)
    assert "Example" in block or path[0] == "completion" or path in GROUPS
    assert "--json" in block or path[0] in ("completion", "config") or path in GROUPS
    assert "Exit status:" in block or path in GROUPS


def test_every_module_with_a_command_is_a_verb():
    """A verb that was written and not listed would be in no page either."""
    modules = [*VERBS.glob("*.py"), *VERBS.glob("*/verb.py")]
    commands = [path for path in modules if re.search(r"^def command\(", path.read_text(), re.MULTILINE)]
    written = {path.parent.name if path.stem == "verb" else path.stem for path in commands}
    assert written == {path[0] for path in COMMANDS}


def test_every_verb_has_a_section_of_its_own():
    """In the order of the page, with what is said of it elsewhere on the page: its options are in its --help."""
    page = HELP["PAGE"].read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    assert sorted(section.split()[0] for section in sections) == sorted({path[0] for path in COMMANDS})
    for section in sections:
        prose, verb = re.sub(r"```.*?```", "", section, flags=re.DOTALL), section.split()[0]
        known = "".join(HELP["block"](path) for path in COMMANDS if path[0] == verb) + HELP["block"](())
        for option in re.findall(r"--[a-z][a-z-]+", prose):
            assert option in known, f"{verb}: {option}"


@pytest.mark.parametrize("name", MAN["PAGES"])
def test_a_manual_page_is_up_to_date(name):
    file = MAN["DIRECTORY"] / name
    assert file.read_text(encoding="utf-8") == MAN["PAGES"][name](), "run scripts/manpages.py (make docs)"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
@pytest.mark.parametrize("name", MAN["PAGES"])
def test_a_manual_page_is_whole(name):
    """groff has nothing to warn of, and what it prints is what was meant."""
    file = str(MAN["DIRECTORY"] / name)
    command = ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-rLL=100n", file]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    plain = " ".join(re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout).split())
    for word in PRINTED[name]:
        assert word in plain


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
