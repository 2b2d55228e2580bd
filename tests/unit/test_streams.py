"""Numbered events, text instead of events, and who counts as a listener (protocol 4)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edged.broker.streams import (
    PREFILL_EVERY_S,
    QUEUED_EVERY_S,
    TOPIC_PREFIX,
    Listeners,
    Stream,
    is_system_topic,
    snapshot,
)
from unit.rig import address


def stream() -> Stream:
    return Stream(id="a", topic="tok/1/", mode="pub")


def test_events_count_from_zero_without_gaps() -> None:
    one = stream()
    seqs = [
        one.event("queued", 0.0, position=3)["seq"],
        one.event("prefill", 1.0, done=1, total=2)["seq"],
        one.token("A", 1, 2.0)["seq"],
        one.token("B", 1, 3.0)["seq"],
    ]
    assert seqs == [0, 1, 2, 3]


def test_an_event_names_its_request() -> None:
    assert stream().event("queued", 0.0, position=3) == {"id": "a", "type": "queued", "seq": 0, "position": 3}


def test_tokens_without_text_are_no_event() -> None:
    one = stream()
    assert one.token("", 1, 0.0) is None
    assert one.token("", 2, 0.0) is None
    assert one.seq == -1
    assert one.token("é", 1, 0.0) == {"id": "a", "type": "token", "seq": 0, "text": "é", "n": 4}
    assert one.token("x", 1, 0.0)["n"] == 1


def test_text_may_come_without_tokens() -> None:
    assert stream().token("held back", 0, 0.0)["n"] == 0


def test_a_snapshot_before_anything() -> None:
    assert stream().snapshot("queued") == {"id": "a", "type": "snapshot", "seq": -1, "text": "", "state": "queued"}


def test_the_example_of_protocol_4() -> None:
    one = stream()
    one.event("queued", 0.0)
    one.event("prefill", 0.0)
    one.token("A", 1, 0.0)
    one.token("B", 1, 0.0)
    assert one.snapshot("running") == snapshot("a", 3, "AB", "running")
    assert one.event("end", 0.0)["seq"] == 4


def test_a_snapshot_is_not_counted() -> None:
    one = stream()
    one.token("A", 1, 0.0)
    one.snapshot("running")
    assert one.token("B", 1, 0.0)["seq"] == 1


def test_queued_is_due_within_5_s_and_prefill_within_2() -> None:
    one = stream()
    one.event("queued", 100.0)
    assert one.queued_due == 100.0 + QUEUED_EVERY_S
    assert QUEUED_EVERY_S < 5
    assert PREFILL_EVERY_S + 0.5 < 2


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 3), st.booleans()), max_size=50))
def test_a_snapshot_and_the_tokens_after_it_are_the_text(steps: list[tuple[str, int, bool]]) -> None:
    one, parts, n, ids = stream(), [], 0, 0
    snapshots = []
    for text, tokens, look in steps:
        event = one.token(text, tokens, 0.0)
        ids += tokens
        if event is not None:
            parts.append((event["seq"], text))
            n += event["n"]
        if look:
            snapshots.append(one.snapshot("running"))
    assert [seq for seq, _ in parts] == list(range(len(parts)))
    assert one.text == "".join(text for _, text in parts)
    assert n == ids - one.tokens_since
    for shot in snapshots:
        rest = "".join(text for seq, text in parts if seq > shot["seq"])
        assert shot["text"] + rest == one.text


def test_only_sys_topics_are_system_topics() -> None:
    assert is_system_topic(b"sys/")
    assert is_system_topic(b"sys/health")
    for topic in (b"", b"s", b"sys", b"SYS/", b" sys/", b"tok/sys/", b"\0sys/", TOPIC_PREFIX.encode()):
        assert not is_system_topic(topic)


# ---- listeners -------------------------------------------------------------------------------------------------


def test_nobody_listens_at_first() -> None:
    assert not Listeners().present
    assert not stream().heard


def test_who_subscribes_twice_is_one() -> None:
    listeners = Listeners()
    listeners.joined("1")
    listeners.joined("1")
    listeners.left(None)
    assert not listeners.present


def test_a_named_departure_removes_its_own() -> None:
    listeners = Listeners()
    listeners.joined("1")
    listeners.joined("2")
    listeners.left("1")
    assert listeners.present
    listeners.left("1")
    listeners.left("3")
    assert listeners.present
    listeners.left("2")
    assert not listeners.present


def test_an_anonymous_departure_counts_one() -> None:
    listeners = Listeners()
    listeners.joined("1")
    listeners.joined("2")
    listeners.left(None)
    assert listeners.present
    listeners.left(None)
    assert not listeners.present
    listeners.joined("3")
    assert listeners.present


def test_bound_anew_nobody_listens_and_no_departure_is_owed() -> None:
    listeners = Listeners()
    listeners.joined("1")
    listeners.joined("2")
    listeners.left(None)
    listeners.clear()
    assert not listeners.present
    listeners.joined("4")
    assert listeners.present


def test_a_reply_stream_listens_through_its_connection() -> None:
    one = stream()
    one.to = address("peer")
    assert one.heard
    one.to = None
    assert not one.heard
    one.listeners.joined("1")
    assert one.heard


class ListenersMachine(RuleBasedStateMachine):
    """Connections of the owner and of strangers come and go as libzmq tells it: an unsubscribe names its connection,
    a connection that goes is anonymous and only told where it was subscribed."""

    @initialize()
    def begin(self) -> None:
        self.listeners = Listeners()
        self.own: set[str] = set()
        self.strangers: set[str] = set()
        self.last = 0

    @rule(stranger=st.booleans(), twice=st.booleans())
    def connect(self, stranger: bool, twice: bool) -> None:
        self.last += 1
        for _ in range(1 + twice):
            self.listeners.joined(str(self.last))
        (self.strangers if stranger else self.own).add(str(self.last))

    @precondition(lambda self: self.own | self.strangers)
    @rule(data=st.data(), named=st.booleans())
    def leave(self, data: st.DataObject, named: bool) -> None:
        one = data.draw(st.sampled_from(sorted(self.own | self.strangers)))
        self.listeners.left(one if named else None)
        self.own.discard(one)
        self.strangers.discard(one)

    @rule(number=st.integers(1000, 1003))
    def a_stranger_unsubscribes_what_it_never_had(self, number: int) -> None:
        self.listeners.left(str(number))

    @rule()
    def rebound(self) -> None:
        self.listeners.clear()
        self.own.clear()
        self.strangers.clear()

    @invariant()
    def a_stranger_never_triggers_the_rule(self) -> None:
        if self.own:
            assert self.listeners.present

    @invariant()
    def when_all_are_gone_nobody_listens(self) -> None:
        assert self.listeners.present == bool(self.own | self.strangers)


ListenersMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestListenersMachine = ListenersMachine.TestCase
