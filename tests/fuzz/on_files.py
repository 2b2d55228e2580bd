"""Targets: files that edged reads and others may have damaged. GGUF headers, journal, snapshots, checkpoints, small
JSON files. None of them may raise; a GGUF file may be refused."""

from __future__ import annotations

import os
from pathlib import Path

from unit.rig import Rig

from edged.broker.ledger import image
from edged.broker.story import Story, merged
from edged.errors import ModelFileError
from edged.journal import format as journal_format
from edged.models import checked, partial
from edged.system import gguf, need
from edged.watchdog import preflight
from edged.worker import stateformat
from edged.worker.checkdir import CheckDir
from edged.worker.statedir import StateDir
from edged.worker.stateformat import Origin

from .scratch import empty, scratch

GGUF_ERRORS = (ModelFileError,)
ORIGIN = Origin("model", "f16 full", "build 1")
PROMPT = list(range(12))
KNOWN = [*PROMPT, *range(100, 120)]


def gguf_header(data: bytes) -> str:
    path = scratch() / "m.gguf"
    path.write_bytes(data)
    header = gguf.check(str(path))
    assert header.file_bytes == len(data) >= header.data_bytes
    numbers = [getattr(header, name) for name in header.__struct_fields__]
    assert all(number >= 0 for number in numbers if isinstance(number, int)), header
    for kv_type in need.KV_BYTES:
        assert need.estimate(header, context=4096, sequences=4, batch=128, kv_type=kv_type) > len(data)
    return header.architecture


def journal(data: bytes) -> str:
    """What is read is what a daemon would bring back, and would write again."""
    contents = journal_format.decode(data)
    assert 0 <= contents.good <= len(data)
    if contents.head is None:
        return f"no head {contents.foreign[:8]}"
    again = journal_format.decode(data[: contents.good])
    assert (repr(again.records), again.good, again.foreign) == (repr(contents.records), contents.good, "")
    head = journal_format.head(contents.head.boot, contents.head.now)
    assert repr(journal_format.decode(head + journal_format.encode(contents.records)).records) == repr(contents.records)
    found = merged(Story().feed(contents.records).found, Story().feed(contents.records[::2]).found.lose())
    found = found.shifted(5.0 - found.last)
    rig = Rig(sequences=0)
    rig.broker.recovered(found, 5.0)
    rig.lives.check()
    image(list(rig.lives.table), list(rig.lives.results), "model")
    soon = all(request.deadline <= 200.0 for request in rig.lives.table)
    rig.wait(200.0)
    assert not (soon and list(rig.lives.table)), "a request without an end"
    kinds = sorted({type(record).__name__ for record in contents.records})
    return " ".join([*kinds, contents.foreign[:8]])


def snapshot(data: bytes) -> str:
    """A KV snapshot: what is taken is whole; what is damaged is out of the way, what is foreign stays."""
    directory = empty("snapshots")
    (directory / "a.kv").write_bytes(data)
    files = StateDir(str(directory), ORIGIN, durable=False)
    assert files.problem == ""
    seen = list(files.scan())
    loaded = files.read("a.kv")
    if loaded is None:
        foreign = bool(seen) and seen[0].snapshot is None
        assert (directory / "a.kv").exists() == foreign
        assert files.set_aside == (not foreign)
        return f"{'foreign' if foreign else 'damaged'} {_fault(data)}"
    assert seen[0].snapshot is not None
    one = loaded.snapshot
    assert max(one.public, one.floor) <= len(one.tokens)
    written = b"".join(map(bytes, stateformat.encode(ORIGIN, one, loaded.state)))
    assert len(written) == len(data)
    return f"whole {one.session}"


def _fault(data: bytes) -> str:
    try:
        sizes = stateformat.sizes(data[: stateformat.FIXED.size], len(data))
        stateformat.decode_head(data[: sizes.head], ORIGIN)
    except stateformat.StateFileError as error:
        return error.fault.name
    return "state"


def checkpoint(data: bytes) -> str:
    """Pieces follow each other from 0, and what is appended goes behind them."""
    directory = empty("checkpoints")
    (directory / "a.ck").write_bytes(data)
    files = CheckDir(str(directory), ORIGIN, whole=False)
    pieces = files.recall("a", PROMPT, KNOWN)
    at = 0
    for piece in pieces:
        assert at == piece.start < piece.same <= piece.stop
        assert piece.end <= len(data)
        at = piece.stop
    assert all(piece.same == piece.stop for piece in pieces[:-1])
    good = [piece for piece in pieces if piece.same == piece.stop]
    state = bytes(pieces[0].state) if pieces else b""
    start = good[-1].stop if good else 0
    if start < len(KNOWN):
        tokens = KNOWN[start : start + 4]
        assert files.append("a", PROMPT, start, tokens, b"new")[0] == start + len(tokens)
        later = CheckDir(str(directory), ORIGIN, whole=False).recall("a", PROMPT, KNOWN)
        assert [(p.start, p.stop) for p in later] == [*((p.start, p.stop) for p in good), (start, start + len(tokens))]
        assert bytes(later[0].state) == (state if good else b"new")
    return f"{len(good)} of {len(pieces)}"


def records(data: bytes) -> str:
    """What lies beside models: the record of a download, sums that are known; and the daemon's memory of hashes."""
    directory = empty("models")
    model = directory / "m.gguf"
    model.write_bytes(b"model")
    for path in (partial.record_path(model), directory / ".checked.json", directory / "hashes.json"):
        path.write_bytes(data)
    partial.part_path(model).write_bytes(b"part of it")
    return f"{_download(model)} {_sums(model)} {_hashes(directory)}"


def _download(model: Path) -> str:
    record = partial.load(model)
    assert len(partial.kept(model)) < 500
    if record is None:
        return "none"
    for place, sha256, boot in ((record.place, record.sha256, record.boot), ("https://x/", None, "b")):
        keep = partial.keep(record, 10, place=place, sha256=sha256, boot=boot)
        assert 0 <= keep <= 10
        with partial.Part(model, keep, record) as part:
            part.write(b"more")
        assert partial.part_path(model).stat().st_size == keep + 4
    return "record"


def _sums(model: Path) -> str:
    known = checked.lookup(model) or checked.earlier(model)
    checked.forget(model)
    checked.remember(model, "ab" * 32, "")
    assert checked.lookup(model) is not None
    return "sum" if known else "none"


def _hashes(directory: Path) -> str:
    cache = str(directory / "hashes.json")
    entries = preflight._read(cache)
    preflight._write(cache, entries)
    assert preflight._read(cache) == entries
    assert os.listdir(directory)
    return f"{len(entries) > 0}"
