import struct
from dataclasses import replace

import numpy as np
import pytest

from edged.worker import stateformat
from edged.worker.stateformat import DIGEST, FIXED, Fault, StateFileError
from unit.state_rig import ORIGIN, snapshot

STATE = bytes(range(100))
SNAPSHOT = snapshot(1, 2, 70_000, scope="öne", session=True, public=2, floor=1)
FILE = b"".join(stateformat.encode(ORIGIN, SNAPSHOT, STATE))


def read(data, origin=ORIGIN):
    sizes = stateformat.sizes(data[: FIXED.size], len(data))
    head, state = data[: sizes.head], data[sizes.head : sizes.head + sizes.state]
    found = stateformat.decode_head(head, origin)
    stateformat.check_whole(head, state, data[-DIGEST:])
    return found, state


def fault(data, origin=ORIGIN):
    with pytest.raises(StateFileError) as caught:
        read(data, origin)
    return caught.value.fault


def test_what_is_written_is_read():
    found, state = read(FILE)
    assert found.tokens.tolist() == [1, 2, 70_000]
    assert found.tokens.dtype == np.int32
    assert (found.scope, found.session, found.public, found.floor) == ("öne", True, 2, 1)
    assert state == STATE


def test_every_flipped_bit_is_seen():
    for place in range(len(FILE)):
        for bit in range(8):
            damaged = bytearray(FILE)
            damaged[place] ^= 1 << bit
            fault(bytes(damaged))


def test_every_shorter_and_any_longer_file_is_seen():
    assert {fault(FILE[:length]) for length in range(len(FILE))} == {Fault.TRUNCATED}
    assert fault(FILE + b"\0") == Fault.TRAILING


def test_damage_is_told_from_what_is_foreign():
    assert fault(FILE, replace(ORIGIN, model="other")) == Fault.MODEL
    assert fault(FILE, replace(ORIGIN, context="q8_0")) == Fault.CONTEXT
    assert fault(FILE, replace(ORIGIN, build="build 2")) == Fault.BUILD
    assert fault(FILE[:8] + b"\2" + FILE[9:]) == Fault.VERSION
    assert fault(b"GGUF" + FILE[4:]) == Fault.MAGIC
    assert [f for f in Fault if f.foreign] == [Fault.VERSION, Fault.MODEL, Fault.CONTEXT, Fault.BUILD]


def test_absurd_numbers_cost_nothing():
    """They are held against the file's size, in Python's integers: nothing wraps around."""
    fixed = FIXED.pack(stateformat.MAGIC, 1, 0, *[2**32 - 1] * 7, 2**64 - 1)
    with pytest.raises(StateFileError, match="truncated"):
        stateformat.sizes(fixed, 2**40)


@pytest.mark.parametrize(("public", "floor", "tokens"), [(4, 0, [1, 2, 3]), (0, 4, [1, 2, 3]), (0, 0, [])])
def test_a_right_checksum_over_impossible_content_is_not_enough(public, floor, tokens):
    made = snapshot(*tokens, public=public, floor=floor)
    assert fault(b"".join(stateformat.encode(ORIGIN, made, STATE))) == Fault.CONTENT


def test_a_text_that_is_no_text_and_a_token_beyond_all():
    def resealed(head_body):
        head = head_body + stateformat.digest([head_body])
        return head + STATE + stateformat.digest([head, STATE])

    body = FILE[: stateformat.sizes(FILE[: FIXED.size], len(FILE)).head - DIGEST]
    assert fault(resealed(body.replace("ö".encode(), b"\xff\xff"))) == Fault.CONTENT
    assert fault(resealed(body[:-4] + struct.pack("<I", 2**31))) == Fault.CONTENT
