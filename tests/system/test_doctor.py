"""`edgectl doctor` on a real box: it starts nothing, and what it says to do mends what it found. Each test leaves the
box serving.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from box import Box, box
from wheels import install, wheelhouse

Found = dict[str, list[dict[str, str]]]
STOPPED = "stopped: systemd listens, and whoever asks first starts it"


@pytest.fixture(scope="module")
def pi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with box("bookworm") as made:
        wheelhouse(made)
        made.boot()
        install(made)
        for user, group in (("dev", "edged"), ("stranger", "")):
            made.run("useradd", "--groups", group, user)
        made.ready()
        yield made


def doctor(pi: Box, *options: str, user: str | None = None) -> Found:
    told = json.loads(pi.run("edgectl", "doctor", "--json", *options, user=user, check=False).stdout)
    found: Found = {}
    for one in told["findings"]:
        found.setdefault(one["check"], []).append(one)
    return found


def worst(found: Found, check: str) -> dict[str, str]:
    return max(found[check], key=lambda one: ["ok", "info", "unknown", "warning", "error"].index(one["severity"]))


def do(pi: Box, steps: str) -> None:
    """As it stands there; the box has no sudo."""
    pi.run("sh", "-ec", steps.replace("sudo ", ""))


def state(pi: Box) -> str:
    return pi.show("ActiveState")["ActiveState"]


def test_a_box_as_it_was_installed(pi: Box) -> None:
    """Nothing that edged brings along is wrong."""
    found = doctor(pi)
    ours = ("service", "unit", "unit-settings", "permissions", "keys", "ports", "groups", "model", "versions")
    assert {check: worst(found, check)["severity"] for check in ours} == dict.fromkeys(ours, "ok")


@pytest.mark.parametrize("user", [None, "dev", "stranger"])
def test_what_is_stopped_stays_stopped(pi: Box, user: str | None) -> None:
    pi.run("systemctl", "stop", "edged")
    found = doctor(pi, user=user)
    assert state(pi) == "inactive"
    if user != "stranger":
        assert worst(found, "service")["what"] == STOPPED
        assert worst(found, "ports")["severity"] == "ok"
    assert worst(found, "unit")["what"] == "the service is inactive"
    do(pi, worst(found, "unit")["do"])
    pi.ready()


def test_sockets_that_were_stopped(pi: Box) -> None:
    pi.run("systemctl", "stop", "edged.socket", "edged-control.socket", "edged")
    found = doctor(pi)
    assert worst(found, "ports")["why"] == "stopped: edged.socket and edged-control.socket"
    do(pi, worst(found, "ports")["do"])
    pi.ready()


def test_a_socket_file_that_was_removed(pi: Box) -> None:
    pi.run("rm", "/run/edged/request.sock")
    found = doctor(pi)
    assert worst(found, "ports")["severity"] == worst(found, "service")["severity"] == "error"
    assert worst(found, "ports")["do"] == worst(found, "service")["do"]
    do(pi, worst(found, "service")["do"])
    pi.ready()


def test_without_the_directory_of_keys(pi: Box) -> None:
    pi.run("rm", "-rf", "/etc/edged/keys")
    assert pi.run("systemctl", "restart", "edged", check=False).returncode != 0
    found = doctor(pi)
    missing = worst(found, "unit-settings")
    assert (missing["severity"], missing["what"]) == ("error", "there is no /etc/edged/keys (LoadCredential=)")
    assert "243/CREDENTIALS" in worst(found, "unit")["what"]
    do(pi, missing["do"])
    pi.ready()


def test_a_directory_of_keys_that_is_open(pi: Box) -> None:
    pi.run("chmod", "0777", "/etc/edged/keys", "/opt/edged/releases")
    found = doctor(pi)
    named = [one["what"].partition(" ")[0] for one in found["permissions"]]
    assert named == ["/etc/edged/keys", "/opt/edged/releases"]
    assert [one["what"].partition(" ")[0] for one in found["keys"]] == ["/etc/edged/keys"]
    for one in found["permissions"]:
        do(pi, one["do"])
    pi.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/edged.conf")
    assert worst(doctor(pi), "permissions")["severity"] == "ok"


def test_as_a_stranger_the_model_is_not_gone(pi: Box) -> None:
    found = doctor(pi, user="stranger")
    assert worst(found, "memory")["severity"] == "unknown"
    assert worst(found, "groups")["do"].startswith("sudo adduser stranger edged")


def test_a_refused_reload_is_told(pi: Box) -> None:
    path = "/etc/edged/config.yaml"
    good = pi.run("cat", path).stdout
    pi.write(path, good.replace("  queue: 128", "  queue: many"))
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: "was refused" in pi.show("StatusText")["StatusText"], "the refusal")
    (warning,) = pi.status()["warnings"]
    assert warning.endswith(f"{path}: limits.queue: expected int; the one before is in force")
    assert worst(doctor(pi), "service")["what"] == warning
    pi.write(path, good)
    pi.run("systemctl", "reload", "edged")
    pi.until(lambda: "was refused" not in pi.show("StatusText")["StatusText"], "the good one")
    assert pi.status()["warnings"] == []
