"""The journal's bytes: whatever a file was cut or changed to, what can be read of it is what was written before."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from edged.broker.record import Progressed, Standing
from edged.journal import format as form

RECORDS = [
    Progressed(1, [1, 2], "héllo", 3, 1.5),
    Standing(1, 4, 1, 0, 0, 3, 2, 0, 0.5, None, None, lagged=False),
    Progressed(1, [7], "", 4, 2.5, [b'{"id":7}']),
]
HEAD = form.head("boot-1", 12.5)
FILE = HEAD + form.encode(RECORDS)
BOUNDS = [len(HEAD) + len(form.encode(RECORDS[:n])) for n in range(len(RECORDS) + 1)]


def test_what_was_written_is_read():
    contents = form.decode(FILE)
    assert contents == form.Contents(form.Head(form.VERSION, "boot-1", 12.5), RECORDS, len(FILE))


def test_every_cut_leaves_whole_records():
    for cut in range(len(FILE)):
        contents = form.decode(FILE[:cut])
        whole = sum(bound <= cut for bound in BOUNDS) - 1
        assert contents.records == RECORDS[: max(whole, 0)]
        assert contents.foreign == ""
        assert (contents.head is None) == (whole < 0)
        assert contents.good in (0, *BOUNDS)


@given(st.integers(len(HEAD), len(FILE) - 1), st.integers(1, 255))
def test_a_changed_byte_ends_it_there(at: int, change: int):
    data = bytearray(FILE)
    data[at] ^= change
    contents = form.decode(bytes(data))
    before = sum(bound <= at for bound in BOUNDS) - 1
    assert contents.records == RECORDS[:before]


@given(st.binary(max_size=200))
def test_garbage_is_read_without_harm(garbage: bytes):
    assert form.decode(garbage).records == []
    assert form.decode(HEAD + garbage).records == []


def test_another_version_and_another_file_are_foreign():
    newer = form.MAGIC + form.frame(msgspec.msgpack.encode([form.VERSION + 1, "x", {"new": 1}])) + form.encode(RECORDS)
    contents = form.decode(newer)
    assert contents.records == []
    assert "version 2" in contents.foreign
    assert form.decode(b"#!/bin/sh\n").foreign
    assert form.decode(form.MAGIC + form.frame(b"\x90")).foreign
    assert form.decode(HEAD + form.frame(msgspec.msgpack.encode(["Unheard", 1])) + form.encode(RECORDS)).foreign


def test_an_empty_file_is_one_that_was_just_begun():
    assert form.decode(b"") == form.Contents(None, [], 0)


def test_zeros_behind_it_are_what_a_file_system_leaves():
    contents = form.decode(FILE + b"\0" * 5000)
    assert contents == form.Contents(form.Head(form.VERSION, "boot-1", 12.5), RECORDS, len(FILE))
