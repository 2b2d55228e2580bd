from pathlib import Path

import pytest

from edged.system import cpu, memory
from edged.system.cpu import Cpu, choose

PI = [Cpu(n, (0, n), 1024) for n in range(4)]
BIG_LITTLE = [Cpu(n, (0, n), 400) for n in range(4)] + [Cpu(n, (1, n), 1024) for n in range(4, 6)]
SMT = [Cpu(0, (0, 0), 0), Cpu(1, (0, 0), 0), Cpu(2, (0, 1), 0), Cpu(3, (0, 1), 0)]


def pick(cpus: list[Cpu], allowed: set[int] | None = None, quota: float | None = None, **more: int) -> cpu.Cores:
    settings = {"reserve": -1, "threads": 0, "prefill_threads": 0} | more
    return choose(cpus, allowed or {c.number for c in cpus}, quota, **settings)


def test_four_cores_leave_one() -> None:
    cores = pick(PI)
    assert (cores.decode, cores.prefill, cores.spare) == ((0, 1, 2), (0, 1, 2), frozenset({3}))


def test_two_cores_leave_none_and_helpers_go_anywhere() -> None:
    cores = pick(PI[:2])
    assert (cores.decode, cores.spare) == ((0, 1), frozenset({0, 1}))


def test_biggest_cores_first() -> None:
    assert pick(BIG_LITTLE, reserve=0, threads=2).decode == (4, 5)
    assert pick(BIG_LITTLE).decode == (4, 5, 0, 1, 2)


def test_one_thread_per_physical_core() -> None:
    assert pick(SMT).decode == (0, 2)
    assert pick(SMT, threads=3).decode == (0, 2, 1)


def test_affinity_and_quota_bound_the_choice() -> None:
    assert pick(PI, allowed={1, 3}).decode == (1, 3)
    assert pick(PI, quota=2.9).decode == (0, 1)
    assert pick(PI, quota=0.5).decode == (0,)


def test_never_below_one_thread() -> None:
    assert pick(PI[:1], reserve=5).decode == (0,)


def test_counts_written_in_the_configuration() -> None:
    cores = pick(PI, threads=2, prefill_threads=4)
    assert (cores.decode, cores.prefill) == ((0, 1), (0, 1, 2, 3))
    more = pick(PI[:2], threads=8)
    assert more.decode == (0, 1)
    assert more.warnings == ("threads: 8 asked for, 2 CPUs allowed",)


def test_cpus_that_the_topology_does_not_know_still_count() -> None:
    assert pick([], allowed={0, 7}).decode == (0, 7)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_reads_the_topology(tmp_path: Path) -> None:
    base = "sys/devices/system/cpu"
    write(tmp_path, f"{base}/online", "0-1,3\n")
    for n, core, key in ((0, 0, "cpu_capacity"), (1, 0, "cpu_capacity"), (3, 1, "cpufreq/cpuinfo_max_freq")):
        write(tmp_path, f"{base}/cpu{n}/topology/core_id", f"{core}\n")
        write(tmp_path, f"{base}/cpu{n}/topology/physical_package_id", "0\n")
        write(tmp_path, f"{base}/cpu{n}/{key}", "1500\n")
    assert cpu.read_cpus(str(tmp_path)) == [Cpu(0, (0, 0), 1500), Cpu(1, (0, 0), 1500), Cpu(3, (0, 1), 1500)]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "250000 100000",
                "sys/fs/cgroup/a/cpu.max": "150000 100000",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        ({"proc/self/cgroup": "2:cpu:/x\n", "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1\n"}, None),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "junk"}, None),
    ],
)
def test_reads_the_quota(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    for path, text in files.items():
        write(tmp_path, path, text)
    assert cpu.read_quota(str(tmp_path)) == expected


def test_reads_an_affinity_back(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/task/7/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-1,5\n")
    assert cpu.affinity_of(7, str(tmp_path)) == [0, 1, 5]
    assert cpu.affinity_of(8, str(tmp_path)) == []
    assert cpu.tasks(str(tmp_path)) == {7}


def test_available_memory_is_the_tighter_of_machine_and_control_group(tmp_path: Path) -> None:
    assert memory.available_bytes(str(tmp_path)) is None
    write(tmp_path, "proc/meminfo", "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 50 kB\n")
    assert memory.available_bytes(str(tmp_path)) == 50 * 1024
    write(tmp_path, "proc/self/cgroup", "0::/a\n")
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    write(tmp_path, "sys/fs/cgroup/a/memory.max", "20000\n")
    write(tmp_path, "sys/fs/cgroup/a/memory.current", "15000\n")
    write(tmp_path, "sys/fs/cgroup/a/memory.stat", "anon 9000\ninactive_file 3000\nactive_file 1000\n")
    assert memory.available_bytes(str(tmp_path)) == 9000
    write(tmp_path, "sys/fs/cgroup/a/memory.max", "max\n")
    assert memory.available_bytes(str(tmp_path)) == 50 * 1024


def test_a_limit_of_an_old_control_group_counts_too(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    write(tmp_path, "proc/self/cgroup", "5:cpu:/\n4:memory:/x\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "100000\n")
    write(tmp_path, "sys/fs/cgroup/memory/x/memory.usage_in_bytes", "90000\n")
    write(tmp_path, "sys/fs/cgroup/memory/x/memory.stat", "total_active_file 30000\ntotal_inactive_file 5000\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{(1 << 63) - 4096}\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", "900000\n")
    assert memory.available_bytes(str(tmp_path)) == 45_000
    assert memory.total_bytes(str(tmp_path)) == 100_000


def test_a_file_without_end_is_read_as_far_as_is_wanted(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemAvailable: 50 kB\n")
    with (tmp_path / "proc/meminfo").open("r+b") as file:
        file.truncate(1 << 40)  # 13 s and 2 GB for the first GiB of it, if it were read
    assert memory.available_bytes(str(tmp_path)) == 50 * 1024
