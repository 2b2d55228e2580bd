"""`edgectl doctor` on boards that are trees of files: what it says of each, and that nothing else is wrong."""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path

import boards
import msgspec
import pytest
from boards import Board

from edged import config, doctor
from edged.config import Cache, Profile
from edged.doctor import Finding, Severity

UNIT = (Path(__file__).parents[2] / "deploy/systemd/edged.service").read_text(encoding="utf-8")


def run(board: Board, settings: config.Config | None = None) -> list[Finding]:
    return doctor.run(settings or config.load(None), root=str(board.path))


def wrong(found: list[Finding]) -> list[str]:
    return [f"{f.check}: {f.severity}: {f.what}" for f in found if f.severity in ("warning", "error")]


def of(found: list[Finding], check: str) -> Finding:
    """The worst of a check."""
    return max((f for f in found if f.check == check), key=lambda f: list(Severity).index(f.severity))


@pytest.fixture
def pi5(tmp_path):
    return boards.pi5(tmp_path)


@pytest.fixture
def pi4(tmp_path):
    return boards.pi4(tmp_path)


def test_a_healthy_pi_5(pi5):
    found = run(pi5)
    assert wrong(found) == []
    board = of(found, "board").what
    assert board.startswith("Raspberry Pi 5 Model B Rev 1.0, Debian GNU/Linux 13 (trixie)")
    assert "7.8 GB of memory" in board
    assert of(found, "page-size").what == "pages of 16 KiB"
    assert "DOTPROD" in of(found, "cpu-features").what
    assert of(found, "frequency").what == "governor ondemand, up to 2.4 GHz"
    assert of(found, "temperature").what == "48.2 °C (cpu-thermal)"
    assert of(found, "cooling").what == "pwm-fan: step 1 of 4, 2980 rpm"
    assert of(found, "throttling").severity == of(found, "supply").severity == "ok"


def test_a_healthy_pi_4(pi4):
    found = run(pi4)
    assert wrong(found) == []
    assert of(found, "page-size").what == "pages of 4 KiB"
    assert "DOTPROD" not in of(found, "cpu-features").what
    assert of(found, "clock").what == "synchronised; no RTC: wrong after each power cut, until it is synchronised"


def test_every_check_says_something_and_once_is_enough(pi5):
    found = run(pi5)
    assert {f.check for f in found} == set(doctor.CHECKS)
    assert all(f.what for f in found)
    assert all(f.do for f in found if f.severity in ("warning", "error", "unknown"))


def test_an_empty_root(tmp_path):
    found = run(Board(tmp_path))
    assert {f.check for f in found} == set(doctor.CHECKS)
    assert [line.partition(":")[0] for line in wrong(found)] == ["model"]
    assert of(found, "model").what.endswith(".gguf: No such file or directory (profile default)")


# ---- power and heat -----------------------------------------------------------------------------------------------


def test_under_voltage_is_no_heat(pi5):
    pi5.throttled(0x50005)
    found = run(pi5)
    assert wrong(found) == ["throttling: warning: now: throttled", "supply: error: under-voltage now"]
    assert of(found, "throttling").why == "for its supply, perhaps: see `supply`"
    assert "27 W" in of(found, "supply").do


def test_what_was_before(pi5):
    pi5.throttled(0x50000)
    found = run(pi5)
    assert wrong(found) == ["supply: warning: there was under-voltage since the start"]
    assert (of(found, "throttling").severity, of(found, "throttling").what) == ("info", "earlier: throttled")


def test_throttled_for_heat(pi4):
    pi4.throttled(0x8)
    pi4.heat(81.5)
    found = run(pi4)
    assert wrong(found) == [
        "throttling: warning: now: soft temperature limit",
        "temperature: error: 81.5 °C (cpu-thermal)",
    ]
    assert "heat" in of(found, "throttling").why


def test_a_warm_board(pi4):
    pi4.heat(72)
    assert wrong(run(pi4)) == ["temperature: warning: 72.0 °C (cpu-thermal)"]


def test_a_sensor_that_talks_nonsense(pi4):
    pi4.heat(-273.2)
    assert wrong(run(pi4)) == ["temperature: warning: thermal zone cpu-thermal: says nonsense (-273.2 °C)"]


def test_a_pi_without_a_sensor(pi4):
    pi4.drop("sys/class/thermal/thermal_zone0/temp")
    pi4.drop("sys/class/thermal/thermal_zone0/type")
    os.rmdir(pi4.path / "sys/class/thermal/thermal_zone0")
    assert wrong(run(pi4)) == ["temperature: warning: no temperature sensor"]


def test_a_pi_whose_firmware_is_silent(pi4):
    pi4.drop("sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled")
    found = run(pi4)
    assert (of(found, "supply").severity, of(found, "throttling").severity) == ("unknown", "unknown")
    assert "vcgencmd get_throttled" in of(found, "supply").do
    pi4.put("sys/class/hwmon/hwmon0/name", "rpi_volt")
    pi4.put("sys/class/hwmon/hwmon0/in0_lcrit_alarm", "1")
    assert of(run(pi4), "supply").what == "under-voltage now"


def test_a_fan_that_does_not_turn(pi5):
    pi5.put("sys/class/hwmon/hwmon2/fan1_input", "0")
    assert wrong(run(pi5)) == ["cooling: error: pwm-fan: 0 rpm"]


def test_a_low_clock(pi5):
    pi5.clock(now=1_500_000, most=2_400_000, governor="powersave")
    assert wrong(run(pi5)) == [
        "frequency: warning: governor powersave",
        "frequency: warning: the clock is limited to 1.5 GHz of 2.4 GHz",
    ]


def test_a_clock_that_we_hold_down(pi5):
    pi5.clock(now=1_500_000, most=2_400_000)
    pi5.put("run/edged/clock", "{}")
    found = run(pi5)
    assert wrong(found) == []
    assert "puts it back" in of(found, "frequency").why


# ---- memory -------------------------------------------------------------------------------------------------------


def test_no_memory_controller_matters_where_a_unit_has_a_limit(pi5):
    assert of(run(pi5), "cgroup-memory").severity == "info"
    pi5.service(UNIT + "\n[Service]\nMemoryMax=2G\n")
    found = of(run(pi5), "cgroup-memory")
    assert (found.severity, "no effect" in found.why) == ("warning", True)
    assert "cgroup_enable=memory" in found.do
    assert "/boot/firmware/cmdline.txt" in found.do


def test_switched_on_and_not_restarted(pi5):
    pi5.put("boot/firmware/cmdline.txt", f"{boards.LINE} cgroup_enable=memory psi=1\n")
    found = run(pi5)
    assert of(found, "cgroup-memory").do.endswith("already: restart the box")
    assert of(found, "psi").do.endswith("already: restart the box")


def test_memory_controller_and_pressure(pi5):
    pi5.groups("cpu", "memory")
    pi5.put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    found = run(pi5)
    assert of(found, "cgroup-memory").severity == of(found, "psi").severity == "ok"


@pytest.mark.parametrize(
    ("row", "severity"),
    [
        ("/var/swap file 524284 0 -2", "warning"),
        ("/dev/mmcblk0p3 partition 524284 0 -2", "warning"),
        ("/dev/zram0 partition 1048572 0 100", "ok"),
    ],
)
def test_swap(pi5, row, severity):
    pi5.put("proc/swaps", f"Filename\tType\tSize\tUsed\tPriority\n{row}\n")
    assert of(run(pi5), "swap").severity == severity


def test_a_model_that_does_not_fit(pi4):
    pi4.memory(100, 90)
    pi4.model()
    with (pi4.path / "var/lib/edged/models/SmolLM2-135M-Instruct.Q4_1.gguf").open("ab") as file:
        file.truncate(85 << 20)
    found = of(run(pi4), "memory")
    assert found.severity == "error"
    assert "it would not run here" in found.what


# ---- disk ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("life", "end", "severity", "what"),
    [
        ("0x02 0x01", "0x01", "ok", "eMMC mmcblk0: up to 20 % used"),
        ("0x09 0x01", "0x01", "warning", "eMMC mmcblk0 is nearly worn out (up to 90 % used)"),
        (
            "0x02 0x02",
            "0x02",
            "warning",
            "eMMC mmcblk0 is nearly worn out (up to 20 % used, 80 % of the reserve is gone)",
        ),
        ("0x0b 0x0a", "0x03", "error", "eMMC mmcblk0 is worn out (used beyond its life, the reserve is gone)"),
        ("junk", "", "info", "eMMC mmcblk0 does not tell how worn it is"),
    ],
)
def test_wear(pi4, life, end, severity, what):
    pi4.card("MMC", life=life, end=end)
    found = of(run(pi4), "disk-wear")
    assert (found.severity, found.what) == (severity, what)


def test_a_journal_on_a_card(pi4):
    on_disk = msgspec.structs.replace(config.load(None), journal="disk")
    assert "syncs of the card" in run(pi4, on_disk)[list(doctor.CHECKS).index("disk-wear") + 1].why


def test_a_card_that_became_read_only(pi4):
    pi4.put("proc/self/mountinfo", boards.MOUNTS.replace("rw,noatime", "ro,noatime"))
    found = of(run(pi4), "file-system")
    assert (found.severity, "failing" in found.why) == ("error", True)
    pi4.put("etc/fstab", "/dev/mmcblk0p2 / ext4 ro,noatime 0 1\n")
    assert of(run(pi4), "file-system").severity == "warning"


def test_room_for_snapshots(pi4):
    settings = msgspec.structs.replace(config.load(None), cache=Cache(disk_bytes=1 << 40))
    assert of(run(pi4, settings), "disk-space").severity == "warning"


# ---- files --------------------------------------------------------------------------------------------------------


def test_a_truncated_model(pi4):
    path = pi4.path / "var/lib/edged/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    path.write_bytes(path.read_bytes()[:-8])
    found = of(run(pi4), "model")
    assert found.severity == "error"
    assert "copy or pull it again" in found.do
    assert str(pi4.path) not in found.what


def test_a_bad_smaller_profile_is_a_warning(pi4):
    pi4.put("var/lib/edged/models/small.gguf", "no model")
    profiles = [Profile(), Profile(name="small", model="/var/lib/edged/models/small.gguf")]
    found = of(run(pi4, msgspec.structs.replace(config.load(None), profiles=profiles)), "model")
    assert (found.severity, "small" in found.what) == ("warning", True)


def test_a_model_that_the_service_may_not_read(pi4):
    pi4.service(UNIT)
    pi4.put("home/pi/big.gguf")
    (pi4.path / "home/pi").chmod(0o700)
    settings = config.load(None)
    settings = msgspec.structs.replace(
        settings, model=msgspec.structs.replace(settings.model, path="/home/pi/big.gguf")
    )
    assert "user edged may not pass /home/pi" in of(run(pi4, settings), "model").what


def test_open_files_and_sockets(pi4):
    pi4.put("etc/edged/config.yaml", "{}\n", mode=0o666)
    pi4.put("var/lib/edged/sessions.db", mode=0o644)
    settings = msgspec.structs.replace(config.load(None), path="/etc/edged/config.yaml")
    found = [f for f in run(pi4, settings) if f.check == "permissions"]
    assert [(f.severity, f.what, f.do) for f in found] == [
        ("error", "configuration /etc/edged/config.yaml is 0666", "sudo chmod 0644 /etc/edged/config.yaml"),
        ("error", "transcripts /var/lib/edged/sessions.db is 0644", "sudo chmod 0600 /var/lib/edged/sessions.db"),
    ]


def test_a_library_for_smaller_pages(pi5):
    site = "opt/edged/current/venv/lib/python3.13/site-packages/llama_cpp/lib"
    pi5.put(f"{site}/libllama.so", elf(align=0x1000))
    pi5.put(f"{site}/libggml.so", elf(align=0x10000))
    found = of(run(pi5), "page-size")
    assert found.severity == "error"
    assert found.why == "libllama.so: linked for pages of 4 KiB, cannot be loaded"


def elf(*, align: int) -> bytes:
    """The headers of a library with one loadable segment and one that is none."""
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 183, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0, 0, align)
    note = struct.pack("<IIQQQQQQ", 4, 4, 0, 0, 0, 0, 0, 4)
    return head + load + note


# ---- the unit -----------------------------------------------------------------------------------------------------


def test_a_unit_as_it_is_meant(pi5):
    pi5.service(UNIT)
    pi5.put("opt/edged/current/deploy/systemd/edged.service", UNIT)
    (pi5.path / "var/lib/edged").chmod(0o750)
    if os.geteuid() == 0:
        os.chown(pi5.path / "var/lib/edged", 990, 990)
        assert wrong(run(pi5)) == []
    assert of(run(pi5), "unit-settings").severity == "ok"


def test_a_unit_that_drifted(pi5):
    pi5.service(UNIT.replace("OOMPolicy=continue", "OOMPolicy=stop").replace("LimitCORE=0\n", "# LimitCORE=0\n"))
    pi5.put("opt/edged/current/deploy/systemd/edged.service", UNIT)
    pi5.put("etc/systemd/system/edged.service.d/mine.conf", "[Service]\nProcSubset=pid\nTimeoutStopSec=12\n")
    said = [f.what for f in run(pi5) if f.check in ("unit", "unit-settings")]
    drift = "the unit is not the release's"
    assert said == [
        f"{drift}: edged.service: OOMPolicy=stop, not OOMPolicy=continue; edged.service: without LimitCORE=0",
        "settings laid over it: /etc/systemd/system/edged.service.d/mine.conf",
        "ProcSubset=pid",
        "no OOMPolicy=continue",
        "no LimitCORE=0",
        "TimeoutStopSec=12",
    ]


# ---- what hangs ---------------------------------------------------------------------------------------------------


def test_a_file_that_never_answers_costs_its_check(pi5, monkeypatch):
    """A FIFO that nobody writes: opening it hangs as a dead driver's file does."""
    monkeypatch.setattr("edged.doctor.checkup.WITHIN_S", 0.5)
    pi5.drop("sys/class/thermal/cooling_device0/type")
    os.mkfifo(pi5.path / "sys/class/thermal/cooling_device0/type")
    begun = time.monotonic()
    found = run(pi5)
    assert time.monotonic() - begun < 30
    assert wrong(found) == ["cooling: warning: no answer within 0.5 s"]
    assert len(found) >= len(doctor.CHECKS)
    with open(pi5.path / "sys/class/thermal/cooling_device0/type", "w") as file:  # lets the thread go
        file.write("pwm-fan")
    for thread in threading.enumerate():
        if thread.name == "cooling":
            thread.join(10)


def test_a_bug_in_a_check_is_that_checks(pi5, monkeypatch):
    monkeypatch.setitem(doctor.CHECKS, "board", lambda _: 1 / 0)
    found = run(pi5)
    assert found[0].severity == "unknown"
    assert "ZeroDivisionError" in found[0].what
    assert len(found) >= len(doctor.CHECKS)
