"""`edgectl doctor` on boards where others could put something of their own."""

from __future__ import annotations

import os

import boards
import pytest
from boards import Board

from unit.test_doctor_boards import UNIT, run


@pytest.fixture
def pi5(tmp_path):
    return boards.pi5(tmp_path)


STRANGER = 4242
SECRET = "etc/edged/keys/server.key_secret"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")


def checks(board: Board, name: str) -> list[tuple[str, str, str]]:
    return [(f.severity, f.what, f.do) for f in run(board) if f.check == name]


@pytest.fixture
def keyed(pi5):
    """With what it takes to be asked over TCP."""
    pi5.service(UNIT)
    for path, mode in (("etc/edged/keys", 0o700), ("etc/edged/clients", 0o750), ("opt/edged/releases", 0o755)):
        (pi5.path / path).mkdir(parents=True, exist_ok=True)
        (pi5.path / path).chmod(mode)
    pi5.put("etc/edged/keys/server.key_secret", mode=0o600)
    pi5.put("etc/edged/clients/a.key", mode=0o644)
    if os.geteuid() == 0:
        os.chown(pi5.path / "var/lib/edged", 990, 990)
    assert [f[0] for name in ("keys", "permissions") for f in checks(pi5, name)] == ["ok", "ok"]
    return pi5


@pytest.mark.parametrize("path", ["etc/edged/keys", "etc/edged", "etc", "etc/edged/clients"])
def test_a_directory_of_keys_that_everybody_may_write(keyed, path):
    """Others could put their own server key there, or another directory."""
    (keyed.path / path).chmod(0o777)
    said = ("error", f"/{path} is 0777: everybody may write it", f"sudo chmod go-w /{path}")
    assert checks(keyed, "keys") == checks(keyed, "permissions") == [said]
    (keyed.path / path).chmod(0o1777)  # sticky: nobody replaces what is another's, but anybody adds to it
    assert (checks(keyed, "keys")[0][0] == "error") is (path in ("etc/edged/keys", "etc/edged/clients"))


@AS_ROOT
@pytest.mark.parametrize("path", ["etc/edged/keys", "etc/edged", "etc/edged/clients", SECRET])
def test_keys_of_a_stranger(keyed, path):
    os.chown(keyed.path / path, STRANGER, STRANGER)
    assert ("error", f"/{path} belongs to user {STRANGER}", f"sudo chown root: /{path}") in checks(keyed, "keys")


@AS_ROOT
def test_a_client_s_key_of_a_stranger(keyed):
    os.chown(keyed.path / "etc/edged/clients/a.key", STRANGER, STRANGER)
    assert checks(keyed, "keys")[0][:2] == ("error", f"of somebody else: /etc/edged/clients/a.key (user {STRANGER})")


def test_a_key_of_the_box_that_is_not_in_force(keyed):
    """systemd handed a copy over at the start."""
    keyed.put("etc/edged/keys/server.key", "one\n")
    keyed.put("run/credentials/edged.service/keys_server.key", "one\n")
    assert checks(keyed, "keys")[0][0] == "ok"
    keyed.put("etc/edged/keys/server.key", "another\n")
    said = checks(keyed, "keys")
    assert [one[0] for one in said] == ["warning"]
    assert said[0][2] == "sudo systemctl restart edged"


def test_secrets_among_the_keys_of_clients(keyed):
    keyed.put("etc/edged/clients/a.key_secret", mode=0o600)
    assert checks(keyed, "keys")[0][:2] == ("warning", "secret keys lie among those of the clients")


@pytest.mark.parametrize("path", ["opt/edged/releases", "opt/edged", "opt", "opt/edged/current/venv/bin"])
def test_a_release_that_everybody_may_change(keyed, path):
    (keyed.path / path).chmod(0o777)
    assert checks(keyed, "permissions") == [
        ("error", f"/{path} is 0777: everybody may write it", f"sudo chmod go-w /{path}")
    ]


@pytest.mark.parametrize("path", ["etc/systemd/system", "var/lib/edged/models"])
def test_what_runs_and_what_is_loaded(keyed, path):
    (keyed.path / path).chmod(0o777)
    assert checks(keyed, "permissions")[0][:2] == ("error", f"/{path} is 0777: everybody may write it")


@AS_ROOT
def test_a_group_with_members(keyed):
    """That of the owner alone is nobody's business."""
    keyed.put("etc/group", "root:x:0:\nedged:x:990:pi\n")
    keyed.put(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nedged:x:990:990::/:/bin/false\npi:x:1000:1000::/home/pi:/bin/sh\n",
    )
    (keyed.path / "etc/edged").chmod(0o775)
    assert checks(keyed, "keys")[0][0] == "ok"
    os.chown(keyed.path / "etc/edged", 0, 990)
    assert checks(keyed, "keys")[0][:2] == ("error", "/etc/edged is 0775: pi of group edged may write it")
