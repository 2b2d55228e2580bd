"""What the worker relies on in llama.cpp's memory, for each kind of model: an update that changes it fails here.

    kind            trim      copy of a part          a state holds
    attention       yes       yes                     everything
    sliding window  yes       yes                     of the window layers: the last window only
    recurrent       refused   copies the whole tail   the tail: one size at any length
    hybrid          refused   the two halves differ   attention: everything; recurrent: the tail

Words: *trim* is `seq_rm(seq, p, -1)`; the *tail* is the one state that a recurrent layer has of a sequence, after its
last token. Where something fails silently the test says so: there llama.cpp does not protect the worker.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from memory_rig import Memory
from tiny_models import ATTENTION, KINDS, WINDOW, tiny

from edged.worker import llama

PARTIAL_ONLY = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
NO_TRIM = tuple(kind for kind in KINDS if kind not in ATTENTION)
HYBRID = tuple(kind for kind in NO_TRIM if kind != "mamba")
PROMPT = [int(token) for token in np.random.default_rng(3).integers(0, 256, 100)]
NEXT = 65
EMPTY = (-1, -1)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=KINDS)
def memory(request, models) -> Iterator[Memory]:
    memory = Memory(tiny(request.param, models))
    memory.kind = request.param
    memory.read(0, 0, PROMPT)
    memory.undisturbed = memory.carry_on(0, len(PROMPT), NEXT)
    yield memory
    memory.close()


@pytest.fixture(autouse=True)
def empty(memory):
    memory.clear()


def only(*kinds):
    return pytest.mark.parametrize("memory", kinds, indirect=True)


def goes_on_undisturbed(memory, seq, at=None) -> bool:
    """Tokens and logits, bit for bit, as when nothing had happened to the sequence."""
    written, logits = (at or memory).carry_on(seq, len(PROMPT), NEXT)
    return written == memory.undisturbed[0] and np.array_equal(logits, memory.undisturbed[1])


def test_the_kind_is_told(memory):
    expected = None if memory.kind in ATTENTION else "recurrent" if memory.kind == "mamba" else "hybrid"
    assert llama.model_memory_kind(memory.model) == expected
    assert memory.window == (WINDOW if memory.kind == "gemma3" else 0)


def test_the_first_position_is_0_with_attention_and_the_last_one_with_a_tail(memory):
    assert memory.span(0) == EMPTY
    memory.read(0, 0, PROMPT)
    assert memory.span(0) == ((0, 99) if memory.kind in ATTENTION else (99, 99))


@only(*ATTENTION)
def test_trimmed_attention_goes_on_undisturbed(memory):
    memory.read(0, 0, [*PROMPT, 1, 2, 3])
    assert memory.remove(0, len(PROMPT), -1)
    assert memory.span(0) == (0, 99)
    assert goes_on_undisturbed(memory, 0)


@only(*NO_TRIM)
def test_a_tail_cannot_be_trimmed_and_stays_whole_when_asked(memory):
    memory.read(0, 0, PROMPT)
    assert not memory.remove(0, 99, -1)
    assert not memory.remove(0, 1, -1)
    assert memory.span(0) == (99, 99)
    assert goes_on_undisturbed(memory, 0)


def test_trimming_at_the_end_does_nothing_and_is_allowed(memory):
    memory.read(0, 0, PROMPT)
    assert memory.remove(0, len(PROMPT), -1)
    assert goes_on_undisturbed(memory, 0)


def test_removing_from_the_middle_claims_success_where_it_cannot_be(memory):
    """Silent: the answer is True with a tail too."""
    memory.read(0, 0, PROMPT)
    assert memory.remove(0, 10, 20)


def test_a_whole_copy_and_its_source_go_on_apart(memory):
    memory.read(0, 0, PROMPT)
    for seq in (1, 2, 3):
        memory.copy(0, seq)
    assert memory.span(3) == memory.span(0)
    memory.read(0, len(PROMPT), [7, 8, 9])
    assert all(goes_on_undisturbed(memory, seq) for seq in (1, 2))
    assert memory.remove(0)
    assert goes_on_undisturbed(memory, 3)


@only(*ATTENTION)
def test_a_part_of_attention_can_be_copied_from_a_sequence_that_goes_on(memory):
    memory.read(0, 0, [*PROMPT, 1, 2, 3])
    memory.copy(0, 1, 0, len(PROMPT))
    memory.read(0, len(PROMPT) + 3, [4])
    assert memory.span(1) == (0, 99)
    assert goes_on_undisturbed(memory, 1)


@only(*NO_TRIM)
def test_a_copied_part_of_a_tail_is_the_whole_tail(memory):
    """Silent. With a hybrid only the span tells it; decoding goes on, wrongly."""
    memory.read(0, 0, [*PROMPT, 1, 2, 3, 4, 5])
    memory.copy(0, 1, 0, len(PROMPT))
    if memory.kind in HYBRID:
        assert memory.span(1) == (104, 99)
        assert not goes_on_undisturbed(memory, 1)
    else:
        assert memory.span(1) == (104, 104)
        with pytest.raises(llama.BadBatchError):
            memory.read(1, len(PROMPT), [NEXT])


def test_a_copy_is_added_to_what_the_target_holds(memory):
    """Silent with attention: the target must be emptied first. A tail is replaced."""
    memory.read(0, 0, PROMPT)
    memory.read(1, 0, [9, 9, 9])
    memory.copy(0, 1)
    assert memory.span(1) == memory.span(0)
    assert goes_on_undisturbed(memory, 1) == (memory.kind == "mamba")


def test_a_state_goes_on_undisturbed_in_a_fresh_context_of_another_size(memory, models):
    memory.read(0, 0, PROMPT)
    state = memory.copy_out(0)
    fresh = Memory(tiny(memory.kind, models), cells=256, sequences=2)
    try:
        assert fresh.copy_in(1, state) == len(state)
        assert goes_on_undisturbed(memory, 1, at=fresh)
    finally:
        fresh.close()


def test_a_state_replaces_what_the_target_holds(memory):
    memory.read(0, 0, PROMPT)
    state = memory.copy_out(0)
    memory.read(1, 0, [5] * 20)
    assert memory.copy_in(1, state) == len(state)
    assert goes_on_undisturbed(memory, 1)


def test_a_quantized_state_goes_on_as_its_source(memory, models):
    quantized = Memory(tiny(memory.kind, models), kv_type="q8_0")
    try:
        quantized.read(0, 0, PROMPT)
        state = quantized.copy_out(0)
        expected, logits = quantized.carry_on(0, len(PROMPT), NEXT)
        assert quantized.copy_in(1, state) == len(state)
        again, same = quantized.carry_on(1, len(PROMPT), NEXT)
        assert (again, logits.tolist()) == (expected, same.tolist())
    finally:
        quantized.close()


def test_the_size_of_a_state(memory):
    """Bytes for 50, 100 and 200 tokens: a tail has one size, attention grows by the token, the window stops."""
    sizes, partial = [], []
    for length in (50, 100, 200):
        memory.clear()
        memory.read(0, 0, (PROMPT * 2)[:length])
        sizes.append(len(memory.copy_out(0)))
        partial.append(len(memory.copy_out(0, PARTIAL_ONLY)))
    if memory.kind == "mamba":
        assert len(set(sizes)) == 1
    else:
        assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0]) > 0
    if memory.kind == "llama":
        assert partial == sizes  # the flag means nothing to plain attention
    else:
        assert len(set(partial)) == 1
        assert partial[0] < sizes[0] or memory.kind == "mamba"


@only(*NO_TRIM)
def test_the_tail_alone_takes_a_sequence_back(memory):
    """PARTIAL_ONLY: set the tail back, then trim what attention has beyond it. Small checkpoints could be had so."""
    memory.read(0, 0, PROMPT)
    tail = memory.copy_out(0, PARTIAL_ONLY)
    memory.read(0, len(PROMPT), [1, 2, 3])
    assert memory.copy_in(0, tail, PARTIAL_ONLY) == len(tail)
    assert memory.remove(0, len(PROMPT), -1)
    assert goes_on_undisturbed(memory, 0)


@only("gemma3")
def test_a_restored_window_can_be_trimmed_only_as_far_as_it_reaches(memory):
    """Silent: beyond that the trim is allowed, and the layers with a window have nothing to look at.

    A sequence may be trimmed to `n` tokens as long as pos_min ≤ max(0, n - window + 1).
    """
    memory.read(0, 0, PROMPT)
    state = memory.copy_out(0)
    for length in (99, 98, 60):
        memory.clear()
        memory.read(1, 0, PROMPT[:length])
        expected = memory.carry_on(1, length, NEXT)[1]
        assert memory.copy_in(0, state)
        first, last = memory.span(0)
        assert (first, last) == (84, 99)
        assert memory.remove(0, length, -1)
        right = np.array_equal(memory.carry_on(0, length, NEXT)[1], expected)
        assert right == (first <= max(0, length - memory.window + 1)), length


@pytest.mark.parametrize("size", [8, 32])
@only(*ATTENTION)
def test_attention_in_pieces_goes_on_undisturbed(memory, size):
    """Checkpoints of new cells only: copied to a scratch sequence, out, in again, and back.

    A piece no longer than the window holds it whole, so that what pieces restore can be trimmed anywhere.
    """
    scratch, pieces = 3, []
    memory.read(0, 0, PROMPT)
    for begin in range(0, len(PROMPT), size):
        memory.copy(0, scratch, begin, begin + size)
        pieces.append(memory.copy_out(scratch))
        memory.remove(scratch)
    memory.clear()
    for piece in pieces:
        assert memory.copy_in(scratch, piece) == len(piece)
        memory.copy(scratch, 0)
        memory.remove(scratch)
    assert (memory.span(0)[0] == 0) == (memory.kind == "llama" or size <= memory.window)
    assert goes_on_undisturbed(memory, 0)


def test_a_state_cut_short_is_refused_and_leaves_the_sequence_empty(memory):
    memory.read(0, 0, PROMPT)
    state = memory.copy_out(0)
    assert memory.copy_in(0, state[:-7]) == 0
    assert memory.span(0) == EMPTY


def test_bytes_after_a_state_are_ignored(memory):
    """Silent: the number of bytes that were read has to be compared."""
    memory.read(0, 0, PROMPT)
    state = memory.copy_out(0)
    assert memory.copy_in(1, state + b"more") == len(state)


@only(*(kind for kind in KINDS if kind != "mamba"))  # whose sequences need no room
def test_a_state_without_room_is_refused_and_harms_no_other(memory):
    memory.read(1, 0, PROMPT)
    memory.read(0, 0, (PROMPT * 4)[:380])
    assert memory.copy_in(2, memory.copy_out(0)) == 0
    assert memory.span(2) == EMPTY
    assert goes_on_undisturbed(memory, 1)


def test_a_state_of_another_kv_type_is_refused(memory, models):
    """But with a tail alone it is not: the key of a file has to say it."""
    memory.read(0, 0, PROMPT)
    state = memory.copy_out(0)
    quantized = Memory(tiny(memory.kind, models), kv_type="q8_0")
    try:
        assert (quantized.copy_in(0, state) == 0) == (memory.kind != "mamba")
    finally:
        quantized.close()
