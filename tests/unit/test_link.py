"""The link's framing: whatever way the stream is cut, the same messages come out; a broken peer is an error."""

from __future__ import annotations

import struct
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import link
from edged.messages import (
    Abort,
    Done,
    Gone,
    Loading,
    Message,
    Quit,
    Ready,
    Sampled,
    Sampling,
    Slots,
    Start,
    ThreadPin,
    Tokenize,
)

rids = st.integers(0, 2**40)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ups = st.one_of(
    st.builds(Loading, st.floats(0, 1)),
    st.builds(Sampled, rids, st.lists(st.integers(0, 200_000), max_size=8), texts),
    st.builds(Done, rids, st.sampled_from(["stop", "length"]), st.none() | texts),
    st.builds(Gone, rids),
    st.builds(Slots, *[st.integers(0, 10)] * 6, st.floats(0, 1e6), st.floats(0, 1e6)),
)
downs = st.one_of(
    st.builds(
        Start, rids, st.none() | texts, st.none() | st.lists(st.builds(Message, st.just("user"), texts), max_size=3),
        st.integers(1, 4096), st.lists(texts, max_size=2), st.just(Sampling()),
    ),
    st.builds(Abort, rids),
    st.builds(Tokenize, rids, st.none() | texts, st.none()),
    st.just(Quit()),
)  # fmt: skip


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.lists(ups, max_size=4), max_size=5), st.lists(st.integers(0, 10**6), max_size=30))
def test_any_cut_gives_the_same_messages_up(frames, cuts):
    reader = link.UpReader()
    got = [m for piece in pieces(b"".join(link.encode(*f) for f in frames), cuts) for m in reader.feed(piece)]
    assert got == [m for frame in frames for m in frame]


@given(st.lists(st.lists(downs, max_size=4), max_size=5), st.lists(st.integers(0, 10**6), max_size=30))
def test_any_cut_gives_the_same_messages_down(frames, cuts):
    reader = link.DownReader()
    got = [m for piece in pieces(b"".join(link.encode(*f) for f in frames), cuts) for m in reader.feed(piece)]
    assert got == [m for frame in frames for m in frame]


def test_byte_by_byte():
    reader = link.UpReader()
    ready = Ready(
        "m", "llama", "d", 1, 2, 3, 4, 5, 6, 7, "model", [ThreadPin(9, 0, [0], "decode")], 1.5, 8, "b1", ["w"]
    )  # fmt: skip
    got = [m for byte in link.encode(ready, Loading(1.0)) for m in reader.feed(bytes([byte]))]
    assert got == [ready, Loading(1.0)]


def test_a_frame_over_the_limit_is_refused_before_it_is_collected():
    reader = link.UpReader()
    with pytest.raises(link.LinkError, match=str(link.MAX_FRAME + 1)):
        reader.feed(struct.pack(">I", link.MAX_FRAME + 1))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x90\x90", msgspec.msgpack.encode([["Nonsense", 1]]), msgspec.msgpack.encode([["Done", "x"]])],
)
def test_garbage_is_a_link_error(body):
    with pytest.raises(link.LinkError):
        link.UpReader().feed(struct.pack(">I", len(body)) + body)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(data):
    for reader in (link.UpReader(), link.DownReader()):
        try:
            reader.feed(data)
        except link.LinkError:
            continue


def test_a_message_of_the_other_direction_is_garbage():
    with pytest.raises(link.LinkError):
        link.UpReader().feed(link.encode(Abort(1)))
    with pytest.raises(link.LinkError):
        link.DownReader().feed(link.encode(Loading(0.5)))
