"""`edgectl doctor` on units that need what is not there."""

from __future__ import annotations

import boards
import pytest

from unit.test_doctor_boards import UNIT, of, run


@pytest.fixture
def pi5(tmp_path):
    return boards.pi5(tmp_path)


NEEDS = "LoadCredential=keys:/etc/edged/keys\nReadWritePaths=-/run/none\n"


def test_a_directory_that_the_unit_needs(pi5):
    """Without it systemd ends the service before its first line, with a status alone."""
    pi5.service(UNIT + NEEDS)
    pi5.put("etc/tmpfiles.d/edged.conf", "d /etc/edged/keys   0700 root  root        -\n")
    (pi5.path / "etc/edged/keys").rmdir()
    found = of(run(pi5), "unit-settings")
    assert (found.severity, found.what) == ("error", "there is no /etc/edged/keys (LoadCredential=)")
    assert "243/CREDENTIALS" in found.why
    assert found.do.startswith("sudo systemd-tmpfiles --create /etc/tmpfiles.d/edged.conf; sudo systemctl reset-failed")
    (pi5.path / "etc/edged/keys").mkdir()
    assert of(run(pi5), "unit-settings").severity == "ok"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("LoadCredential=a:/etc/a", "there is no /etc/a (LoadCredential=)"),
        ("ReadWritePaths=-/b /c", "there is no /c (ReadWritePaths=)"),
        ("EnvironmentFile=/etc/default/edged", "there is no /etc/default/edged (EnvironmentFile=)"),
        ("WorkingDirectory=/srv/edged", "there is no /srv/edged (WorkingDirectory=)"),
        ("BindPaths=/d:/e", "there is no /d (BindPaths=)"),
        ("ExecStart=+/opt/edged/bin/edged --config x", "there is no /opt/edged/bin/edged (ExecStart=)"),
        ("User=somebody", "there is no user somebody (User=)"),
        ("Group=some", "there is no group some (Group=)"),
    ],
)
def test_what_else_a_unit_needs(pi5, line, what):
    pi5.service(f"{UNIT}{line}\n")
    assert [one.what for one in run(pi5) if one.check == "unit-settings"] == [what]


OPTIONAL = [
    "EnvironmentFile=-/x",
    "LoadCredential=a:/x\nLoadCredential=",
    "WorkingDirectory=~",
    "ReadWritePaths=%t/x",
    "User=7",
]


@pytest.mark.parametrize("lines", OPTIONAL)
def test_what_a_unit_does_not_need(pi5, lines):
    pi5.service(f"{UNIT}{lines}\n")
    assert of(run(pi5), "unit-settings").severity == "ok"
