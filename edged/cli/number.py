"""A number on the command line: click's FloatRange takes NaN for one in every range."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """FloatRange that refuses NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number
