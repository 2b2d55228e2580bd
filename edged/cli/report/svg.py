"""Plots as inline SVG: shapes only, stretched to the room that there is; their texts are HTML beside them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from edged.cli.past import Value
from edged.cli.report.markup import Markup, el, join

WIDTH: Final = 1000
HEIGHT: Final = 100


class Mark(Struct, frozen=True):
    """Something that happened: `at` is 0…1 of the width."""

    at: float
    weight: str
    text: str


def runs(values: Sequence[Value]) -> Iterator[tuple[int, list[float]]]:
    """Stretches without a gap, each with the index where it begins."""
    begin, run = 0, list[float]()
    for index, value in enumerate([*values, None]):
        if value is not None:
            if not run:
                begin = index
            run.append(value)
        elif run:
            yield begin, run
            run = []


def line(values: Sequence[Value], low: float, high: float, name: str, *, filled: bool = True) -> Markup:
    """A line, with the room below it tinted; a single value is a short stroke."""
    out = []
    step = WIDTH / max(1, len(values))
    for begin, run in runs(values):
        points = [(step * (begin + i + 0.5), _y(value, low, high)) for i, value in enumerate(run)]
        if len(points) == 1:
            points = [(points[0][0] - step / 2, points[0][1]), (points[0][0] + step / 2, points[0][1])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if filled:
            area = f"{points[0][0]:.1f},{HEIGHT} {path} {points[-1][0]:.1f},{HEIGHT}"
            out.append(el("polygon", points=area, class_=f"area {name}"))
        out.append(el("polyline", points=path, class_=f"line {name}"))
    return join(*out)


def bars(values: Sequence[Value], below: Sequence[Value], high: float, name: str) -> Markup:
    """`below`: what each stands on."""
    step = WIDTH / max(1, len(values))
    out = []
    for index, (value, base) in enumerate(zip(values, below, strict=True)):
        if value:
            top, bottom = _y((base or 0) + value, 0, high), _y(base or 0, 0, high)
            out.append(
                el(
                    "rect",
                    x=f"{step * index:.1f}",
                    y=f"{top:.1f}",
                    width=f"{max(2.0, step * 0.9):.1f}",
                    height=f"{max(0.8, bottom - top):.1f}",
                    class_=f"bar {name}",
                )
            )
    return join(*out)


def bands(levels: Sequence[Value], names: Sequence[str]) -> Markup:
    """The background: each stretch of one level that is not the first of `names`."""
    step = WIDTH / max(1, len(levels))
    out, begin = [], 0
    for index in range(1, len(levels) + 1):
        if index < len(levels) and levels[index] == levels[begin]:
            continue
        level = levels[begin]
        if level:
            name = names[max(0, min(len(names) - 1, round(level)))]
            x, width = step * begin, step * (index - begin)
            title = el("title", f"level {name}")
            out.append(el("rect", title, x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=HEIGHT, class_=f"band {name}"))
        begin = index
    return join(*out)


def marks(found: Sequence[Mark]) -> Markup:
    return join(
        *(
            el("line", el("title", mark.text), x1=x, x2=x, y1=0, y2=HEIGHT, class_=f"mark {mark.weight}")
            for mark in found
            for x in (f"{WIDTH * mark.at:.1f}",)
        )
    )


def drawing(*parts: Markup, label: str) -> Markup:
    lines = [el("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="grid") for y in (0, HEIGHT / 2, HEIGHT)]
    return el(
        "svg",
        *lines,
        *parts,
        view_box=f"0 0 {WIDTH} {HEIGHT}",
        preserve="none",
        role="img",
        aria_label=label,
    )


def _y(value: float, low: float, high: float) -> float:
    part = (value - low) / (high - low) if high > low else 0.0
    return HEIGHT * (1 - max(0.0, min(1.0, part)))
