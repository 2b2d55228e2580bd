import itertools
import os

import pytest

from edged.system import fingerprint as module
from edged.system.fingerprint import BLOCK, END, SAMPLES, fingerprint, spots

SMALL = 2 * END + SAMPLES * BLOCK
SIZES = [0, 1, SMALL, SMALL + 1, SMALL + 999, 100 * END, 5_000_000_019]


@pytest.mark.parametrize("size", SIZES)
def test_it_reads_inside_the_file_without_overlap_and_little(size):
    read = spots(size)
    assert sum(length for _, length in read) <= 3 * END
    assert read[0][0] == 0
    assert sum(read[-1]) == size
    for (offset, length), (following, _) in itertools.pairwise(read):
        assert offset + length <= following


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.gguf"
    with path.open("wb") as out:
        out.truncate(100 * END)  # sparse
    return path


def test_the_same_file_has_the_same_one_wherever_it_lies(file, tmp_path):
    before = fingerprint(str(file))
    assert len(before) == 32
    assert fingerprint(str(file.rename(tmp_path / "other.gguf"))) == before


@pytest.mark.parametrize("place", range(len(spots(100 * END))))
def test_each_block_counts_at_both_ends(file, place):
    offset, length = spots(100 * END)[place]
    seen = {fingerprint(str(file))}
    for at in (offset, offset + length - 1):
        fd = os.open(file, os.O_WRONLY)
        os.pwrite(fd, b"\1", at)
        os.close(fd)
        seen.add(fingerprint(str(file)))
    assert len(seen) == 3


def test_the_size_counts(file):
    before = fingerprint(str(file))
    os.truncate(file, 100 * END + 1)
    assert fingerprint(str(file)) != before


def test_a_small_file_is_read_whole(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"abc")
    one = fingerprint(str(path))
    path.write_bytes(b"xyz")
    assert fingerprint(str(path)) != one
    assert module.spots(3) == [(0, 3)]


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        fingerprint(str(tmp_path / "none"))
