"""The page of `edgectl report`: well-formed, self-contained, escaped, and without what is secret."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.cli.past import past
from edged.cli.report import svg
from edged.cli.report.facts import Facts, Settings, machine
from edged.cli.report.markup import Markup, el, join
from edged.cli.report.page import page
from edged.cli.report.redact import HIDDEN, redacted, sentence
from edged.doctor import Finding, Severity

NOW = 1_790_000_000.0
EVIL = "<script>alert('&\"')</script>\x1b[2J\0"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


class Checked(HTMLParser):
    """Every tag is closed in its turn, nothing is fetched, nothing runs."""

    VOID = ("meta", "br", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        assert tag not in ("script", "link", "img", "iframe", "object", "embed", "base", "form", "a", "use", "image")
        for name, _ in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "href", "xlink:href", "style", "action")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def facts(**fields) -> Facts:
    columns = {
        "level": [0, 1, 1, None, 2],
        "temperature_c": [50.0, 70.0, 71.0, None, 80.0],
        "available_mb": [900, 800, 700, None, 600],
        "worker_mb": [300, 300, 301, None, 302],
        "tokens_per_s": [1, 2, 3, None, 4],
        "queue": [0, 0, 1, None, 9],
        "busy": [1, 1, 1, None, 4],
        "ok": [1, 0, 0, None, 2],
        "errors": [0, 1, 0, None, 0],
        "refused": [0, 0, 0, None, 30],
    }
    events = [
        {"type": "model", "event": "lost", "cause": EVIL, "time": NOW - 30, "n": 0},
        {"type": "service", "event": "started", "version": "1", "time": NOW - 50, "n": 1},
    ]
    status = {
        "state": "ready",
        "ready": True,
        "version": "1",
        "warnings": [EVIL],
        "counters": {"finished_stop": 3, "failed_deadline_exceeded": 2, "refused_busy": 1, "tokens": 99, EVIL: 1},
        "model": {"name": EVIL, "build": "llama 1"},
    }
    given = {
        "made": NOW,
        "host": EVIL,
        "machine": [("board", EVIL), ("up", "100.0")],
        "endpoint": "ipc:///run/edged/request.sock",
        "settings": Settings(path=EVIL, every={"a": [EVIL]}, changed={"limits.queue": (5, 128)}),
        "status": status,
        "past": past({"interval_s": 10, "last": 9, "end_time": NOW, "columns": columns, "events": events}),
        "findings": [Finding("psi", Severity.ERROR, EVIL, EVIL, EVIL), Finding("swap", Severity.OK, "fine")],
    }
    return Facts(**{**given, **fields})


def test_the_page_is_whole_and_holds_nothing_foreign():
    text = page(facts())
    found = Checked(text)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\0" not in text
    assert re.findall(r"https?:|@import|url\(", text) == []
    assert found.count["svg"] == 5  # nothing was known of prompts read
    for words in ("Doctor", "Incidents", "with an error: deadline_exceeded", "limits.queue", "llama 1", "refused: 30"):
        assert words in found.text
    assert "1 check has nothing" in found.text


def test_a_daemon_that_is_down():
    text = page(facts(down="nobody listens", status={}, past=None, findings=None))
    assert "The daemon does not answer: nobody listens" in Checked(text).text.replace("  ", " ")
    assert "The last hour" not in text


def test_a_wrong_configuration_is_told():
    assert (
        "limits.queu: expected" in Checked(page(facts(settings=Settings("c.yaml", wrong="limits.queu: expected")))).text
    )


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(["state", "watchdog", "queue", "slots", "warnings", "counters", "model"]), ANYTHING)
)
def test_whatever_a_daemon_says(status):
    text = page(facts(status=status))
    Checked(text)
    text.encode()


@settings(max_examples=60)
@given(st.lists(st.none() | st.floats(0, 100), max_size=60))
def test_a_line_has_no_point_where_nothing_is_known(values):
    drawn = svg.line(values, 0, 100, "x", filled=False)
    points = [p for group in re.findall(r'points="([^"]*)"', drawn) for p in group.split()]
    alone = sum(len(run) == 1 for _, run in svg.runs(values))
    assert len(points) == sum(v is not None for v in values) + alone
    assert sum(len(run) for _, run in svg.runs(values)) == sum(v is not None for v in values)
    for begin, run in svg.runs(values):
        assert values[begin : begin + len(run)] == run


def test_markup_escapes_what_is_no_markup():
    assert el("b", "<i>", el("u", "&"), title='"') == '<b title="&quot;">&lt;i&gt;<u>&amp;</u></b>'
    assert isinstance(join("a", None, Markup("<hr>")), Markup)
    assert el("rect", class_="a", view_box="0", data_x=1, y=None) == '<rect class="a" viewBox="0" data-x="1"></rect>'


KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("server_key", "abc", HIDDEN),
        ("key", "abc", HIDDEN),
        ("password", "hunter2", HIDDEN),
        ("api_token", "t", HIDDEN),
        ("Client-Secret", "s", HIDDEN),
        ("note", KEY, HIDDEN),
        ("max_tokens", 4096, 4096),
        ("key", True, True),
        ("server_key_file", "/etc/edged/server.key_secret", "/etc/edged/server.key_secret"),
        ("secret", "", ""),
        ("kv_type", "f16", "f16"),
        ("knobs", ["frequency", "duty"], ["frequency", "duty"]),
        ("keys", ["a", "b"], [HIDDEN, HIDDEN]),
        ("request", ["tcp://0.0.0.0:5555", "ipc:///run/x"], ["tcp://0.0.0.0:5555", "ipc:///run/x"]),
        ("endpoint", "tcp://me:hunter2@host:1", f"tcp://{HIDDEN}@host:1"),
        ("sha256", "a" * 64, "a" * 64),
    ],
)
def test_what_is_left_out(key, value, shown):
    assert redacted({"section": {key: value}}) == {"section": {key: shown}}


@given(ANYTHING)
def test_no_key_of_curve_gets_through(value):
    assert KEY not in str(redacted({"a": value, "b": [KEY], "c": {"d": KEY}}))


ADDRESS = "tcp://0.0.0.0:5555 tcp://[2001:db8::1234:5678:9abc]:50001 x"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"server_key: {KEY}, which is no path", f"server_key: {HIDDEN}, which is no path"),
        (f"a key ({KEY}).", f"a key ({HIDDEN})."),
        (
            "others may write /etc/edged/clients/kitchen.key, /c/b-1.key",
            f"others may write /etc/edged/clients/{HIDDEN}.key, /c/{HIDDEN}.key",
        ),
        ("/etc/edged/keys/server.key_secret is 0644", "/etc/edged/keys/server.key_secret is 0644"),
        (ADDRESS, ADDRESS),
    ],
)
def test_what_doctor_may_not_say_here(said, shown):
    assert sentence(said) == shown


def test_the_machine(tmp_path: Path):
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"Raspberry Pi 5 Model B Rev 1.0\0")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME=x\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    found = dict(machine(tmp_path))
    assert found["board"] == "Raspberry Pi 5 Model B Rev 1.0"
    assert found["system"] == "Debian GNU/Linux 12 (bookworm)"
    assert dict(machine(tmp_path / "none"))["board"] == "unknown"
