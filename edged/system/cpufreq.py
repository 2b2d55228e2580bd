"""A cap on the cores' clock, where the service may set one. The root of /sys is a parameter.

What was found before the first cap is remembered in a file, so that the next daemon puts it back when this one was
killed: on a RAM file system, since a reboot puts it back too. It is removed when there is nothing to put back.
"""

from __future__ import annotations

import contextlib
import glob
import os
from typing import Final

import msgspec

from edged.system import smallfile
from edged.system.aside import Aside

STEP_KHZ: Final = 100_000
"""Between two clocks, where the driver does not list them."""

FIND_S: Final = 0.5
"""How long the start waits for the clocks; what answers later is not used."""

RESTORE_S: Final = 0.5
"""How long the stop does."""


class Clocks:
    """The files themselves, which may hang."""

    def __init__(self, root: str, remembered: str) -> None:
        """`remembered`: path of the file; what an earlier daemon left in it is put back now."""
        pattern = os.path.join(glob.escape(root), "sys/devices/system/cpu/cpufreq/policy*")
        self._policies = sorted(path for path in glob.glob(pattern) if os.path.isdir(path))
        self._remembered = remembered
        self._found: dict[str, int] = {}
        self._cap: int | None = None
        self._restore_left_over()
        self.usable = bool(self._policies) and all(
            os.access(_limit(path), os.W_OK) and smallfile.number(_limit(path)) for path in self._policies
        )

    def steps(self) -> list[int]:
        """Clocks in kHz, rising, of the fastest cores; [] when no cap can be set."""
        if not self.usable:
            return []
        best = max(self._policies, key=_most)
        listed = smallfile.text(os.path.join(best, "scaling_available_frequencies")) or ""
        steps = sorted(int(word) for word in listed.split() if word.isascii() and word.isdigit())
        low, high = smallfile.number(os.path.join(best, "cpuinfo_min_freq")), _most(best)
        if not steps and low and high:
            steps = [*range(low, high, STEP_KHZ), high]
        limit = self._found.get(best) or smallfile.number(_limit(best)) or high
        return [step for step in steps if step <= limit]

    def set(self, khz: int | None) -> None:
        """None: no cap. A box that refuses is left alone from then on."""
        if not self.usable or khz == self._cap:
            return
        if khz is None:
            self.restore()
            return
        try:
            if not self._found:
                found = {path: smallfile.number(_limit(path)) or _most(path) for path in self._policies}
                self._remember(found)
                self._found = found
            for path in self._policies:
                least = smallfile.number(os.path.join(path, "cpuinfo_min_freq")) or 0
                _write(_limit(path), min(self._found[path], max(least, khz)))
            self._cap = khz
        except OSError:
            self.restore()
            self.usable = False

    def restore(self) -> None:
        """Puts back what was found."""
        for path, khz in self._found.items():
            with contextlib.suppress(OSError):
                _write(_limit(path), khz)
        self._found = {}
        self._cap = None
        with contextlib.suppress(OSError):
            os.unlink(self._remembered)

    def _remember(self, found: dict[str, int]) -> None:
        part = f"{self._remembered}.part"
        with open(part, "wb") as file:
            file.write(msgspec.json.encode(found))
        os.replace(part, self._remembered)

    def _restore_left_over(self) -> None:
        """Only of clocks that are there; a file that is no such file is none of ours."""
        try:
            left = msgspec.json.decode(smallfile.read(self._remembered), type=dict[str, int])
        except (OSError, msgspec.DecodeError, RecursionError):
            return
        self._found = {path: khz for path, khz in left.items() if path in self._policies and khz > 0}
        self.restore()


class FrequencyCap:
    """`Clocks` for the daemon's loop, by a thread: no call waits for a file for longer than said."""

    def __init__(self, root: str, remembered: str) -> None:
        self._aside = Aside("clocks")
        self._clocks: Clocks | None = None
        self._wanted: int | None = None
        none: list[int] = []
        self._steps = self._aside.ask(lambda: self._find(root, remembered), FIND_S, none)

    def steps(self) -> list[int]:
        """As `Clocks.steps` at the start."""
        return self._steps if self._clocks is not None and self._clocks.usable else []

    def set(self, khz: int | None) -> None:
        if self._clocks is not None and khz != self._wanted:
            self._wanted = khz
            self._aside.do(self._set)

    def restore(self) -> None:
        """Waits; what is not put back in time the next daemon puts back."""
        if self._clocks is not None:
            self._wanted = None
            self._aside.ask(self._clocks.restore, RESTORE_S, None)

    def _find(self, root: str, remembered: str) -> list[int]:
        clocks = Clocks(root, remembered)
        steps = clocks.steps()
        self._clocks = clocks
        return steps

    def _set(self) -> None:
        """The newest wish."""
        if self._clocks is not None:
            self._clocks.set(self._wanted)


def _limit(policy: str) -> str:
    return os.path.join(policy, "scaling_max_freq")


def _most(policy: str) -> int:
    return smallfile.number(os.path.join(policy, "cpuinfo_max_freq")) or 0


def _write(path: str, khz: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"%d\n" % khz)
    finally:
        os.close(descriptor)
