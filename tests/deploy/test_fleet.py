"""A fleet from nothing through upgrades and all that may go wrong: real systemd, real SSH, real weights, real Ansible.

One story in the order of the file: what a test leaves is what the next one finds. At the end of each everything serves.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import STREAMING
from fleet import ANSIBLE, Fleet, Pi, Run, fleet, kill
from release import NOT_STARTING, release

from edged.places import EMBEDDED_MODEL, models_dir

SUITES = ("bookworm", "bookworm", "bookworm")
SOAK_S = 4
PROMPT = "Write a long story about a lighthouse and the storm."
MODEL = models_dir() / EMBEDDED_MODEL

Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    made: dict[str, Path] = {}
    directory = tmp_path_factory.mktemp("releases")

    def one(version: str, *changes: tuple[str, str, str]) -> Path:
        if version not in made:
            made[version] = release(directory, version, set(SUITES), *changes)
        return made[version]

    return one


@pytest.fixture(scope="module")
def pis(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet"), *SUITES) as made:
        made.write(
            edged_release=str(build("0.1.0")),
            edged_model_file=str(MODEL),
            edged_model_sha256=hashlib.sha256(MODEL.read_bytes()).hexdigest(),
            edged_soak_s=SOAK_S,
            edged_drain_s=5,
            edged_ready_s=60,
            edged_config={"limits": {"queue": 77}},
        )
        yield made


@pytest.fixture
def variables(pis: Fleet) -> Iterator[dict[str, Any]]:
    """Of the inventory: as they were when the test is over."""
    before = dict(pis.variables)
    yield before
    pis.variables = before


def releases(pis: Fleet) -> list[str]:
    return [one.release() for one in pis.boxes]


def all_well(pis: Fleet, version: str) -> None:
    assert releases(pis) == [version] * len(pis.boxes)
    for one in pis.boxes:
        status = one.ready()
        assert (status["version"], status["state"], status["limits"]["queue"]) == (version, "ready", 77)
        assert one.good() == version
        assert one.restarts() == 0


def stopped_at_the_canary(pis: Fleet, done: Run, version: str, others: list[tuple[Any, ...]], why: str) -> None:
    """The canary is back and healthy, nobody touched the others."""
    canary, *rest = pis.boxes
    assert done.status == 2, done.said[-3000:]
    assert done.failed() == [canary.name]
    assert re.search(why, done.said), done.said[-3000:]
    assert f"Back on {version}, which answers" in " ".join(done.said.split())
    assert [one.untouched() for one in rest] == others
    all_well(pis, version)


# ---- install -------------------------------------------------------------------------------------------------


def test_check_mode_on_fresh_boxes(pis: Fleet) -> None:
    done = pis.run("site.yml", "--check", "--diff")
    assert done.failed() == []
    for one in pis.boxes:
        assert one.run("ls", "/opt/edged", check=False).returncode != 0
        assert one.run("getent", "passwd", "edged", check=False).returncode != 0


def test_first_install(pis: Fleet) -> None:
    pis.run("site.yml")
    all_well(pis, "0.1.0")
    for one in pis.boxes:
        assert one.run("edgectl", "ask", "--max-tokens", "8", "Say hello.").stdout.strip()
        assert one.run("ls", "/opt/edged/incoming", check=False).returncode != 0
        assert one.run("systemd-analyze", "verify", "/etc/systemd/system/edged.service").stderr == ""


def test_the_second_run_changes_nothing(pis: Fleet) -> None:
    before = [one.untouched() for one in pis.boxes]
    done = pis.run("site.yml")
    assert set(done.changed().values()) == {0}, done.said
    there = pis.run("site.yml", "--check", "--diff", at=ANSIBLE)  # through its ansible.cfg
    assert set(there.changed().values()) == {0}, there.said
    assert [one.untouched() for one in pis.boxes] == before


def test_the_sum_of_the_answer(pis: Fleet) -> None:
    """As an operator does it: taken from one box, expected of all."""
    found = json.loads(pis.boxes[0].run("edgectl", "verify", "--json").stdout)
    assert found["ok"], found
    pis.write(edged_probe_sha256=found["tokens_sha256"], edged_max_temperature=0)
    done = pis.run("rollout.yml")
    assert set(done.changed().values()) == {0}, done.said


# ---- upgrade -------------------------------------------------------------------------------------------------


def undisturbed(one: Pi) -> str:
    ask = ("edgectl", "ask", "--json", "--max-tokens", "60", "--temperature", "0", PROMPT)
    return json.loads(one.run(*ask).stdout)["text"]


def test_an_upgrade_while_a_client_streams_against_each_box(pis: Fleet, build: Build) -> None:
    wanted = [undisturbed(one) for one in pis.boxes]
    busy = [one.python(STREAMING, PROMPT, want) for one, want in zip(pis.boxes, wanted, strict=True)]
    pis.write(edged_release=str(build("0.1.1")))
    pis.run("rollout.yml")
    for one in pis.boxes:
        one.run("touch", "/tmp/stop")
    for one, process in zip(pis.boxes, busy, strict=True):
        out, err = process.communicate(timeout=120)
        served, lost, *which = out.split("\n")
        assert (process.returncode, lost) == (0, "0"), (which, err[-2000:])
        assert int(served) > 5
        one.run("rm", "/tmp/stop")
    all_well(pis, "0.1.1")
    for one in pis.boxes:
        assert one.run("ls", "/opt/edged/releases").stdout.split() == ["0.1.0", "0.1.1"]


def test_killed_half_way_and_run_again(pis: Fleet, build: Build) -> None:
    """While the release is built; after the canary's switch; then to its end."""
    pis.write(edged_release=str(build("0.1.2")))
    venv = "/opt/edged/releases/0.1.2/venv/lib"
    process = pis.begin("rollout.yml")
    canary = pis.boxes[0]
    pis.until(process, lambda: canary.run("ls", venv, check=False).returncode == 0, "a half release")
    kill(process)
    canary.run("rm", "-rf", f"{venv}/python3*/site-packages/pip")  # half of it, whatever it was
    assert releases(pis) == ["0.1.1"] * 3

    process = pis.begin("rollout.yml")
    pis.until(process, lambda: canary.release() == "0.1.2", "the canary's switch")
    kill(process)
    assert releases(pis)[1:] == ["0.1.1"] * 2

    done = pis.run("rollout.yml")
    assert done.failed() == []
    all_well(pis, "0.1.2")


# ---- what goes wrong -----------------------------------------------------------------------------------------


def test_a_release_that_does_not_start(pis: Fleet, build: Build, variables: dict[str, Any]) -> None:
    others = [one.untouched() for one in pis.boxes[1:]]
    pis.write(edged_release=str(build("0.1.3", NOT_STARTING)))
    done = pis.run("rollout.yml", status=None)
    stopped_at_the_canary(pis, done, "0.1.2", others, "release 0.1.3 does not start")


def test_a_model_that_is_not_the_expected_one(pis: Fleet, variables: dict[str, Any]) -> None:
    before = [one.untouched() for one in pis.boxes]
    pis.write(edged_model_sha256="0" * 64)
    done = pis.run("rollout.yml", status=2)
    assert "has sha256" in done.said
    assert [one.untouched() for one in pis.boxes] == before

    pis.variables = variables | {"edged_config": {"limits": {"queue": 77}, "model": {"sha256": "0" * 64}}}
    pis.write(edged_ready_s=10)
    done = pis.run("rollout.yml", status=None)
    stopped_at_the_canary(pis, done, "0.1.2", before[1:], "not ready: unavailable")


def test_a_model_that_is_too_large(pis: Fleet, variables: dict[str, Any], tmp_path: Path) -> None:
    before = [one.untouched() for one in pis.boxes]
    large = tmp_path / "large.gguf"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    pis.write(edged_model_file=str(large))
    done = pis.run("rollout.yml", status=2)
    assert "are wanted beside it" in done.said
    assert [one.untouched() for one in pis.boxes] == before

    pis.variables = dict(variables)
    for one in pis.boxes:
        one.write("/srv/small/proc/meminfo", "MemTotal: 200000 kB\nMemAvailable: 150000 kB\n")
    small = {"limits": {"queue": 77}, "watchdog": {"root": "/srv/small"}}  # as the daemon sees it: a smaller board
    pis.write(edged_config=small, edged_ready_s=10)
    done = pis.run("rollout.yml", status=None)
    stopped_at_the_canary(pis, done, "0.1.2", before[1:], "not ready: unavailable")


def test_tokens_that_are_not_the_expected_ones(pis: Fleet, variables: dict[str, Any]) -> None:
    """The same release, verified again and not passed over."""
    others = [one.untouched() for one in pis.boxes[1:]]
    pis.write(edged_probe_sha256="0" * 64)
    done = pis.run("rollout.yml", status=None)
    stopped_at_the_canary(pis, done, "0.1.2", others, "the tokens' sha256 is")


def test_a_box_that_is_away_from_the_start(pis: Fleet, build: Build) -> None:
    """Nothing is switched anywhere."""
    before = [one.untouched() for one in pis.boxes]
    pis.boxes[1].plug(there=False)
    pis.write(edged_release=str(build("0.1.4")))
    done = pis.run("rollout.yml", status=None)
    pis.boxes[1].plug(there=True)
    assert done.status != 0
    assert done.unreachable() == [pis.boxes[1].name]
    assert [one.untouched() for one in pis.boxes] == before


def test_a_box_that_goes_away_in_mid_wave(pis: Fleet) -> None:
    first, second, third = pis.boxes
    untouched = third.untouched()
    process = pis.begin("rollout.yml", "-e", json.dumps({"edged_waves": [2, 1]}))
    pis.until(process, lambda: second.release() == "0.1.4" and second.status().get("ready"), "the switch")
    second.plug(there=False)
    done = pis.end(process)
    assert done.status == 4, done.said[-3000:]
    assert done.unreachable() == [second.name]
    assert done.failed() == []
    assert (first.release(), first.good()) == ("0.1.4", "0.1.4")
    assert third.untouched() == untouched
    assert second.good() == "0.1.2"
    second.plug(there=True)
    pis.run("rollout.yml")
    all_well(pis, "0.1.4")


# ---- the other playbooks -------------------------------------------------------------------------------------


def test_rollback(pis: Fleet) -> None:
    pis.run("rollback.yml")
    all_well(pis, "0.1.2")
    again = pis.run("rollback.yml")
    assert set(again.changed().values()) == {0}, again.said
    all_well(pis, "0.1.2")


def test_another_model(pis: Fleet, tmp_path: Path, variables: dict[str, Any]) -> None:
    version = pis.boxes[0].release()
    other = tmp_path / "other.gguf"
    shutil.copy2(MODEL, other)
    pis.write(edged_model_file=str(other))
    pis.run("model.yml")
    all_well(pis, version)
    assert {one.status()["model"]["file"] for one in pis.boxes} == {"other.gguf"}
    pis.run("rollback.yml")
    assert {one.status()["model"]["file"] for one in pis.boxes} == {EMBEDDED_MODEL}


def test_keys(pis: Fleet, build: Build, tmp_path: Path, variables: dict[str, Any]) -> None:
    version = pis.boxes[0].release()
    public = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    pis.write(edged_release=str(build(version)), edged_server_key=True)
    pis.write(edged_keys_dir=str(tmp_path), edged_clients={"kitchen": public})
    pis.write(edged_clients={"kitchen": "mistyped"})
    assert "a public key in edged_clients" in " ".join(pis.run("keys.yml", status=2).said.split())
    pis.write(edged_clients={"kitchen": public})
    pis.run("keys.yml")
    keys = {(tmp_path / f"{one.name}.key").read_text() for one in pis.boxes}
    assert len(keys) == 3
    assert not any("secret" in key for key in keys)
    for one in pis.boxes:
        assert "kitchen" in one.run("edgectl", "keys", "list").stdout
        modes = one.run("stat", "-c", "%a", "/etc/edged/keys/server.key_secret").stdout
        assert modes.strip() == "600"
    done = pis.run("keys.yml")
    assert set(done.changed().values()) == {0}, done.said
    pis.run("rollout.yml")  # the key is in force from the restart
    all_well(pis, version)
    pis.write(edged_clients={})
    pis.run("keys.yml", "-e", json.dumps({"edged_revoke": ["kitchen"]}))
    assert "kitchen" not in pis.boxes[0].run("edgectl", "keys", "list").stdout


def test_kernel_switches(pis: Fleet, build: Build, variables: dict[str, Any]) -> None:
    version = pis.boxes[0].release()
    pis.write(edged_release=str(build(version)), edged_kernel_switches=["cgroup_enable=memory", "psi=1"])
    refused = pis.run("site.yml", status=2)
    assert "no cmdline.txt" in refused.said
    for one in pis.boxes:
        one.write("/boot/firmware/cmdline.txt", "console=tty1 psi=1 rootwait\n")
    pis.run("site.yml")
    for one in pis.boxes:
        assert (
            one.run("cat", "/boot/firmware/cmdline.txt").stdout == "console=tty1 psi=1 rootwait cgroup_enable=memory\n"
        )
        assert len(one.run("ls", "/boot/firmware").stdout.split()) == 2
    assert set(pis.run("site.yml").changed().values()) == {0}


def test_doctor(pis: Fleet, tmp_path: Path) -> None:
    pis.boxes[2].plug(there=False)
    done = pis.run("doctor.yml", "-e", f"edged_report={tmp_path}/report.html")
    pis.boxes[2].plug(there=True)
    page = (tmp_path / "report.html").read_text()
    for one in pis.boxes:
        assert f'<h2 id="{one.name}">' in page
    assert "no answer" in page
    assert "smollm2-135m-instruct" in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "pi3: no answer over SSH" in done.said
    assert pis.run("doctor.yml", "-e", f"edged_report={tmp_path}/report.html").failed() == []


def test_uninstall(pis: Fleet) -> None:
    refused = pis.run("uninstall.yml", status=2)
    assert "edged_confirm=true" in refused.said
    assert all(one.status().get("ready") for one in pis.boxes)
    pis.run("uninstall.yml", "-e", "edged_confirm=true", "--limit", "pi1")
    pis.run("uninstall.yml", "-e", "edged_confirm=true", "-e", "edged_purge=true", "--limit", "pi2")
    one, two, three = pis.boxes
    assert one.run("ls", "/etc/edged/config.yaml", "/var/lib/edged/models").returncode == 0
    assert two.run("ls", "/etc/edged", check=False).returncode != 0
    assert two.run("getent", "group", "edged-admin", check=False).returncode != 0
    for gone in (one, two):
        assert gone.run("ls", "/opt/edged", check=False).returncode != 0
        assert gone.show("LoadState") == {"LoadState": "not-found"}
    assert three.status().get("ready")
