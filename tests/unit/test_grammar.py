"""GBNF, the automaton and the vocabulary's masks. Texts are matched byte by byte; no model is needed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.worker.automaton import Automaton, TooAmbiguousError
from edged.worker.gbnf import parse
from edged.worker.grammar import GrammarError, Rule, Until
from edged.worker.masks import DeadEndError, Masks, Pieces
from edged.worker.utf8ranges import sequences


def automaton(source: str) -> Automaton:
    return Automaton(parse(source))


def matches(machine: Automaton, text: str | bytes) -> bool:
    machine.work = 0
    state = machine.walk(machine.start, text.encode() if isinstance(text, str) else text)
    return state is not None and state.final


@pytest.mark.parametrize(
    ("source", "yes", "no"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "y", "yesno"]),
        ('root ::= [a-c]+ "-"? # comment\n', ["a", "cab-"], ["", "d", "-"]),
        ("root ::= [^a\\n]", ["b", "é", "😀"], ["a", "\n", "bb"]),
        ("root ::= .{2}", ["ab", "日本", "\n\0"], ["a", "abc"]),
        ('root ::= "\\x41\\u00e9\\U0001F600\\"\\\\"', ['Aé😀"\\'], ["A"]),
        ('root ::= ("a" | "b"){2,3}', ["ab", "bbb"], ["a", "aaaa"]),
        ('root ::= "a"{2,}', ["aa", "aaaaa"], ["a"]),
        ('root ::= "a"\n  | "b" (\n "c"\n | "d" )', ["a", "bc", "bd"], ["b"]),
        ('root ::= "(" root ")" | x\nx ::= "1"', ["1", "((1))"], ["(1", "1)"]),
        ('root ::= | | "a"', ["", "a"], ["aa"]),
        ("root ::= [\\]\\-a-]", ["]", "-", "a"], ["b"]),
        ('root ::= "a" [] | "b"', ["b"], ["a"]),
    ],
)
def test_what_a_grammar_means(source: str, yes: list[str], no: list[str]) -> None:
    machine = automaton(source)
    assert [t for t in yes if not matches(machine, t)] == []
    assert [t for t in no if matches(machine, t)] == []


PARTS = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "[^a]", "é"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}|{p[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=6,
)


@given(PARTS, st.lists(st.text("abcé", max_size=6), max_size=8))
def test_it_agrees_with_regular_expressions(pattern: str, texts: list[str]) -> None:
    machine = automaton(f"root ::= {_literals(pattern)}")
    for text in texts:
        assert matches(machine, text) == bool(re.fullmatch(pattern, text, re.DOTALL)), (pattern, text)


def _literals(pattern: str) -> str:
    """The regular expression in GBNF's notation."""
    out = re.sub(r"\[[^\]]*\]|[abé]", lambda m: m[0] if m[0][0] == "[" else f'"{m[0]}"', pattern)
    return re.sub(r"([\"\])}*+?])(?=[\"\[(])", r"\1 ", out.replace("(?:", "("))


@given(
    st.integers(0, 0x10FFFF), st.integers(0, 0x10FFFF), st.lists(st.characters(exclude_categories=["Cs"]), max_size=20)
)
def test_ranges_of_characters_as_bytes(low: int, high: int, chars: list[str]) -> None:
    found = sequences(low, high)
    for char in [*chars, *(chr(c) for c in (low, high) if not 0xD800 <= c <= 0xDFFF)]:
        data = char.encode()
        hits = [s for s in found if len(s) == len(data) and all(a <= b <= c for (a, c), b in zip(s, data, strict=True))]
        assert len(hits) == (low <= ord(char) <= high)


@given(st.binary(max_size=12), st.sampled_from([b"</think>", b"aab", b"aaa", b"x", b"abab"]))
def test_until_is_the_first_occurrence(data: bytes, end: bytes) -> None:
    machine = Automaton({"root": Until(end)})
    assert not matches(machine, data) or data.find(end) == len(data) - len(end)
    whole = data + end
    assert matches(machine, whole) == (whole.find(end) == len(data))
    assert matches(machine, b"aa" * 3 + b"b") == (end == b"aab")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "no rule `root`"),
        ("# only a comment", "no rule `root`"),
        ("root", "`::=` is expected"),
        ("root ::= foo", "`foo` is not defined"),
        ('root ::= root "a" | "b"', "left recursion"),
        ('root ::= e root "a" | "b"\ne ::= "x"?', "left recursion"),
        ('root ::= "a" root', "no finite text"),
        ('root ::= "a"{10001}', "repetitions"),
        ('root ::= "a"{3,2}', "wrong way round"),
        ('root ::= (("a"{999}){999}){999}', "too large"),
        ("root ::= " + "(" * 30_000, "nested more than 64"),
        ('x ::= "a"\n\nroot ::= "\\q"', "line 3: unknown escape"),
        ('root ::= "\\uD800"', "no character"),
        ('root ::= "secret', "has no end"),
        ('root ::= "a" )', "an item of a rule is expected"),
        ('root ::= "a"\nroot ::= "b"', "stands twice"),
        ("a::=b\n" * 1 + "".join(f"r{i}::=b\n" for i in range(5000)) + 'root ::= "x"', "rules"),
    ],
)
def test_a_grammar_that_is_none(source: str, why: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(why)) as caught:
        automaton(source)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("rules", [2000, 3900])
def test_long_chains_of_rules(rules: int) -> None:
    chain = "".join(f"r{i} ::= r{i + 1}\n" for i in range(rules)) + f'r{rules} ::= "a"\nroot ::= r0'
    try:
        assert matches(automaton(chain), "a")
    except TooAmbiguousError:
        assert rules > 2000


def test_work_for_an_ambiguous_grammar_is_bounded() -> None:
    with pytest.raises(TooAmbiguousError):
        automaton("\n".join(f'r{i} ::= r{i + 1} "a" | r{i + 1} "b"' for i in range(40)) + '\nr40 ::= "x"\nroot ::= r0')
    machine = automaton('root ::= "a" root "b" | "a" root "c" | "a"')
    with pytest.raises(TooAmbiguousError):
        matches(machine, "a" * 40)


def test_right_recursion_stays_flat_and_memory_bounded() -> None:
    flat = automaton('root ::= "a" root | "b"')
    state = flat.walk(flat.start, b"a" * 5000)
    assert state is flat.walk(flat.start, b"a")
    deep = automaton('root ::= "(" root ")" | "x"')
    state = deep.start
    for byte in b"(" * 100_000 + b"x" + b")" * 100_000:
        deep.work = 0
        state = deep.step(state, byte)
    assert state.complete
    assert len(deep._frames) <= 50_000
    assert len(deep._states) <= 50_000


VOCABULARY = [b"", b"a", b"b", b"ab", b"ba", b"abc", b"\xc3", b"\xa9", "é".encode(), b"<end>", b"c", b"aaaa"]
END = 9


@given(
    st.sampled_from(['root ::= "ab"* "c"', 'root ::= [a-b]+ "é"', 'root ::= ("a" | "ab" | "abc")*', 'root ::= "é"']),
    st.sampled_from([b"", b"a", b"ab", b"abab"]),
    st.lists(st.floats(-5, 5, width=32), min_size=len(VOCABULARY), max_size=len(VOCABULARY)),
    st.sampled_from([1, 2, 5, None]),
)
def test_both_ways_to_the_best_tokens_agree(source: str, begun: bytes, logits: list[float], want: int | None) -> None:
    machine = automaton(source)
    masks = Masks(Pieces(VOCABULARY, {END}), machine)
    state = machine.walk(machine.start, begun)
    if state is None:
        return
    row = np.array(logits, dtype=np.float32)
    allowed = [t for t in range(len(VOCABULARY)) if masks.allows(state, t)]
    assert allowed == [
        t for t, p in enumerate(VOCABULARY) if (state.final if t == END else p and machine.walk(state, p) is not None)
    ]
    expected = sorted(allowed, key=lambda t: (-row[t], t))[:want]
    assert masks.best(state, row, want).tolist() == expected
    wide = np.concatenate([row, np.full(400, -9, dtype=np.float32)])  # so many that the likeliest are looked at
    more = Masks(Pieces([*VOCABULARY, *[b"\xff"] * 400], {END}), automaton(source))
    fresh = more._automaton.walk(more._automaton.start, begun)
    assert fresh is not None
    assert more.best(fresh, wide, want).tolist() == expected


def test_a_vocabulary_that_lacks_a_byte() -> None:
    machine = automaton('root ::= "z"')
    with pytest.raises(DeadEndError):
        Masks(Pieces(VOCABULARY, {END}), machine).best(machine.start, np.zeros(len(VOCABULARY), np.float32), 1)


def test_rules_may_be_called_anything() -> None:
    assert matches(Automaton({"root": Rule(".x"), ".x": Until(b"x")}), "aax")


def test_bytes_that_lead_nowhere_count_as_work() -> None:
    machine = automaton("root ::= (" + " | ".join(f'"a{chr(0x100 + i)}"' for i in range(1200)) + ")*")
    masks = Masks(Pieces([b"", *(b"a" + bytes([i]) for i in range(256))], {0}), machine)
    masks.best(machine.start, np.zeros(257, np.float32), None)
    assert 256 * 1200 / 16 / 2 < machine.work < 50_000
