"""How much memory a model will want, from its header. Pure.

An estimate, and a lower one: weights that are repacked for the CPU come on top, as anonymous memory of up to the
file's size, while the mapped pages they were made from can be dropped by the kernel.
"""

from __future__ import annotations

from typing import Final

from edged.system.gguf import Header

KV_BYTES: Final = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes per value: block size ÷ block length of the ggml type."""

IDLE_SEQUENCES: Final = 8
"""Sequences beyond those that may be busy: conversations that stay resident. With attention a number costs a row of
logits in the compute buffer (0.2 MB with 49k tokens)."""

SCRATCH: Final = 1
"""One more number, by which cells are copied out in pieces."""

PROCESS_BYTES: Final = 64 << 20
"""Python, numpy, jinja2 and the library, measured 46 MB after the import on x86-64, and some room."""


def estimate(header: Header, *, context: int, sequences: int, batch: int, kv_type: str) -> int:
    """Bytes wanted: file, KV cache, compute buffer (logits of every sequence, a batch's widest layer), process."""
    logits = 2 * 4 * (sequences + IDLE_SEQUENCES + SCRATCH) * header.vocab
    layer = 4 * batch * (4 * header.embedding + 2 * header.feed_forward)
    cells = min(context, header.context_length or context)
    return header.file_bytes + kv_bytes(header, cells, kv_type) + logits + layer + PROCESS_BYTES


def kv_bytes(header: Header, cells: int, kv_type: str) -> int:
    return header.kv_bytes_per_cell(KV_BYTES[kv_type]) * cells
