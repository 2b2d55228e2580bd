import os

import pytest

from edged.system.ramdir import file_system, ram_dir

PI = """\
24 31 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
27 31 0:25 / /run rw,nosuid,nodev,noexec,relatime shared:5 - tmpfs tmpfs rw,size=388936k,mode=755
31 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw
33 26 0:28 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw
60 27 0:50 / /run/user/1000 rw,nosuid,nodev,relatime shared:200 - tmpfs tmpfs rw,size=388932k,mode=700,uid=1000
70 31 0:60 / /srv/my\\040disk rw - ext4 /dev/sda1 rw
71 31 0:61 / /runner rw - ext4 /dev/sda2 rw
72 27 0:62 / /run/over rw - tmpfs tmpfs rw
73 72 0:63 / /run/over rw - ext4 /dev/sda3 rw
"""
CONTAINER = """\
600 500 0:70 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a,upperdir=/b
601 600 0:71 / /dev/shm rw,nosuid,nodev,noexec - tmpfs shm rw,size=65536k
"""
OLD_RAMDISK = "1 1 0:2 / / rw - rootfs rootfs rw\nnonsense\n5 1 0:9 / /tmp\n"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/run/edged", "tmpfs"),
        ("/run/user/1000/edged", "tmpfs"),
        ("/run", "tmpfs"),
        ("/runner/edged", "ext4"),
        ("/home/pi/run", "ext4"),
        ("/srv/my disk/edged", "ext4"),
        ("/dev/shm/x", "tmpfs"),
        ("/run/over/edged", "ext4"),
    ],
)
def test_the_longest_mount_point_above_a_path_counts_and_the_last_of_equals(path, expected):
    assert file_system(PI, path) == expected


def test_lines_that_are_none_are_passed_over():
    assert file_system(OLD_RAMDISK, "/tmp/x") == "rootfs"
    assert file_system("", "/tmp/x") == ""


@pytest.fixture
def root(tmp_path):
    def make(mountinfo):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/mountinfo").write_text(mountinfo)
        return str(tmp_path)

    return make


def test_the_runtime_directory_if_it_is_ram(root):
    assert ram_dir("/run/edged-of-a-test", root(PI)) == "/run/edged-of-a-test/ram"


def test_else_a_place_of_its_own_in_shared_memory(root):
    place = root(CONTAINER)
    one, other = ram_dir("/tmp/edged-a", place), ram_dir("/tmp/edged-b", place)
    assert os.path.dirname(one) == os.path.dirname(other) == f"/dev/shm/edged-{os.getuid()}"
    assert one != other
    assert one == ram_dir("/tmp/edged-a/", place)


def test_links_are_followed(root, tmp_path):
    place = root(PI)
    (tmp_path / "link").symlink_to("/run/user/1000")
    assert ram_dir(str(tmp_path / "link" / "edged"), place) == "/run/user/1000/edged/ram"


def test_nowhere_when_there_is_no_ram_or_it_is_unknown(root, tmp_path):
    assert ram_dir("/tmp/edged", root(OLD_RAMDISK)) == ""
    assert ram_dir("/tmp/edged", str(tmp_path / "without")) == ""


def test_here_and_now():
    """Linux boxes have /dev/shm, and a container too."""
    assert ram_dir("/run/edged") != ""
