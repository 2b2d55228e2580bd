"""HTML and SVG as strings that know that they are markup: whatever else is put in is escaped. Pure."""

from __future__ import annotations

import html
from typing import Final

VOID: Final = ("meta", "br", "hr")


class Markup(str):
    """Made by `el` and `join` only."""

    __slots__ = ()


Child = str | None


def el(name: str, /, *children: Child, **attributes: object) -> Markup:
    """`class_` is `class`, `view_box` is `viewBox`; other underscores are hyphens. None: left out."""
    shown = "".join(f' {_name(key)}="{_text(str(value))}"' for key, value in attributes.items() if value is not None)
    if name in VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    return Markup(
        "".join(child if isinstance(child, Markup) else _text(child) for child in children if child is not None)
    )


def _text(text: str) -> str:
    """Without characters that XML forbids."""
    return html.escape("".join(c if c in "\n\t" or c.isprintable() else "�" for c in text))


def _name(key: str) -> str:
    if key == "view_box":
        return "viewBox"
    if key == "preserve":
        return "preserveAspectRatio"
    return key.rstrip("_").replace("_", "-")
