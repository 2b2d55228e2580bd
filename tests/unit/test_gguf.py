import contextlib
import hashlib
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edged.errors import ModelFileError
from edged.system import gguf


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def number(key: str, value: int) -> bytes:
    return entry(key, 4, struct.pack("<I", value))


ENTRIES = [
    entry("general.architecture", 8, string("llama")),
    entry("general.name", 8, string("Tiny")),
    number("general.file_type", 2),
    number("llama.context_length", 512),
    number("llama.block_count", 2),
    number("llama.embedding_length", 64),
    number("llama.attention.head_count", 4),
    entry("llama.attention.head_count_kv", 9, struct.pack("<IQ2I", 4, 2, 1, 2)),
    entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + string("a") + string("b") + string("c")),
    entry("tokenizer.chat_template", 8, string("x" * 70_000)),
]
TENSOR = string("w") + struct.pack("<I2QIQ", 2, 64, 2, 2, 0)  # 64 × 2 weights of Q4_0: 4 blocks of 18 bytes


def build(
    entries: list[bytes] = ENTRIES,
    tensors: list[bytes] = [TENSOR],  # noqa: B006
    *,
    data: int = 72,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_entries is None else n_entries,
    )
    head += b"".join(entries) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + b"\0" * data


@pytest.fixture
def check(tmp_path: Path):
    def run(data: bytes) -> gguf.Header:
        path = tmp_path / "m.gguf"
        path.write_bytes(data)
        return gguf.check(str(path))

    return run


def refused(check, data: bytes) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        check(data)
    return caught.value


def test_reads_what_matters(check) -> None:
    h = check(build())
    assert (h.architecture, h.name, h.quantization, h.context_length) == ("llama", "Tiny", "Q4_0", 512)
    assert (h.blocks, h.heads, h.heads_kv, h.vocab, h.tensors, h.parameters) == (2, 4, 2, 3, 1, 128)
    assert h.chat_template
    assert h.kv_bytes_per_cell(2.0) == 2 * 2 * (16 + 16) * 2
    assert h.data_bytes == 72


def test_a_cut_file_is_refused_with_both_sizes(check) -> None:
    whole = build()
    error = refused(check, whole[:-1])
    assert error.kind == ModelFileError.TRUNCATED
    assert f"expected {len(whole)} bytes, found {len(whole) - 1}" in str(error)


def test_every_cut_is_refused(check) -> None:
    whole = build()
    for size in [*range(0, 300, 7), len(whole) // 2, len(whole) - 72]:
        assert refused(check, whole[:size]).kind in (ModelFileError.TRUNCATED, ModelFileError.NOT_GGUF)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GG",
        b"<html>not found</html>",
        build(magic=b"GGML"),
        build(version=1),
        build(version=0x03000000),
        build(n_entries=2**63),
        build(n_tensors=2**63),
        build(n_tensors=0, tensors=[]),
        build([string(b"k") + struct.pack("<I", 99) + b"\0" * 8]),
        build([entry("k", 8, struct.pack("<Q", 2**63))]),
        build([struct.pack("<Q", 2**63)]),
        build([entry("k", 9, struct.pack("<IQ", 8, 2**61))]),
        build([entry("k", 9, struct.pack("<IQ", 4, 2**62))]),
        build([entry("k", 9, struct.pack("<IQ", 9, 1))]),
        build([*ENTRIES, number("general.alignment", 3)]),
        build(tensors=[string("w" * 64) + struct.pack("<I2QIQ", 2, 64, 2, 2, 0)]),
        build(tensors=[string("w") + struct.pack("<I", 5)]),
        build(tensors=[string("w") + struct.pack("<I2QIQ", 2, 64, 2, 4, 0)]),
        build(tensors=[string("w") + struct.pack("<I2QIQ", 2, 33, 2, 2, 0)]),
        build(tensors=[string("w") + struct.pack("<I2QIQ", 2, 2**62, 2**62, 0, 0)]),
    ],
)
def test_nonsense_is_refused(check, data: bytes) -> None:
    assert refused(check, data).kind == ModelFileError.NOT_GGUF


def test_an_unknown_architecture_is_named(check) -> None:
    error = refused(check, build([entry("general.architecture", 8, string("quantumnet"))]))
    assert error.kind == ModelFileError.UNSUPPORTED
    assert "quantumnet" in str(error)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(ModelFileError) as caught:
            gguf.check(str(path))
        assert caught.value.kind == ModelFileError.MISSING


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_are_read_or_refused(check, changes: list[tuple[int, int]]) -> None:
    data = bytearray(build())
    for at, value in changes:
        data[at % len(data)] = value
    with contextlib.suppress(ModelFileError):
        check(bytes(data))


def test_a_vocabulary_longer_than_the_window_is_skipped_right(check) -> None:
    words = [f"word{n}" * (n % 9) for n in range(150_000)]
    tokens = struct.pack("<IQ", 8, len(words)) + b"".join(map(string, words))
    header = check(build([*ENTRIES[:8], entry("tokenizer.ggml.tokens", 9, tokens), number("llama.vocab_size", 7)]))
    assert header.vocab == 7


def test_sha256(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x" * 3_000_000)
    right = hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert gguf.sha256_of(str(path)) == right


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        gguf.check(str(tmp_path / "m.gguf"))


def test_the_daemon_may_import_it() -> None:
    code = "import edged.system.gguf, edged.system.cpu, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "llama_cpp", "zmq"} & set(loaded)
