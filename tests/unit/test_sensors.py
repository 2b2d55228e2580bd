"""What the board's files say, and every kind of nonsense in them, on made-up roots."""

from __future__ import annotations

import os
import threading
import time

import pytest
from plant.sysfs import MB, Root

from edged.watchdog.memsensors import MemorySensors
from edged.watchdog.readings import Readings
from edged.watchdog.sampler import OVERDUE_S, Sampler
from edged.watchdog.sensors import Sensors


class Eye:
    """Both kinds of sensors on a root, as the sampler looks, without its thread."""

    def __init__(self, root: Root, zones: list[str] | None = None) -> None:
        self.board = Sensors(str(root.path), zones or [])
        self.memory = MemorySensors(str(root.path))

    def look(self, pid: int | None = None) -> Readings:
        missing: list[str] = []
        alarms: list[str] = []
        fields = {**self.board.read(missing, alarms), **self.memory.read(pid, missing, alarms)}
        return Readings(missing=missing, alarms=alarms, **fields)


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


def test_a_board_at_rest(root):
    seen = Eye(root).look()
    assert seen.zones == {"cpu-thermal": 50.0}
    assert seen.temperature_c == 50.0
    assert (seen.throttled, seen.soft_limit, seen.under_voltage, seen.capped) == (False, False, False, False)
    assert (seen.frequency_khz, seen.frequency_max_khz) == (1_800_000, 1_800_000)
    assert (seen.memory_total, seen.memory_available) == (4000 * MB, 2000 * MB)
    assert seen.missing == ["cgroup memory", "psi"]
    assert seen.alarms == []


def test_nothing_is_there(tmp_path):
    eye = Sensors(str(tmp_path), [])
    missing: list[str] = []
    alarms: list[str] = []
    fields = eye.read(missing, alarms)
    assert fields["temperature_c"] is None
    assert missing == ["temperature", "throttle bits", "core clock"]
    assert alarms == []


@pytest.mark.parametrize("text", ["", "abc", "-274000", "999999", "1e5", "0x10", "9" * 5000])
def test_nonsense_is_unknown_and_an_alarm_until_it_is_good_again(root, text):
    eye = Eye(root)
    eye.look()
    root.put(root.zone / "temp", text)
    seen = eye.look()
    assert seen.temperature_c is None
    assert len(seen.alarms) == 1
    root.temperature(51)
    assert eye.look().temperature_c == 51.0
    assert eye.look().alarms == []


def test_nonsense_from_the_start_is_no_missing_sensor(root):
    root.put(root.zone / "temp", "abc")
    seen = Eye(root).look()
    assert seen.alarms == ["thermal zone cpu-thermal: says nonsense"]
    assert "temperature" not in seen.missing


def test_names_and_numbers_of_zones_are_bounded(root):
    root.put(root.zone / "type", "x" * 200_000)
    for number in range(1, 300):
        root.put(f"sys/class/thermal/thermal_zone{number}/type", f"zone{number}")
        root.put(f"sys/class/thermal/thermal_zone{number}/temp", 40_000)
    eye = Eye(root)
    seen = eye.look()
    assert "x" * 40 in seen.zones
    assert len(seen.zones) == 64
    assert "236 more thermal zones" in seen.missing
    for look in range(5):
        for number in range(300):
            root.put(f"sys/class/thermal/thermal_zone{number}/type", f"{look}-{number}")
        seen = eye.look()
    assert len(seen.alarms) <= 64


def test_the_sampler_tells_a_bounded_number_of_alarms(root):
    zones = [f"none{number}" for number in range(100)]
    sampler = Sampler(str(root.path), 10, lambda: None, zones)
    try:
        assert len(sampler.look().alarms) == 17
    finally:
        sampler.stop()


def test_a_sensor_that_vanishes(root):
    eye = Eye(root)
    eye.look()
    (root.zone / "temp").unlink()
    assert "thermal zone cpu-thermal: cannot be read" in eye.look().alarms[0]
    (root.zone / "type").unlink()
    root.zone.rmdir()
    assert eye.look().alarms == ["thermal zone cpu-thermal: vanished"]
    assert eye.look().temperature_c is None


def test_a_directory_where_a_file_should_be(root):
    (root.zone / "temp").unlink()
    (root.zone / "temp").mkdir()
    assert Eye(root).look().temperature_c is None


def test_zones_by_type_the_hottest_of_each(root):
    for number, (kind, value) in enumerate([("cpu-thermal", 61000), ("gpu", 90000), ("wifi", "-")], 3):
        zone = root.path / f"sys/class/thermal/thermal_zone{number}"
        root.put(zone / "type", kind)
        root.put(zone / "temp", value)
    seen = Eye(root).look()
    assert seen.zones == {"cpu-thermal": 61.0, "gpu": 90.0}
    assert seen.temperature_c == 90.0
    assert "thermal zone wifi" in seen.missing  # a radio that is off: absent, no alarm
    assert seen.alarms == []
    assert Eye(root, ["cpu-thermal"]).look().temperature_c == 61.0
    assert Eye(root, ["cpu"]).look().alarms == ["no thermal zone of type 'cpu' (watchdog.heat.zones)"]


def test_now_bits_and_never_the_sticky_ones(root):
    for bits, expected in [
        (0x50000, (False, False, False, False)),
        (0x50005, (True, False, True, False)),
        (0xA, (False, True, False, True)),
        (0xF0000, (False, False, False, False)),
    ]:
        root.throttled(bits)
        seen = Eye(root).look()
        assert (seen.throttled, seen.soft_limit, seen.under_voltage, seen.capped) == expected
    root.put(root.bits, "hello")
    eye = Eye(root)
    assert eye.look().alarms == ["throttle bits: nonsense"]
    assert eye.look().throttled is None


def test_under_voltage_by_hwmon(root):
    root.bits.unlink()
    root.put("sys/class/hwmon/hwmon3/name", "rpi_volt")
    root.put("sys/class/hwmon/hwmon3/in0_lcrit_alarm", 1)
    root.put("sys/class/hwmon/hwmon1/name", "cpu_thermal")
    assert Eye(root).look().under_voltage is True


def test_a_file_without_end_is_read_up_to_a_bound(root):
    endless = root.path / "proc/meminfo"
    with endless.open("r+b") as file:
        file.truncate(1 << 30)
    began = time.process_time()
    seen = Eye(root).look()
    assert seen.memory_available == 2000 * MB  # what stands at its beginning
    assert time.process_time() - began < 0.5


def test_psi_and_control_groups(root):
    root.psi(33.5)
    assert Eye(root).look().psi_some10 == 33.5
    root.put("proc/self/cgroup", "0::/a/b")
    root.put("sys/fs/cgroup/cgroup.controllers", "cpu memory")
    root.put("sys/fs/cgroup/a/b/memory.current", 500 * MB)
    root.put("sys/fs/cgroup/a/b/memory.max", "max")
    root.put("sys/fs/cgroup/a/memory.current", 900 * MB)
    root.put("sys/fs/cgroup/a/memory.max", 1000 * MB)
    root.put("sys/fs/cgroup/a/memory.stat", f"anon 1\nactive_file {300 * MB}\ninactive_file {100 * MB}")
    seen = Eye(root).look()
    assert (seen.cgroup_current, seen.cgroup_max) == (500 * MB, 1000 * MB)  # its page cache is not held against it
    root.put("sys/fs/cgroup/cgroup.controllers", "cpu")
    assert "cgroup memory" in Eye(root).look().missing


def test_control_groups_version_1(root):
    root.put("proc/self/cgroup", "5:cpu:/\n4:memory:/x")
    group = root.path / "sys/fs/cgroup/memory/x"
    root.put(group / "memory.usage_in_bytes", 100 * MB)
    root.put(group / "memory.limit_in_bytes", 9223372036854771712)
    assert (Eye(root).look().cgroup_current, Eye(root).look().cgroup_max) == (100 * MB, None)
    root.put(group / "memory.limit_in_bytes", 200 * MB)
    root.put(group / "memory.stat", f"total_active_file {60 * MB}")
    assert (Eye(root).look().cgroup_current, Eye(root).look().cgroup_max) == (40 * MB, 200 * MB)


def test_the_worker_whatever_its_name(root):
    root.put("proc/77/stat", f"77 (a) R 1) ({'x' * 5}) S 1 2 3 4 5 6 7 8 4321 9 9")
    root.put("proc/77/status", "Name:\tx\nRssAnon:\t  2048 kB\nVmSwap:\t  1024 kB")
    seen = Eye(root).look(77)
    assert (seen.worker_anon, seen.worker_swap, seen.major_faults) == (2 * MB, MB, 4321)
    assert Eye(root).look(78).worker_anon is None


def test_the_real_process():
    seen = MemorySensors("/").read(os.getpid(), [], [])
    assert seen["worker_anon"] > 1 << 20
    assert seen["major_faults"] >= 0


def test_the_sampler_tells_and_stops(root):
    told = threading.Event()
    sampler = Sampler(str(root.path), 0.01, told.set, [])
    assert told.wait(10)
    seen = sampler.take()
    assert seen[0].temperature_c == 50.0
    assert sampler.overdue(time.monotonic()) is None
    sampler.stop()
    assert not sampler._thread.is_alive()


def test_a_file_that_hangs_stops_the_thread_and_nothing_else(root):
    (root.zone / "temp").unlink()
    os.mkfifo(root.zone / "temp")
    sampler = Sampler(str(root.path), 0.01, lambda: None, [])
    now = time.monotonic()
    assert sampler.take() == []
    assert sampler.overdue(now) is None
    late = sampler.overdue(now + OVERDUE_S + 0.1)
    assert late is not None
    assert late.temperature_c is None
    assert late.missing == []
    assert "hangs" in late.alarms[0]
    assert sampler.overdue(now + OVERDUE_S + 0.105) is None  # once per interval
    sampler.stop()
    with open(root.zone / "temp", "w", encoding="ascii") as file:  # lets it go
        file.write("44000")
    sampler._thread.join(10)
    assert not sampler._thread.is_alive()
