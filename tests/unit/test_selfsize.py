"""The daemon's own size follows what it takes and gives back."""

from __future__ import annotations

import mmap

from edged.system.selfsize import SelfSize

MB = 1 << 20


def test_it_follows_memory_that_is_taken_and_given_back() -> None:
    size = SelfSize()
    before = size.read()
    with mmap.mmap(-1, 50 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"x" * (50 * MB))
        full = size.read()
    after = size.read()
    size.close()
    assert 1 * MB < before < full - 45 * MB
    assert after < full - 45 * MB


def test_a_file_that_cannot_be_read_is_nothing_and_no_trouble() -> None:
    size = SelfSize()
    size.close()
    assert size.read() == 0
