"""The rules of `edgectl doctor` that no tree of files can bring about: pure, facts in, findings out."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import subprocess
import time

import pytest

from edged import config
from edged.doctor import (
    access,
    box,
    finding,
    keys,
    memory,
    ports,
    processor,
    service,
    unitfiles,
    units,
    wallclock,
)
from edged.doctor.finding import Finding, Severity, worst
from edged.doctor.processor import Probe, Processor
from edged.system import asker as who

NEEDS_CC = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def said(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.severity, one.what) for one in found]


def test_the_worst():
    assert worst([]) == "ok"
    assert worst([finding.info("a", ""), finding.unknown("b", ""), finding.warning("c", "")]) is Severity.WARNING
    assert worst([finding.error("a", ""), finding.warning("b", "")]) is Severity.ERROR


# ---- processor and engine -----------------------------------------------------------------------------------------

A72 = {"NEON": True, "ARM_FMA": True, "DOTPROD": False, "MATMUL_INT8": False}
A76 = A72 | {"DOTPROD": True}
BASE = frozenset({"NEON", "ARM_FMA", "LLAMAFILE"})


def judged(has: dict[str, bool], build: Probe | None) -> Finding:
    (one,) = processor.judge(Processor(has, build))
    return one


def test_a_build_for_newer_cores():
    one = judged(A72, Probe(BASE | {"DOTPROD"}))
    assert (one.severity, one.what) == (
        "error",
        "the engine is a wrong build for this processor: it uses DOTPROD",
    )
    assert "SIGILL" in one.why


def test_a_build_that_leaves_much_unused():
    one = judged(A76, Probe(BASE))
    assert (one.severity, one.what) == ("warning", "the engine leaves DOTPROD of this processor unused")
    assert "--no-binary" in one.do


def test_a_build_that_suits():
    assert judged(A76, Probe(BASE | {"DOTPROD"})).severity == "ok"
    assert judged(A72, Probe(BASE)).severity == "ok"


def test_a_processor_that_does_not_tell():
    assert judged({}, Probe(BASE | {"DOTPROD"})).severity == "unknown"


def test_no_engine():
    assert judged(A76, None).severity == "info"


def test_system_info():
    line = "CPU : NEON = 1 | ARM_FMA = 1 | FP16_VA = 0 | DOTPROD = 1 | REPACK = 1 | \n"
    assert processor.uses(line) == {"NEON", "ARM_FMA", "DOTPROD", "REPACK"}


def test_this_machine_and_its_engine():
    """Here the engine runs, so doctor must not say that it cannot."""
    library = processor.engine()
    if library is None:
        pytest.skip("no engine is installed")
    probe = processor.probe(library)
    assert probe.wrong == ""
    has = processor.features(box.Box(config.load(None)))
    assert judged(has, probe).severity in ("ok", "warning")


ENGINE = """
const char *llama_print_system_info(void) { return "CPU : NEON = 1 | "; }
"""
COMPUTES = """
void ggml_cpu_init(void) {}
typedef unsigned long word;
void ggml_vec_dot_f32(int n, float *s, word a, const float *x, word b, const float *y, word c, int r) { %s }
"""


@NEEDS_CC
@pytest.mark.parametrize(
    ("body", "severity", "what"),
    [
        ("__asm__(ILLEGAL);", "error", "the engine is a wrong build for this processor: SIGILL when it computes"),
        ("*(volatile int *)0 = 0;", "error", "the engine does not work: SIGSEGV when it computes"),
        ("*s = 7;", "error", "the engine does not work: it miscalculates"),
        ("*s = 0; for (int i = 0; i < n; i++) *s += x[i] * y[i];", "ok", "the engine suits the processor: NEON"),
        ("for (;;) ;", "error", "the engine does not work: it did not compute within"),
    ],
)
def test_an_engine_that_dies(tmp_path, monkeypatch, body, severity, what):
    """Real libraries, a real illegal instruction; what dies is the child."""
    monkeypatch.setattr(processor, "CHILD_S", 1.0 if "for (;;)" in body else 30.0)
    illegal = '"ud2"' if os.uname().machine == "x86_64" else '"udf #0"'
    for name, source in (("libllama", ENGINE), ("libggml-cpu", f"#define ILLEGAL {illegal}\n" + COMPUTES % body)):
        (tmp_path / f"{name}.c").write_text(source)
        command = ["cc", "-shared", "-fPIC", "-O0", "-o", f"{tmp_path}/{name}.so", f"{tmp_path}/{name}.c"]
        subprocess.run(command, check=True, timeout=60)
    one = judged({"NEON": True}, processor.probe(str(tmp_path)))
    assert one.severity == severity
    assert one.what.startswith(what)


def test_an_engine_without_its_library(tmp_path):
    one = judged(A76, processor.probe(str(tmp_path)))
    assert one.severity == "error"
    assert "cannot open shared object file" in one.what


# ---- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "how"), [(errno.EOPNOTSUPP, "is switched off"), (errno.ENOENT, "is not there")])
def test_pressure_that_is_not_told(number, how):
    (one,) = memory.judge_psi("", number, "console=tty1")
    assert said([one]) == [("info", f"pressure (PSI) {how}")]
    assert one.do == "add psi=1 to the end of the one line in /boot/firmware/cmdline.txt, and restart the box"


def test_enabled_before_it_is_disabled():
    groups = memory.Groups(["cpu"], False, True, "cgroup_enable=memory cgroup_disable=memory", "cgroup_enable=memory")
    (one,) = memory.judge_cgroup(groups)
    assert one.severity == "warning"
    assert "must come after" in one.do


# ---- access -------------------------------------------------------------------------------------------------------


def asker(**fields) -> access.Asker:
    group = fields.get("group", "edged")
    known = {"name": "pi", "root": False, "socket": "request", "group": group, "allowed": False}
    return access.Asker(**{**known, "join": f"sudo adduser pi {group}", **fields})


def test_the_asking_user():
    (one,) = access.judge_groups([asker()])
    assert (one.severity, one.do) == ("warning", "sudo adduser pi edged, then log in anew")
    (one,) = access.judge_groups([asker(member=True)])
    assert (one.severity, one.do) == ("warning", "log in anew")
    (one,) = access.judge_groups([asker(allowed=True), asker(socket="control", group="edged-admin")])
    assert (one.severity, one.do) == ("info", "sudo adduser pi edged-admin, then log in anew")
    assert access.judge_groups([asker(allowed=True)])[0].severity == "ok"
    assert access.judge_groups([asker(group="")])[0].severity == "info"


def judged_keys(**fields) -> list[tuple[str, str]]:
    known = {"tcp": ["tcp://*:5555"], "insecure": False, "path": "/k", "there": True, "secret": 0o600, "clients": 2}
    return said(keys.judge(keys.Keys(**{**known, "bad": [], **fields})))


def test_keys():
    assert judged_keys() == [("ok", "one of this box, 2 of clients")]
    assert judged_keys(tcp=[]) == [("ok", "none needed: nothing listens on TCP")]
    assert judged_keys(secret=0o640) == [("error", "/k is 0640")]
    assert judged_keys(bad=["/c/a.key"]) == [("error", "others may write /c/a.key")]
    assert judged_keys(there=False, secret=None) == [("error", "tcp://*:5555 without keys")]
    assert judged_keys(there=False, secret=None, insecure=True) == [("warning", "tcp://*:5555 without keys")]
    assert judged_keys(clients=0) == [("warning", "no client has a key: nobody gets in over TCP")]
    assert judged_keys(secret=None) == [("unknown", "the keys may not be looked at")]


# ---- clock --------------------------------------------------------------------------------------------------------


def test_nothing_sets_the_clock(tmp_path):
    """timesyncd is a package of its own in Debian: set-ntp alone fails."""
    for there, words in ((True, "sudo timedatectl"), (False, "nothing sets it: sudo apt install systemd-timesyncd")):
        (found,) = wallclock.judge(wallclock.Clock(2e9, False, True, there))
        assert found.do.startswith(words)
    card = box.Box(config.load(None), str(tmp_path))
    assert not wallclock._service(card)
    (tmp_path / "usr/lib/systemd/system").mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system/chrony.service").write_text("")
    assert wallclock._service(card)


def test_a_model_that_may_only_not_be_read():
    assert memory.judge_room([], 1 << 30, None, hidden=True)[0].severity == "unknown"
    assert said(memory.judge_room([], 1 << 30, None)) == [
        ("info", "1,074 MB in all; there is no model to compare it with")
    ]


def test_who_asks_by_name(monkeypatch):
    """Not by $USER, which may be unset, or another's."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("USER", "liar")
    assert who.name() == pwd.getpwuid(os.getuid()).pw_name
    assert who.join("edged") == f"sudo adduser {who.name()} edged"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(pwd.getpwnam("daemon").pw_uid))
    assert who.name() == "daemon"
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert who.name() == ""
    assert who.join("edged") == "sudo useradd --uid 4242 NAME; sudo adduser NAME edged"


def test_clock():
    now = time.time()
    assert said(wallclock.judge(wallclock.Clock(now, True, True))) == [("ok", "synchronised")]
    assert said(wallclock.judge(wallclock.Clock(0.0, True, False))) == [("warning", "the date is 1970-01-01")]
    assert said(wallclock.judge(wallclock.Clock(now, False, True))) == [("warning", "not synchronised")]
    assert wallclock.judge(wallclock.Clock(None, None, False))[0].severity == "info"


# ---- ports --------------------------------------------------------------------------------------------------------

NET = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:24F8 00000000:0000 0A 00000000:00000000 00:00000000 00000000   990        0 4711 1 0 100 0 0 10 0
   1: 0100007F:24F9 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
"""


def test_who_listens():
    assert ports.listening(NET) == {0x24F8: (990, "4711")}
    assert ports.listening("") == {}


def test_ports():
    mine = ports.Port("listen.request", "tcp://*:5555", 990)
    free = ports.Port("listen.request", "tcp://*:5555", None)
    left = ports.Port("listen.request", "ipc:///run/edged/request.sock", None, left=True)
    assert said(ports.judge([mine], 990, answers=True)) == [("ok", "it listens on tcp://*:5555")]
    assert ports.judge([free], 990, answers=True)[0].severity == "warning"
    assert said(ports.judge([free], None, answers=False))[0][0] == "ok"
    assert said(ports.judge([mine], 1000, answers=True)) == [
        ("error", "tcp://*:5555 is taken by a process of user 990")
    ]
    taken = ports.Port("metrics.listen", "tcp://127.0.0.1:9464", 0, "nginx (12)")
    assert said(ports.judge([taken], None, answers=False)) == [("error", "tcp://127.0.0.1:9464 is taken by nginx (12)")]
    assert ports.judge([left], None, answers=False)[0].severity == "warning"


# ---- service, unit ------------------------------------------------------------------------------------------------


def test_service():
    assert service.judge_service("there is no socket", installed=False)[0].severity == "info"
    assert service.judge_service("there is no socket", installed=True)[0].severity == "error"
    assert service.judge_service("no permission for /run/edged/request.sock", installed=True)[0].severity == "unknown"
    well = {"state": "ready", "warnings": []}
    assert said(service.judge_service(well, installed=True)) == [("ok", "it answers: ready")]
    bad = {"state": "unavailable", "warnings": ["unavailable: no room", "sessions: disk full"]}
    assert said(service.judge_service(bad, installed=True)) == [
        ("warning", "sessions: disk full"),
        ("error", "unavailable: nothing is answered"),
    ]
    warm = {"state": "degraded", "warnings": [], "watchdog": {"why": "71 °C"}}
    assert service.judge_service(warm, installed=True)[0].why == "71 °C"


def test_versions():
    def of(daemon: str | None, systemd: int | None = 252) -> list[tuple[str, str]]:
        return said(service.judge_versions(service.Versions("1.0.0", daemon, "3.11.2", "glibc 2.36", systemd)))

    assert of(None) == of("1.0.0") == [("ok", "edged 1.0.0, Python 3.11.2, glibc 2.36, systemd 252")]
    assert of("0.9.0") == [("warning", "the daemon is 0.9.0, this edgectl 1.0.0")]
    assert of(None, 247) == [("warning", "systemd 247")]


def test_open_files():
    limits = (
        "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 256              files\n"
    )
    assert service.most_files(limits) == 256
    assert service.judge_files(256, running=True)[0].severity == "warning"
    assert service.judge_files(65536, running=True)[0].severity == "ok"
    assert service.judge_files(None, running=True)[0].severity == "unknown"


def unit(**shown: str) -> list[tuple[str, str]]:
    well = {"ActiveState": "active", "UnitFileState": "enabled", "NRestarts": "0", "NeedDaemonReload": "no"}
    return said(units.judge_unit(units.Unit(True, well | shown, [], [])))


def test_unit():
    assert unit() == [("ok", "the release's unit, enabled and active")]
    assert unit(ActiveState="failed", Result="start-limit-hit") == [
        ("error", "the service has failed (start-limit-hit)")
    ]
    assert unit(ActiveState="failed", Result="exit-code", ExecMainStatus="243") == [
        ("error", "the service has failed (exit-code, status 243/CREDENTIALS)")
    ]
    again = unit(ActiveState="activating", SubState="auto-restart", Result="exit-code", ExecMainStatus="226")
    assert again[0][0] == "error"
    assert "226/NAMESPACE" in again[0][1]
    assert unit(ActiveState="inactive") == [("warning", "the service is inactive")]
    assert unit(UnitFileState="disabled") == [("warning", "the unit is disabled")]
    assert unit(NRestarts="17") == [("warning", "restarted 17 times")]
    assert unit(NeedDaemonReload="yes") == [("warning", "the unit file was changed")]


GOOD = [
    *("OOMPolicy=continue", "RuntimeDirectoryPreserve=yes", "LimitCORE=0", "TimeoutStopSec=30"),
    "Restart=on-failure",
]


@pytest.mark.parametrize(
    ("line", "severity", "what"),
    [
        ("PrivateUsers=yes", "error", "PrivateUsers=yes"),
        ("ProcSubset=pid", "error", "ProcSubset=pid"),
        ("Restart=no", "warning", "no Restart=on-failure"),
        ("Restart=", "warning", "no Restart=on-failure"),
        ("Restart=on-success", "warning", "no Restart=on-failure"),
        ("OOMPolicy=stop", "warning", "no OOMPolicy=continue"),
        ("SystemCallFilter=~@privileged @resources", "warning", "SystemCallFilter=~@resources"),
        ("TimeoutStopSec=15s", "warning", "TimeoutStopSec=15"),
        ("RuntimeDirectoryPreserve=no", "warning", "no RuntimeDirectoryPreserve=yes"),
    ],
)
def test_settings_that_hurt(line, severity, what):
    assert said(units.judge_settings([*GOOD, line], 20.0, "/var/lib/edged/models/m.gguf")) == [(severity, what)]


def test_settings_that_do_not():
    lines = [*GOOD, "SystemCallFilter=~@resources", "SystemCallFilter=sched_setaffinity setpriority", "PrivateUsers=no"]
    assert units.judge_settings(lines, 20.0, "/var/lib/m.gguf")[0].severity == "ok"
    found = units.judge_settings([*lines, "ProtectHome=yes"], 20.0, "/home/pi/m.gguf")
    assert said(found) == [("error", "model.path is /home/pi/m.gguf")]


def test_lines_of_a_unit():
    text = "# [Service]\n[Service]\nA = b  c\n; no\nD=e \\\n  f\n"
    assert unitfiles.settings(text) == ["[Service]", "A=b c", "D=e f"]
    assert units.seconds("1min 30s") == 90
    assert units.seconds("infinity") is None


@pytest.mark.parametrize(
    ("listeners", "main", "severity"),
    [([1], str(os.getpid()), "ok"), ([1], "0", "info"), ([None], "0", "unknown"), ([], "0", "info")],
    ids=["ours", "another", "unreadable", "none"],  # no pid in a name: xdist wants the same ones from every process
)
def test_open_files_where_systemd_holds_the_sockets(monkeypatch, listeners, main, severity):
    """It listens in the daemon's place; `MainPID` tells who has them now."""
    here = box.Box(config.load(None))
    monkeypatch.setattr(box.Box, "listeners", lambda _: listeners)
    monkeypatch.setattr("edged.doctor.units.show", lambda _: {"MainPID": main})
    monkeypatch.setattr("edged.doctor.service.ENOUGH", 1)
    assert [found.severity for found in service.check_files(here)] == [severity]
