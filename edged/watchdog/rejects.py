"""Model files that were looked at and found bad: not to be tried again before they change, or a while has passed.

A file that is missing counts as one. One that is bad for a reason of the moment (a card that gave an error) gets
another chance after `keep_s`.
"""

from __future__ import annotations

from msgspec import Struct

from edged.watchdog.plan import Plan
from edged.watchdog.preflight import Rejected, signature


class Reject(Struct, frozen=True):
    mark: tuple[int, int, int] | None  # of the file when it was looked at
    until: float  # monotonic seconds
    message: str


class Rejects:
    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._files: dict[tuple[str, str | None], Reject] = {}

    def __len__(self) -> int:
        return len(self._files)

    def note(self, plan: Plan, finding: Rejected, now: float) -> None:
        self._files[plan.path, plan.sha256] = Reject(finding.mark, now + self._keep_s, finding.message)

    def good(self, path: str) -> None:
        self._files = {key: one for key, one in self._files.items() if key[0] != path}

    def bad(self, plan: Plan, now: float) -> bool:
        """Known, and still so."""
        one = self._files.get((plan.path, plan.sha256))
        return one is not None and now < one.until and signature(plan.path) == one.mark

    def changed(self) -> bool:
        """Whether a file has changed since; what was found in those is forgotten."""
        same = {key: one for key, one in self._files.items() if signature(key[0]) == one.mark}
        before, self._files = self._files, same
        return len(same) < len(before)

    def message(self, plan: Plan) -> str | None:
        one = self._files.get((plan.path, plan.sha256))
        return one.message if one else None
