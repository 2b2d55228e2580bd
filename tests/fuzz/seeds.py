"""Writes the seeds in a binary format anew, when that format has changed: `python -m tests.fuzz.seeds`.

Those in text are written by hand. A seed whose name begins with `ok-` is one that its parser takes.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from edged import link
from edged.broker.record import Accepted, Ended, Progressed, Prompted, Standing
from edged.broker.results import Kept
from edged.broker.transcript import Append, Turn
from edged.journal import format as journal_format
from edged.messages import Beat, Done, Generate, Message, Prefilled, Sampled, Sampling, Slots, TokenLogprob
from edged.messages import Prompted as PromptedUp
from edged.transcripts import schema
from edged.transcripts.store import Store
from edged.worker import checkformat, stateformat
from edged.worker.stateformat import Snapshot

from .campaign import HERE
from .on_files import KNOWN, ORIGIN, PROMPT
from .on_transcripts import SESSION, WAL, WHO
from .scratch import empty


def gguf() -> dict[str, bytes]:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def entry(key: str, kind: int, value: bytes) -> bytes:
        return text(key) + struct.pack("<I", kind) + value

    def numbers(*pairs: tuple[str, int]) -> list[bytes]:
        return [entry(key, 4, struct.pack("<I", value)) for key, value in pairs]

    def file(entries: list[bytes], tensors: list[bytes], data: int) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
        return head + b"\0" * (-len(head) % 32) + b"\0" * data

    architecture = entry("general.architecture", 8, text("llama"))
    tensor = text("t") + struct.pack("<IQIQ", 1, 8, 0, 0)
    full = [
        architecture,
        entry("general.name", 8, text("Tiny")),
        *numbers(("general.file_type", 2), ("general.alignment", 32), ("llama.context_length", 512)),
        *numbers(("llama.block_count", 2), ("llama.embedding_length", 64), ("llama.attention.head_count", 4)),
        entry("llama.attention.head_count_kv", 9, struct.pack("<IQ2I", 4, 2, 1, 2)),
        entry("llama.attention.key_length", 10, struct.pack("<Q", 16)),
        entry("llama.rope.freq_base", 6, struct.pack("<f", 10_000.0)),
        entry("tokenizer.ggml.add_bos_token", 7, b"\1"),
        entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("b") + text("c")),
        entry("tokenizer.ggml.scores", 9, struct.pack("<IQ3f", 6, 3, 0, 0, 0)),
        entry("tokenizer.chat_template", 8, text("{{ messages }}")),
    ]
    quantized = text("w") + struct.pack("<I2QIQ", 2, 64, 2, 2, 32)
    return {"ok-smallest": file([architecture], [tensor], 32), "ok-full": file(full, [tensor, quantized], 32 + 72)}


def journal() -> dict[str, bytes]:
    def accepted(rid: int, session: str | None = None) -> Accepted:
        name, turns = f"r{rid}", [Message("user", "hi")]
        plain = Generate(id=name, prompt="hi", stream="pub", max_tokens=8)
        body = plain if session is None else Generate(id=name, messages=turns, session=session)
        mode = False if session else "pub"
        topic = f"tok/{rid:032x}/"
        return Accepted(rid, "uid:1", name, b"d" * 16, body, Sampling(seed=7), 8, 1.0, 60_000, topic, mode, -1)

    prompted = Prompted(1, struct.pack("<3I", 5, 6, 7), 0, [], "file", "tiny", 0, begins=False)
    progressed = [Progressed(1, [8, 9], "héllo", 3, 1.5), Progressed(1, [7], "", 3, 1.6, [b'{"id":7}'])]
    standing = Standing(1, 3, 1, 0, 0, 3, 2, 0, 1.1, 1.2, 1.6, lagged=False)
    body = msgspec.json.encode({"v": 1, "ok": True, "id": "r2", "instance": "i", "text": "t"})
    kept = Kept("uid:1", "r2", b"d" * 16, f"tok/{2:032x}/", 4, body, None, False, False, 60_000, 2.0)
    records = [accepted(1), prompted, *progressed, standing, accepted(2), Ended(2, kept), accepted(3), accepted(4, "s")]
    head = journal_format.head("boot-1", 1.0)
    return {"ok-head": head, "ok-requests": head + journal_format.encode(records)}


def messages() -> dict[str, bytes]:
    some = [Beat(3), PromptedUp(1, b"\1\0\0\0", 0, []), Prefilled(1, 2, 4, 0), Slots(1, 0, 0, 9, 64, 0, 0.5, 1.5)]
    more = [Sampled(1, [4, 5], "hé", [TokenLogprob(4, "h", -0.5, [])]), Done(1, "stop", None)]
    return {"ok-frames": b"\7" + link.encode(*some) + link.encode(*more), "ok-frame": b"\xff" + link.encode(*more)}


def snapshots() -> dict[str, bytes]:
    one = Snapshot(np.arange(5, dtype=np.int32), "uid:1", session=True, public=2, floor=1)
    whole = stateformat.encode(ORIGIN, one, b"state" * 9)
    other = stateformat.encode(stateformat.Origin("other", "f16", "b"), one, b"state")
    return {"ok-whole": b"".join(map(bytes, whole)), "ok-foreign": b"".join(map(bytes, other))}


def checkpoints() -> dict[str, bytes]:
    head, key = checkformat.head(ORIGIN, PROMPT, whole=False)
    parts = [head]
    for start, stop in pairwise((0, 8, 12, 20)):
        parts += map(bytes, checkformat.record(key, start, KNOWN[start:stop], b"state" * (stop - start)))
    return {"ok-head": head, "ok-pieces": b"".join(parts)}


def databases() -> dict[str, bytes]:
    path = empty("seeds") / schema.FILE
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as small:
        small.execute("PRAGMA page_size=512")  # as small as can be: a seed of 4 kB and not of 32
        for migration in schema.MIGRATIONS:
            small.executescript(migration)
        small.execute(f"PRAGMA user_version={schema.VERSION}")
    connection = schema.open_at(str(path))
    store = Store(connection)
    system = msgspec.json.encode([Message("system", "be brief")])
    for number in range(3):
        text = msgspec.json.encode([Message("user", f"{number}"), Message("assistant", "yes")])
        turn = Turn(f"t{number}", b"d" * 16, b"" if number else system, text, b'{"finish_reason":"stop"}', 0)
        store.answer(Append(number, WHO, SESSION, turn, reset=False, limit_bytes=1 << 20))
    wal = Path(f"{path}-wal").read_bytes()
    with_wal = path.read_bytes() + WAL + wal
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    return {"ok-turns": path.read_bytes(), "ok-wal": with_wal}


def main() -> None:
    for name, make in (
        ("gguf", gguf),
        ("journal", journal),
        ("link", messages),
        ("snapshot", snapshots),
        ("checkpoint", checkpoints),
        ("transcripts", databases),
    ):
        directory = HERE / "corpus" / name
        directory.mkdir(parents=True, exist_ok=True)
        for seed, data in make().items():
            (directory / seed).write_bytes(data)


if __name__ == "__main__":
    main()
