"""A look at a GGUF file's header before anything loads it: plain Python, no numpy, no llama_cpp.

A bad file inside llama.cpp costs the worker (SIGBUS, abort) or, with absurd counts, the board's memory. So every count
and length is held against the bytes that are really there before it is believed; strings that are not asked for are
skipped; nothing is allocated by a number from the file beyond MAX_STRING. The file is read, not mapped: a mapped file
that shrinks is a SIGBUS.

Layout (version 2 and 3, little endian): magic, version u32, tensors u64, entries u64; entries (string key, u32 type,
value); per tensor (string name, u32 n, n × u64 dimension, u32 type, u64 offset); padding to `alignment`; the data,
where offsets begin. Strings are u64 length and bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from typing import BinaryIO, Final

from msgspec import Struct

from edged.errors import ModelFileError
from edged.system.gguf_types import ARCHITECTURES, BLOCKS, FILE_TYPES

MAX_ENTRIES: Final = 65_536
"""Entries and tensors; real files have dozens of the one and up to a few thousand of the other."""

MAX_STRING: Final = 1 << 16
"""Longest string read; longer ones (templates) are skipped, their presence is noted."""

MAX_DIMENSIONS: Final = 4
_MAX_NAME: Final = 64  # GGML_MAX_NAME
_WINDOW: Final = 1 << 20
_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING: Final = 8
_ARRAY: Final = 9

_KEPT: Final = (
    *("general.architecture", "general.name", "general.file_type", "general.alignment", "general.parameter_count"),
    *("context_length", "block_count", "embedding_length", "feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.sliding_window",),
)

Value = int | float | bool | str


class Header(Struct, frozen=True):
    """What the header says; 0 or "" where it says nothing. `heads_kv` is the largest of the layers."""

    architecture: str
    name: str
    quantization: str
    parameters: int
    tensors: int
    file_bytes: int
    data_bytes: int
    context_length: int
    blocks: int
    embedding: int
    feed_forward: int
    heads: int
    heads_kv: int
    key_length: int
    value_length: int
    vocab: int
    chat_template: bool

    def kv_bytes_per_cell(self, bytes_per_value: float) -> int:
        """Keys and values of one token over all layers; an estimate for mixed architectures."""
        head = self.embedding // self.heads if self.heads else 0
        width = (self.key_length or head) + (self.value_length or head)
        return int(self.blocks * self.heads_kv * width * bytes_per_value)


def check(path: str) -> Header:
    """Reads the header and holds it against the file. Raises ModelFileError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a FIFO would be waited for
            raise ModelFileError(ModelFileError.MISSING, f"{path}: not a regular file")
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return _check(path, file, size)
    except OSError as error:
        raise ModelFileError(ModelFileError.MISSING, f"{path}: {error.strerror or error}") from None


def sha256_of(path: str) -> str:
    """The file's SHA-256, read in pieces. Raises ModelFileError (missing)."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(_WINDOW):
                digest.update(block)
    except OSError as error:
        raise ModelFileError(ModelFileError.MISSING, f"{path}: {error.strerror or error}") from None
    return digest.hexdigest()


class _Source:
    """A window that moves over the file; every read is held against the file's size first."""

    def __init__(self, path: str, file: BinaryIO, size: int) -> None:
        self.path, self.size, self._file = path, size, file
        self._block, self._base, self._at = b"", 0, 0

    @property
    def position(self) -> int:
        return self._base + self._at

    @property
    def left(self) -> int:
        return self.size - self.position

    def bad(self, what: str) -> ModelFileError:
        return ModelFileError(ModelFileError.NOT_GGUF, f"{self.path}: {what} at byte {self.position}")

    def short(self, wanted: int) -> ModelFileError:
        """Plausible, but the file ends before it: cut off. Absurd: not a GGUF file at all."""
        if wanted > 1 << 40:
            return self.bad(f"a length of {wanted} bytes in the header")
        return ModelFileError(
            ModelFileError.TRUNCATED,
            f"{self.path}: truncated inside the header: "
            f"expected at least {self.position + wanted} bytes, found {self.size}",
        )

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise self.short(count)
        if self._at + count > len(self._block):
            self._refill(count)
        data = self._block[self._at : self._at + count]
        if len(data) < count:
            raise self.short(count)
        self._at += count
        return data

    def skip(self, count: int) -> None:
        if count > self.left:
            raise self.short(count)
        self._at += count

    def _refill(self, count: int) -> None:
        self._base, self._at = self.position, 0
        self._file.seek(self._base)
        self._block = self._file.read(max(count, _WINDOW)) or b""

    def number(self, form: str) -> int | float | bool:
        value: int | float | bool
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return value

    def count(self, form: str = "<Q") -> int:
        return int(self.number(form))

    def skip_strings(self, count: int) -> None:
        """A vocabulary has 150,000 of them: walk the window without a call per string."""
        while count:
            if len(self._block) - self._at < 8:
                if self.left < 8:
                    raise self.short(8)
                self._refill(8)
            block, at, end = self._block, self._at, len(self._block) - 8
            while count and at <= end:
                at += 8 + int.from_bytes(block[at : at + 8], "little")
                count -= 1
            if at > self.size - self._base:
                raise self.short(at - self._at)
            self._at = at


def _check(path: str, file: BinaryIO, size: int) -> Header:
    source = _Source(path, file, size)
    if size < 4 or source.take(4) != b"GGUF":
        raise ModelFileError(ModelFileError.NOT_GGUF, f"{path}: not a GGUF file (magic GGUF is missing)")
    version = source.count("<I")
    if version not in (2, 3):
        raise ModelFileError(ModelFileError.NOT_GGUF, f"{path}: GGUF version {version}, expected 2 or 3")
    tensors, entries = source.count(), source.count()
    if not 0 < tensors <= MAX_ENTRIES or not 0 < entries <= MAX_ENTRIES:
        raise source.bad(f"{tensors} tensors and {entries} entries (1…{MAX_ENTRIES} each)")

    kept, template = _entries(source, entries)
    architecture = str(kept.get("general.architecture", ""))
    if architecture not in ARCHITECTURES:
        raise ModelFileError(
            ModelFileError.UNSUPPORTED, f"{path}: architecture {architecture[:64]!r} is not known to this llama.cpp"
        )
    data, parameters = _tensors(source, tensors)
    alignment = kept.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise source.bad(f"alignment {str(alignment)[:32]!r} is not a power of two")
    expected = -(-source.position // alignment) * alignment + data
    if expected > size:
        raise ModelFileError(
            ModelFileError.TRUNCATED, f"{path}: truncated: expected {expected} bytes, found {size} bytes"
        )
    return _header(kept, template=template, tensors=tensors, parameters=parameters, file_bytes=size, data_bytes=data)


def _entries(source: _Source, count: int) -> tuple[dict[str, Value], bool]:
    kept: dict[str, Value] = {}
    template = False
    for _ in range(count):
        length = source.count()
        if length > MAX_STRING:
            raise source.bad(f"a key of {length} bytes")
        key = source.take(length).decode("utf-8", "replace")
        kind = source.count("<I")
        short = key if key.startswith("general.") else key.partition(".")[2]
        template |= key == "tokenizer.chat_template"
        value = _value(source, kind, keep=short in _KEPT)
        if value is not None and short in _KEPT:
            kept[short] = value
        if key == "tokenizer.ggml.tokens" and isinstance(value, int):
            kept["vocab_size"] = value
    return kept, template


def _value(source: _Source, kind: int, *, keep: bool) -> Value | None:
    """A scalar or a short string; of an array of numbers the largest, if it is to be kept; else its length."""
    if kind in _SCALARS:
        return source.number(_SCALARS[kind])
    if kind == _STRING:
        length = source.count()
        if keep and length <= MAX_STRING:
            return source.take(length).decode("utf-8", "replace")
        source.skip(length)
        return None
    if kind != _ARRAY:
        raise source.bad(f"a value of unknown type {kind}")
    inner, length = source.count("<I"), source.count()
    if inner == _STRING:
        if length * 8 > source.left:
            raise source.short(length * 8)
        source.skip_strings(length)
        return length
    if inner not in _SCALARS:
        raise source.bad(f"an array of unknown type {inner}")
    form = _SCALARS[inner]
    if keep and 0 < length <= MAX_ENTRIES:
        return max(source.number(form) for _ in range(length))
    source.skip(length * struct.calcsize(form))
    return length


def _tensors(source: _Source, count: int) -> tuple[int, int]:
    """Bytes of data up to the end of the last tensor, and the number of weights."""
    end = parameters = 0
    for _ in range(count):
        length = source.count()
        if length >= _MAX_NAME:
            raise source.bad(f"a tensor name of {length} bytes")
        source.skip(length)
        dimensions = source.count("<I")
        if dimensions > MAX_DIMENSIONS:
            raise source.bad(f"a tensor of {dimensions} dimensions")
        shape = [source.count() for _ in range(dimensions)]
        kind, offset = source.count("<I"), source.count()
        if kind not in BLOCKS:
            raise source.bad(f"a tensor of unknown type {kind}")
        _, block, size = BLOCKS[kind]
        weights = 1
        for extent in shape:
            weights *= extent
        row = shape[0] if shape else 1
        if row % block or weights >= 1 << 63 or offset >= 1 << 63:
            raise source.bad("a tensor of impossible shape or place")
        end = max(end, offset + weights // block * size)
        parameters += weights
    return end, parameters


def _header(
    kept: dict[str, Value], *, template: bool, tensors: int, parameters: int, file_bytes: int, data_bytes: int
) -> Header:
    def number(key: str) -> int:
        value = kept.get(key, 0)
        return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 53 else 0

    heads = number("attention.head_count")
    return Header(
        architecture=str(kept["general.architecture"]),
        name=str(kept.get("general.name", "")),
        quantization=FILE_TYPES.get(number("general.file_type"), "") if "general.file_type" in kept else "",
        parameters=parameters,
        tensors=tensors,
        file_bytes=file_bytes,
        data_bytes=data_bytes,
        context_length=number("context_length"),
        blocks=number("block_count"),
        embedding=number("embedding_length"),
        feed_forward=number("feed_forward_length"),
        heads=heads,
        heads_kv=number("attention.head_count_kv") or heads,
        key_length=number("attention.key_length"),
        value_length=number("attention.value_length"),
        vocab=number("vocab_size"),
        chat_template=template,
    )
