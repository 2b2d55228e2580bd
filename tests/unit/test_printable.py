"""What others say, as it may stand in a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.printable import line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – text", "plain – text"),
        ("a\nb\x1b[31m\x9b2J\x7f", r"a\x0ab\x1b[31m\x9b2J\x7f"),
        ("\u202eabc\u2028", r"\u202eabc\u2028"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
        ("x" * 41, "x" * 39 + "…"),
        ("x" * 40, "x" * 40),
    ],
)
def test_escapes_and_the_end(text: str, shown: str) -> None:
    assert line(text, 40) == shown


@given(st.text(st.characters(), max_size=300), st.integers(1, 100))
def test_it_is_one_printable_line_of_that_length(text: str, most: int) -> None:
    shown = line(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    if text.isprintable() and len(text) <= most:
        assert shown == text
