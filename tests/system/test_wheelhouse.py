"""`make install WHEELS=` from a real wheelhouse, on Debian 12 and 13. `make wheelhouse` comes first."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from box import EDGED, REPOSITORY, Box, box
from wheels import install

from edged import __version__
from edged.places import EMBEDDED_MODEL, models_dir

HOUSE = REPOSITORY / f"dist/edged-{__version__}-{os.uname().machine}"
pytestmark = [
    pytest.mark.skipif(not HOUSE.exists(), reason=f"no {HOUSE.name}: make wheelhouse ARCH={os.uname().machine}"),
    pytest.mark.skipif(
        not (models_dir() / EMBEDDED_MODEL).exists(), reason="the embedded default is not here: make model"
    ),
]


def furnish(made: Box) -> None:
    shutil.copytree(HOUSE, made.root / "root/wheels")
    made.boot()


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_a_box_without_compiler_and_network(suite: str) -> None:
    with box(suite) as made:
        furnish(made)
        install(made)
        status = made.ready()
        assert status["model"]["variant"]
        assert made.run(f"{EDGED}/python", "-m", "edged.doctor.selftest").stdout.startswith("selftest: the engine ")
        manifest = json.loads(made.run("cat", "/opt/edged/current/manifest.json").stdout)
        assert (manifest["version"], manifest["arch"]) == (__version__, os.uname().machine)


def test_a_damaged_or_foreign_one_is_refused() -> None:
    with box("bookworm") as made:
        furnish(made)
        command = ("sh", "-c", "cd /root/edged && WHEELS=/root/wheels MODEL=/dev/null bash scripts/install.sh")
        made.run("sh", "-c", "echo >>/root/wheels/requirements.txt")
        done = made.run(*command, check=False)
        assert done.returncode == 1
        assert "is damaged or was changed: copy it anew" in done.stderr
        made.run("sed", "-i", f's/"{os.uname().machine}"/"riscv64"/', "/root/wheels/manifest.json")
        assert "is for riscv64, this box is" in made.run(*command, check=False).stderr
        assert made.run("ls", "/opt", check=False).stdout == ""
