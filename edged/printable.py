"""Text of others as it may stand in an error or a log: one printable line of bounded length. Pure.

What a peer or a file says must not move a cursor, turn the writing round or fill a screen: control characters of both
sets, separators, marks of direction and lone surrogates are written as escapes.
"""

from __future__ import annotations


def line(text: str, most: int) -> str:
    """At most so many characters; `…` stands for the rest."""
    plain = text[: most + 1]
    if not plain.isprintable():
        plain = "".join(char if char.isprintable() else escape(char) for char in plain)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
