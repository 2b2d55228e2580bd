"""`edgectl doctor` on units that need what is not there, or allow less than the service needs."""

from __future__ import annotations

import boards
import pytest

from edged.doctor import limits, memory
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


# ---- limits ----

BIG = memory.Wanted("default", 300 << 20, 400 << 20)
SMALL = memory.Wanted("small", 100 << 20, 150 << 20)


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("MemoryMax=100M", "error"),
        ("MemoryMax=300M", "warning"),  # the smaller profile has room
        ("MemoryMax=10%", "warning"),
        ("MemoryHigh=314572800", "warning"),
        ("LimitAS=200M:infinity", "warning"),
        ("TasksMax=8", "warning"),
        ("LimitNOFILE=256:4096", "warning"),
        *((fine, "") for fine in ("MemoryMax=1G", "MemoryMax=1.5G", "MemoryMax=infinity", "MemoryMax=")),
        *((fine, "") for fine in ("MemoryMax=80%", "LimitNOFILE=4096", "TasksMax=infinity", "TasksMax=4915")),
    ],
)
def test_limits_below_what_is_needed(line, severity):
    found = limits.judge([line], [BIG, SMALL], 2 << 30)
    assert [one.severity for one in found] == [severity] * bool(severity)
    assert all(one.what.startswith(line.partition(":")[0]) and one.do for one in found)


def test_limits_of_a_model_that_is_not_known():
    assert limits.judge(["MemoryMax=1M"], [], None) == []
