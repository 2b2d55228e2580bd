"""The catalog's figures, what a source may look like, and what is said about room and progress."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.models import catalog, embedded, room, sources
from edged.models.meter import Meter, duration
from edged.models.partial import Record, keep
from edged.models.sources import SourceError, check_url, parse
from edged.system import gguf, memory
from edged.system.need import estimate

# blocks, embedding, feed forward, heads, KV heads, head size, vocabulary, trained context: from the models' own cards
GEOMETRY = {
    "smollm2-135m": (30, 576, 1536, 9, 3, 64, 49_152, 8192),
    "qwen2.5-0.5b": (24, 896, 4864, 14, 2, 64, 151_936, 32_768),
    "qwen2.5-0.5b-q4_0": (24, 896, 4864, 14, 2, 64, 151_936, 32_768),
    "qwen3-0.6b-q4_0": (28, 1024, 3072, 16, 8, 128, 151_936, 40_960),
}


def header(entry):
    blocks, embedding, feed_forward, heads, heads_kv, head, vocab, context = GEOMETRY[entry.name]
    return gguf.Header(
        architecture="any", name="", quantization=entry.quantization, parameters=0, tensors=0, file_bytes=entry.size,
        data_bytes=0, context_length=context, blocks=blocks, embedding=embedding, feed_forward=feed_forward,
        heads=heads, heads_kv=heads_kv, key_length=head, value_length=head, vocab=vocab, chat_template=True,
    )  # fmt: skip


@pytest.mark.parametrize("entry", catalog.ENTRIES, ids=lambda e: e.name)
def test_an_entry(entry):
    assert entry.memory == estimate(header(entry), context=4096, sequences=4, batch=128, kv_type="f16")
    assert sources.file_name(entry.file) == entry.file
    assert entry.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert entry.quantization.lower() in entry.file.lower()
    assert entry.licence == "Apache-2.0"
    assert catalog.by_name(entry.name.upper()) is catalog.by_file(entry.file.upper()) is entry


def test_entries_differ():
    for attribute in ("name", "file", "sha256"):
        assert len({getattr(e, attribute) for e in catalog.ENTRIES}) == len(catalog.ENTRIES)


def test_the_embedded_default_is_the_same_file():
    entry = catalog.ENTRIES[0]
    source = embedded.Source()
    assert (entry.file, entry.size, entry.sha256) == (source.name, source.size, source.sha256)


# ---- sources ---------------------------------------------------------------------------------------------------


def test_a_name_of_the_catalog():
    remote = parse("Qwen2.5-0.5B")
    assert remote.url == (
        "https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF/resolve/"
        "9217f5db79a29953eb74d5343926648285ec7e67/qwen2.5-0.5b-instruct-q4_k_m.gguf"
    )
    assert (remote.size, remote.known_by, remote.hub) == (491_400_032, "the catalog", True)


@pytest.mark.parametrize(
    ("text", "url", "file"),
    [
        ("hf:o/r/m.gguf", "https://huggingface.co/o/r/resolve/main/m.gguf", "m.gguf"),
        ("hf:o/r.x/sub/M.GGUF@refs/pr/1", "https://huggingface.co/o/r.x/resolve/refs%2Fpr%2F1/sub/M.GGUF", "M.GGUF"),
        ("https://h/a/m.gguf?sig=s#x", "https://h/a/m.gguf?sig=s#x", "m.gguf"),
    ],
)
def test_a_source(text, url, file):
    remote = parse(text)
    assert (remote.url, remote.file, remote.sha256) == (url, file, None)
    assert "sig" not in remote.place


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nix", "is no model of the catalog"),
        ("", "is no model of the catalog"),
        ("hf:o/m.gguf", "expected hf:OWNER/REPO/FILE.gguf"),
        ("hf:o/r/../m.gguf", "expected hf:OWNER"),
        ("hf:o/r/m.gguf@a..b", "expected hf:OWNER"),
        ("hf:o/r/m.gguf?x", "expected hf:OWNER"),
        ("hf:o/r/m.safetensors", "ends with .gguf"),
        ("hf:o/r/m-00001-of-00002.gguf", "llama-gguf-split --merge"),
        ("https://h/m", "ends with .gguf"),
        ("https://h/.gguf", "ends with .gguf"),
        ("https://h/%2e%2e%2fm.gguf", "ends with .gguf"),
        ("https://user:secret@h/m.gguf", "password"),
        ("https://h:x/m.gguf", "[Pp]ort"),
        ("https://h/\x1b[2Jm.gguf", "ASCII characters"),
    ],
)
def test_no_source(text, words):
    with pytest.raises(SourceError, match=words):
        parse(text)


@given(st.text(max_size=60), st.sampled_from(["", "hf:", "hf:o/r/", "https://h/", "http://"]))
def test_whatever_is_typed_no_file_lands_elsewhere(text, start):
    try:
        remote = parse(start + text)
    except SourceError:
        return
    assert "/" not in remote.file
    assert not remote.file.startswith(".")
    assert remote.file.lower().endswith(".gguf")
    assert "\x00" not in unquote(urlsplit(remote.url).path)


def test_a_sum_that_contradicts_the_catalog():
    with pytest.raises(SourceError, match="the catalog has sha256 74a4"):
        parse("qwen2.5-0.5b", sha256="0" * 64)
    with pytest.raises(SourceError, match="64 hexadecimal"):
        parse("https://h/m.gguf", sha256="12")


@pytest.mark.parametrize("url", ["https://h/m", "http://127.0.0.1/m", "http://localhost:80/m", "http://[::1]/m"])
def test_urls_that_are_allowed(url):
    check_url(url, insecure=False)


@pytest.mark.parametrize("url", ["http://h/m", "http://10.0.0.1/m", "ftp://h/m", "file:///m", "https:///m"])
def test_urls_that_are_not(url):
    with pytest.raises(SourceError):
        check_url(url, insecure=False)


def test_insecure_allows_http_only():
    check_url("http://10.0.0.1/m", insecure=True)
    with pytest.raises(SourceError):
        check_url("ftp://h/m", insecure=True)


# ---- room ------------------------------------------------------------------------------------------------------


def test_disk():
    assert room.disk("d", missing=10, free=room.SPARE_DISK + 10) is None
    assert room.disk("d", missing=11, free=room.SPARE_DISK + 10).fatal


@pytest.mark.parametrize(
    ("size", "need", "total", "available", "fatal"),
    [
        (400, 500, 1000, 600, None),
        (400, 500, 1000, 499, False),
        (400, 500, 499, 499, True),
        (810, 900, 1000, 950, True),  # above 80 %: read again from the card for each token
        (400, 500, None, None, None),
        (400 << 20, None, 1 << 30, 500 << 20, False),
        (900 << 20, None, 1 << 30, 1 << 30, True),
    ],
)
def test_memory(size, need, total, available, fatal):
    finding = room.memory(size, need, total=total, available=available)
    assert (finding.fatal if finding else None) is fatal


def test_total_memory(tmp_path):
    assert memory.total_bytes(str(tmp_path)) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2000 kB\nMemAvailable: 900 kB\n")
    assert memory.total_bytes(str(tmp_path)) == 2_048_000
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a/b"
    group.mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu memory\n")
    for place, most in ((group, "max\n"), (group.parent, "1000000\n")):
        (place / "memory.current").write_text("5000\n")
        (place / "memory.max").write_text(most)
    assert memory.total_bytes(str(tmp_path)) == 1_000_000


# ---- what may be kept of a part ---------------------------------------------------------------------------------

RECORD = Record(place="p", size=100, validator='"v"', sha256=None, flushed=40, boot="b")
SUMMED = Record(place="p", size=100, validator=None, sha256="s", flushed=40, boot="b")


@pytest.mark.parametrize(
    ("record", "length", "place", "sha256", "boot", "kept"),
    [
        (None, 60, "p", None, "b", 0),
        (RECORD, None, "p", None, "b", 0),
        (RECORD, 60, "p", None, "b", 60),
        (RECORD, 60, "p", None, "after a power cut", 40),
        (RECORD, 30, "p", None, "after a power cut", 30),
        (RECORD, 101, "p", None, "b", 0),
        (RECORD, 60, "elsewhere", None, "b", 0),
        (RECORD, 60, "p", "s", "b", 60),
        (SUMMED, 60, "elsewhere", "s", "b", 60),  # a mirror of the same file
        (SUMMED, 60, "p", "another", "b", 0),
        (SUMMED, 60, "p", None, "b", 60),
        (Record(place="p", size=100, validator=None, sha256=None, flushed=40, boot="b"), 60, "p", None, "b", 0),
    ],
)
def test_what_is_kept(record, length, place, sha256, boot, kept):  # noqa: PLR0917
    assert keep(record, length, place=place, sha256=sha256, boot=boot) == kept


# ---- progress --------------------------------------------------------------------------------------------------


def test_a_line_of_progress():
    meter = Meter(total=491_000_000, done=246_000_000, now=0)
    assert meter.line() == "246 of 491 MB (50 %)"
    meter.read(249_100_000, 1.0)
    assert meter.line() == "249 of 491 MB (51 %), 3.1 MB/s, 1:18 left"
    assert meter.bar(80) == "[############............] 249 of 491 MB (51 %), 3.1 MB/s, 1:18 left"
    assert meter.bar(40) == meter.line()[:39]


def test_the_rate_follows_the_last_seconds():
    meter = Meter(total=10_000_000, done=0, now=0)
    for second in range(1, 21):
        meter.read(second * 100_000, second)
    assert meter.rate == pytest.approx(100_000)
    for second in range(21, 41):
        meter.read(2_000_000 + (second - 20) * 1_000, second)
    assert meter.line().split(", ")[1] == "1.0 kB/s"


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 10**6)), max_size=30), st.integers(0, 10**9))
def test_the_line_never_fails(readings, total):
    meter = Meter(total=total, done=0, now=0)
    for done, now in readings:
        meter.read(done, now)
        assert len(meter.bar(60)) < 60
        assert meter.line()


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3600, "1:00:00"), (1e9, "more than 99 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text


# ---- the page --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", catalog.ENTRIES, ids=lambda e: e.name)
def test_the_page_has_the_same_figures(entry):
    page = (Path(__file__).parents[2] / "docs/models.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{entry.name}` |"))
    assert f"| {entry.size:,} | {room.mb(entry.memory)} | {entry.licence} |" in row
    assert entry.quantization in row
