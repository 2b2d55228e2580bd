"""Mutators of binary formats: where a checksum would stop every mutation, it is made anew; where counts and lengths
steer the parser, those are what is changed."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from edged.journal import format as journal_format
from edged.worker import checkformat, stateformat

from .mutate import NUMBERS, mutate
from .scratch import scratch

# ---- GGUF

SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def gguf_fields(data: bytes) -> Iterator[tuple[int, str]]:
    """Places of the numbers that steer the reader, as far as it makes sense."""
    at = 24
    yield from ((4, "<I"), (8, "<Q"), (16, "<Q"))
    with contextlib.suppress(struct.error, OverflowError):
        tensors, entries = struct.unpack_from("<QQ", data, 8)
        for _ in range(min(entries, 64)):
            yield at, "<Q"
            at += 8 + struct.unpack_from("<Q", data, at)[0]
            yield at, "<I"
            (kind,) = struct.unpack_from("<I", data, at)
            at += 4
            if kind in SCALARS:
                yield at, "<Q" if SCALARS[kind] == 8 else "<I" if SCALARS[kind] == 4 else "<B"
                at += SCALARS[kind]
            elif kind == 8:
                yield at, "<Q"
                at += 8 + struct.unpack_from("<Q", data, at)[0]
            elif kind == 9:
                yield from ((at, "<I"), (at + 4, "<Q"))
                inner, count = struct.unpack_from("<IQ", data, at)
                at += 12
                for _ in range(min(count, 64) if inner == 8 else 0):
                    yield at, "<Q"
                    at += 8 + struct.unpack_from("<Q", data, at)[0]
                at += 0 if inner == 8 else count * SCALARS.get(inner, 1)
        for _ in range(min(tensors, 16)):
            yield at, "<Q"
            at += 8 + struct.unpack_from("<Q", data, at)[0]
            yield at, "<I"
            (dimensions,) = struct.unpack_from("<I", data, at)
            yield from ((at + 4 + 8 * n, "<Q") for n in range(min(dimensions, 8)))
            at += 4 + 8 * dimensions
            yield from ((at, "<I"), (at + 4, "<Q"))
            at += 12


KEYS = (
    *("general.architecture", "general.name", "general.file_type", "general.alignment", "tokenizer.ggml.tokens"),
    *("llama.context_length", "llama.block_count", "llama.embedding_length", "llama.attention.head_count_kv"),
    *("llama.attention.head_count", "llama.vocab_size", "tokenizer.chat_template", "x", ""),
)


def _string(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _entry(rng: Random) -> bytes:
    """A key that means something, with a value of any type."""
    kind = rng.choice((*SCALARS, 8, 9, 13))
    array = kind == 9
    inner = rng.choice((*SCALARS, 8)) if array else kind
    count = rng.choice((0, 1, 3)) if array else 1
    words = (b"", b"llama", b"64", b"\xff", b"-1")
    raw = (b"\0", b"\xff", b"\x7f", bytes((0, 0, 0xC0, 0x7F) * 2), bytes((0, 0, 0x80, 0x7F) * 2), b"\x80\x01")
    size = SCALARS.get(inner, 4)
    body = b"".join(_string(rng.choice(words)) if inner == 8 else (rng.choice(raw) * 8)[-size:] for _ in range(count))
    head = struct.pack("<IQ", inner, count) if array else b""
    return _string(rng.choice(KEYS).encode()) + struct.pack("<I", kind) + head + body


def gguf(rng: Random, data: bytes) -> bytes:
    """Other numbers where numbers steer; or more entries, before all others or behind the first."""
    out = bytearray(data)
    if rng.random() < 0.4 and len(data) > 24:
        for _ in range(rng.choice((1, 1, 3))):
            at = 24 if rng.random() < 0.3 else min(len(out), 24 + 8 + 20 + 4 + 8 + 5)
            out[at:at] = _entry(rng)
            struct.pack_into("<Q", out, 16, (struct.unpack_from("<Q", out, 16)[0] + 1) % (1 << 64))
        out += b"\0" * 64
    fields = [(at, form) for at, form in gguf_fields(data) if at + struct.calcsize(form) <= len(data)]
    for _ in range(rng.choice((1, 1, 2, 3)) if fields else 0):
        at, form = rng.choice(fields)
        (now,) = struct.unpack_from(form, out, at)
        number = rng.choice((*NUMBERS, now + 1, now - 1, 8, 9, 4, len(data))) % (1 << 8 * struct.calcsize(form))
        struct.pack_into(form, out, at, number)
    return bytes(out)


# ---- journal: frames with checksums around msgpack


def journal(rng: Random, data: bytes) -> bytes:
    frames = _frames(data)
    if not frames:
        return mutate(rng, data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(frames))
        match rng.randrange(6):
            case 0:
                frames.insert(rng.randrange(1, len(frames) + 1), frames[at])
            case 1 if len(frames) > 1:
                del frames[at]
            case 2:
                frames[at] = mutate(rng, frames[at])
            case _:
                with contextlib.suppress(msgspec.DecodeError, ValueError, OverflowError, RecursionError):
                    frames[at] = msgspec.msgpack.encode(bent(rng, msgspec.msgpack.decode(frames[at])))
    return journal_format.MAGIC + b"".join(map(journal_format.frame, frames))


def _frames(data: bytes) -> list[bytes]:
    out, at = [], len(journal_format.MAGIC)
    while at + 8 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        out.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return out


ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**31, 2**32, 2**63 - 1, 2**64 - 1, 0.0, -1.0, 1e300, float("nan"), float("inf")),
    *(
        "",
        "a",
        "tok/x/",
        "uid:1",
        "x" * 300,
        "a b",
        "\0",
        [],
        [[]],
        {},
        {"a": 1},
        b"",
        b"\xff",
        b"{}",
        b"[]",
        [1, 2],
        [-1],
    ),
)


def bent(rng: Random, value: Any) -> Any:
    """One place in a tree of lists and dicts becomes something odd."""
    places = list(_places([value]))
    root, (path, _) = [value], rng.choice(places)
    holder: Any = root
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = rng.choice((*ODD, holder[path[-1]]))
    return root[0]


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield (*path, key), item
        yield from _places(item, (*path, key))


def link(rng: Random, data: bytes) -> bytes:
    """A frame of the link: length, list of messages."""
    try:
        messages = msgspec.msgpack.decode(data[5:])
        return data[:1] + _frame(msgspec.msgpack.encode(bent(rng, messages)))
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        return data[:1] + _frame(mutate(rng, data[5:]))


def _frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


# ---- state files


def snapshot(rng: Random, data: bytes) -> bytes:
    """The head is changed and sealed again; sometimes the sizes in it are made to fit the file."""
    fixed, digest = stateformat.FIXED, stateformat.DIGEST
    if len(data) < fixed.size:
        return data
    magic, version, flags, *sizes, state = fixed.unpack_from(data)
    rest = bytearray(mutate(rng, data[fixed.size :]) if rng.random() < 0.3 else data[fixed.size :])
    if rng.random() < 0.7:
        at = rng.randrange(len(sizes))
        sizes[at] = rng.choice((*NUMBERS[:14], sizes[at] + 1, sizes[at] - 1, (1 << 32) - 1)) % (1 << 32)
    if rng.random() < 0.1:
        version, flags = rng.choice(NUMBERS) % (1 << 32), rng.choice(NUMBERS) % (1 << 32)
    body = sum(sizes[:4]) + 4 * sizes[4]
    if body > len(rest):
        return fixed.pack(magic, version, flags, *sizes, state) + bytes(rest)
    state = max(0, len(rest) - body - 2 * digest)
    head = fixed.pack(magic, version, flags, *sizes, state) + bytes(rest[:body])
    head += stateformat.digest([head])
    tail = bytes(rest[body + digest : body + digest + state])
    return head + tail + stateformat.digest([head, tail])


def checkpoint(rng: Random, data: bytes) -> bytes:
    """Records with other numbers in them, sealed again; the head stays, or nothing would be read."""
    fixed, record, digest = checkformat._FIXED, checkformat._RECORD, checkformat.DIGEST
    try:
        _, _, _, *texts, _ = fixed.unpack_from(data)
        at = fixed.size + digest + sum(texts)
        key, out = data[at : at + digest], [data[: at + digest]]
        at += digest
        while at < len(data):
            magic, start, stop, size = record.unpack_from(data, at)
            ids = data[at + record.size : at + record.size + 4 * max(0, stop - start)]
            state = data[at + record.size + len(ids) : at + record.size + len(ids) + size]
            at += record.size + len(ids) + size + digest
            if rng.random() < 0.3:
                start, stop, size = (rng.choice((n, n + 1, n - 1, *NUMBERS)) % (1 << 32) for n in (start, stop, size))
            if rng.random() < 0.3:
                ids = mutate(rng, ids)
            first = record.pack(magic, start, stop, size) + ids
            out += [first, state, checkformat._seal(key, first, state)]
            if rng.random() < 0.1:
                out += out[-3:]
    except struct.error:
        return mutate(rng, data)
    return b"".join(out)


# ---- SQLite: a sound file with odd values in it

COLUMNS = {
    "session": ("identity", "name", "head", "window", "next", "bytes", "updated"),
    "turn": ("number", "id", "digest", "messages", "reply", "bytes"),
}
CELLS = (
    *(
        "''",
        "'x'",
        "0",
        "-1",
        "1e300",
        "9223372036854775807",
        "-9223372036854775808",
        "x''",
        "x'ff'",
        "CAST(x'ff' AS TEXT)",
    ),
    *("'[]'", "'{}'", "CAST('[]' AS BLOB)", "CAST('{}' AS BLOB)", "CAST('[1]' AS BLOB)", "zeroblob(70000)", "'1.5'"),
    *("""CAST('[{"role":"user","content":"a"}]' AS BLOB)""", """CAST('{"text":1,"finish_reason":[]}' AS BLOB)"""),
)


def database(rng: Random, data: bytes) -> bytes:
    path = scratch() / "mutated.db"
    path.write_bytes(data.partition(b"\n--wal--\n")[0])
    unusable = (sqlite3.Error, UnicodeDecodeError)  # the latter: of a message that quotes the file
    with contextlib.suppress(*unusable), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        for _ in range(rng.choice((1, 1, 2, 3))):
            table = rng.choice(list(COLUMNS))
            column = rng.choice(COLUMNS[table])
            with contextlib.suppress(*unusable):
                db.execute(f"UPDATE OR IGNORE {table} SET {column} = {rng.choice(CELLS)}")
        if rng.random() < 0.05:
            db.execute(f"PRAGMA user_version={rng.choice((0, 1, 2, -1))}")
        if rng.random() < 0.05:
            db.execute(rng.choice(("DROP TABLE turn", "DROP INDEX turn_id", "CREATE VIEW x AS SELECT 1")))
    return path.read_bytes()
