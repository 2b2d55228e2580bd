"""The configuration: can it be read, and does it say what is hardly meant."""

from __future__ import annotations

from typing import Final

from edged import config
from edged.doctor import finding
from edged.doctor.box import Box
from edged.doctor.finding import Finding

NAME: Final = "configuration"


def check(box: Box) -> list[Finding]:
    return judge(box.config.path, box.refused, config.doubts(box.config))


def judge(path: str, refused: str, doubts: list[str]) -> list[Finding]:
    """`refused`: file, key, expected, found."""
    if refused:
        why = "the service does not take it; the rest was looked at with the defaults"
        return [finding.error(NAME, refused, why, "mend that line; edgectl config check tells when it is good")]
    if doubts:
        return [finding.warning(NAME, doubt, do=f"change it in {path}") for doubt in doubts]
    return [finding.ok(NAME, "the defaults, there is no file" if path == "defaults" else path)]
