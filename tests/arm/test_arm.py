"""One wheelhouse on boards that this machine is not: emulated by qemu-user. Figures are of the emulation.

`make arm-test` makes the wheelhouse first. The same wheel answers on a Pi 4's processor and on a Pi 5's, and says the
same as on x86-64.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arm64 import REPOSITORY, Arm, arm

from edged import __version__
from edged.places import EMBEDDED_MODEL, models_dir

HOUSE = REPOSITORY / f"dist/edged-{__version__}-aarch64"
MODEL = models_dir() / EMBEDDED_MODEL
BIN = "/opt/venv/bin"
ONCE = Path(__file__).with_name("once.sh")
PROMPT = "Name the three primary colors."
TOKENS = "16"
TOOLS = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "py.py", "gguf", "tqdm")
"""Python packages of this environment, all without compiled parts, that the engine's tests need in the box."""
TESTS = (
    "ready_tells_what_was_loaded threads_are_pinned one_prompt_answers four_sequences greedy_is_the_same "
    "a_stop_string_ends whole_context_overflows abort_while_decoding quit_leaves truncated_model garbage_and_absence "
    "header_that_llama_cpp_refuses dies_with_its_parent"
)
"""Of tests/engine, by parts of their names: load, refuse, pin, decode alone and in a batch, end. All take an hour."""
VARIANT = {"cortex-a72": "armv8.0_1", "cortex-a76": "armv8.2_2"}
"""Processor (Pi 4, Pi 5) → the engine's CPU code for it."""


def tell(figure: str) -> None:
    sys.stdout.write(f"\n  emulated: {figure}")


@pytest.fixture(scope="module")
def box() -> Iterator[Arm]:
    """With edged installed from the wheelhouse; how long that took, and what it needs, is printed."""
    for needed, make in ((HOUSE, "make wheelhouse ARCH=aarch64"), (MODEL, "make model")):
        if not needed.exists():
            pytest.skip(f"{needed} is not here: {make}")
    with arm() as made:
        shutil.copytree(HOUSE, made.root / "root/house")
        shutil.copy2(MODEL, made.root / "root")
        shutil.copy2(ONCE, made.root / "root")
        before, begun = made.used(), time.monotonic()
        made.run("python3", "-m", "venv", "/opt/venv")
        seconds, size = time.monotonic() - begun, made.used() - before
        tell(f"a venv: {seconds:.0f} s, {size / 1e6:.0f} MB")
        begun = time.monotonic()
        pip = [f"{BIN}/python", "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
        options = "--find-links wheels --require-hashes -r requirements.txt"
        made.run("sh", "-c", f"cd /root/house && {' '.join(pip)} {options}")
        seconds, size = time.monotonic() - begun, made.used() - before - size
        tell(f"edged and the engine from the wheelhouse: {seconds:.0f} s, {size / 1e6:.0f} MB")
        yield made


def once(box: Arm, cpu: str, **env: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Answer and status of a daemon on that processor."""
    begun = time.monotonic()
    command = ["sh", "/root/once.sh", BIN, f"/root/{EMBEDDED_MODEL}", PROMPT, TOKENS]
    answer, status = box.run(*command, cpu=cpu, seconds=900, **env).stdout.splitlines()
    told = json.loads(status)
    seconds = time.monotonic() - begun
    tell(f"{cpu} {env or ''}: {told['model']['variant']}, start, answer and stop {seconds:.0f} s")
    return json.loads(answer), told


@pytest.fixture(scope="module")
def here() -> str:
    """What this machine says."""
    directory = Path(sys.executable).parent
    if not (directory / "edgectl").exists():
        pytest.skip(f"no edgectl beside {sys.executable}: make setup")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = ["sh", ONCE, directory, MODEL, PROMPT, TOKENS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment)
    text: str = json.loads(done.stdout.splitlines()[0])["text"]
    return text


def test_no_compiler_was_there(box: Arm) -> None:
    assert box.run("sh", "-c", "command -v cc gcc c++ clang make", check=False).stdout == ""
    assert box.run("uname", "-m").stdout.strip() == "aarch64"


def test_every_module_imports(box: Arm) -> None:
    """Of both processes: msgspec, zmq with CURVE, systemd, yaml, prometheus_client; numpy and the engine."""
    code = (
        "import zmq, msgspec, yaml, systemd.daemon, systemd.journal, prometheus_client, rich; "
        "import numpy, jinja2, llama_cpp; "
        "import edged.daemon, edged.cli.main, edged.worker.loop; assert zmq.has('curve')"
    )
    box.run(f"{BIN}/python", "-c", code)


@pytest.mark.parametrize("cpu", VARIANT)
def test_the_selftest_computes(box: Arm, cpu: str) -> None:
    said = box.run(f"{BIN}/python", "-m", "edged.doctor.selftest", cpu=cpu).stdout
    assert f"suits the processor ({VARIANT[cpu]})" in said


def test_a_build_that_does_not_fit_is_told(box: Arm) -> None:
    """As if it had been made for newer boards only; the same files suit a Pi 5."""
    (library,) = box.root.glob("opt/venv/lib/python3*/site-packages/llama_cpp/lib")
    aside = library.parent / "aside"
    aside.mkdir()
    for name in ("armv8.0_1", "armv8.2_1"):
        shutil.move(library / f"libggml-cpu-{name}.so", aside)
    try:
        command = (f"{BIN}/python", "-m", "edged.doctor.selftest")
        old, new = (box.run(*command, cpu=cpu, check=False) for cpu in VARIANT)
    finally:
        for path in aside.iterdir():
            shutil.move(path, library)
    assert (old.returncode, new.returncode) == (1, 0)
    assert old.stderr.startswith("selftest: the engine is a wrong build for this processor")


@pytest.mark.parametrize("cpu", VARIANT)
def test_a_real_answer_equal_to_x86(box: Arm, here: str, cpu: str) -> None:
    answer, status = once(box, cpu)
    assert status["model"]["variant"] == VARIANT[cpu]
    assert answer["text"] == here


def test_the_engines_own_tests(box: Arm) -> None:
    """A choice of them (TESTS), unchanged, on a Pi 5's processor."""
    tools, tests = box.root / "root/tools", box.root / "root/tests"
    tools.mkdir()
    for name in TOOLS:
        found = importlib.util.find_spec(name.removesuffix(".py"))
        assert found is not None, name
        assert found.origin is not None, name
        origin = Path(found.origin)
        if name.endswith(".py"):
            shutil.copy2(origin, tools)
        else:
            shutil.copytree(origin.parent, tools / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "tests/engine", tests / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("worker_rig.py", "tiny_models.py"):
        shutil.copy2(REPOSITORY / "tests" / name, tests)
    command = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir=/root/tests",
        "-k",
        " or ".join(TESTS.split()),
    ]
    files = [f"/root/tests/engine/test_worker_{name}.py" for name in ("requests", "process")]
    env = {
        "PYTHONPATH": "/root/tools:/root/tests",
        "EDGED_TEST_MODEL": f"/root/{EMBEDDED_MODEL}",
        "EDGED_TEST_PATIENCE_S": "600",
    }
    done = box.run(f"{BIN}/python", *command, *files, cpu="cortex-a76", seconds=2400, **env)
    tell(done.stdout.splitlines()[-1])
    assert f"{len(TESTS.split())} passed" in done.stdout


def test_pages_of_16_kib(box: Arm, here: str) -> None:
    """As a Pi 5's own kernel has them."""
    size = box.run("python3", "-c", "import os; print(os.sysconf('SC_PAGESIZE'))", QEMU_PAGESIZE="16384").stdout
    assert size.strip() == "16384"
    answer, _ = once(box, "cortex-a76", QEMU_PAGESIZE="16384")
    assert answer["text"] == here
