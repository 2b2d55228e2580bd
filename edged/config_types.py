"""Types that the sections of the configuration share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
LONG_S = 31_536_000
"""A year: seconds have an upper bound, so that no sum of them overflows a poll or a clock."""
Seconds = Annotated[float, Meta(gt=0, le=LONG_S)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=LONG_S)]
Celsius = Annotated[float, Meta(ge=0, le=200)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Text = Annotated[str, Meta(min_length=1)]
SHA256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping of keys."""
