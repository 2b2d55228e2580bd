"""The board's sensors, read once: heat, the firmware's bits, clocks. /sys below a root that is a parameter.

* Thermal zones are known by `type`: their numbers change from boot to boot. Millidegrees; outside −40…130 °C (no
  chip of such a board works there) it is nonsense.
* A zone that answered once and does no more (EIO, nonsense, gone) is an alarm. One that never did, beside others
  that do, is as good as absent: the zone of a radio that is off says ENODATA for ever.
* Names are cut at NAME characters (the kernel's have 20 at most) and ZONES are looked at: what a broken driver says is
  shown by `status`, and that stays short. What was found stands in parentheses at an alarm's end (`alarms`).
* `get_throttled` is hexadecimal without 0x. `vcgencmd` is never asked: it is a process, and hangs in the field.
"""

from __future__ import annotations

import glob
import os
from typing import Any, Final

from edged.system import smallfile

PLAUSIBLE_C: Final = (-40.0, 130.0)
NAME: Final = 40
ZONES: Final = 64
UNDER_VOLTAGE, CAPPED, THROTTLED, SOFT_LIMIT = 1, 2, 4, 8


class Sensors:
    """Remembers what answered before, to tell what vanished from what was never there."""

    def __init__(self, root: str, zones: list[str]) -> None:
        self._sys = os.path.join(root, "sys")
        self._wanted = zones
        self._known: set[str] = set()
        self._had_bits = False

    def read(self, missing: list[str], alarms: list[str]) -> dict[str, Any]:
        """Fields of `Readings`; what is amiss is added to the lists."""
        return {**self._heat(missing, alarms), **self._bits(missing, alarms), **self._clock(missing)}

    # ---- heat ------------------------------------------------------------------------------------------------

    def _heat(self, missing: list[str], alarms: list[str]) -> dict[str, Any]:
        zones: dict[str, float] = {}
        bad: dict[str, str] = {}
        for path in self._zones(missing):
            kind = (smallfile.text(os.path.join(path, "type")) or os.path.basename(path))[:NAME]
            value = _celsius(os.path.join(path, "temp"))
            if isinstance(value, float):
                zones[kind] = max(value, zones.get(kind, value))
            else:
                bad.setdefault(kind, value)
        counted = {kind: value for kind, value in zones.items() if not self._wanted or kind in self._wanted}
        strange = [kind for kind in self._wanted if kind not in {*zones, *bad, *self._known}]
        alarms += [f"no thermal zone of type {kind[:NAME]!r} (watchdog.heat.zones)" for kind in strange]
        known = {kind for kind in self._known if not self._wanted or kind in self._wanted}
        for kind in sorted({*known, *bad} - set(zones)):
            if kind in self._known or not zones:
                alarms.append(f"thermal zone {kind}: {bad.get(kind, 'vanished')}")
            else:
                missing.append(f"thermal zone {kind}")
        self._known |= set([kind for kind in zones if kind not in self._known][: max(0, ZONES - len(self._known))])
        if not counted and not self._known and not bad:
            missing.append("temperature")
        return {"zones": zones, "temperature_c": max(counted.values(), default=None)}

    def _zones(self, missing: list[str]) -> list[str]:
        found = sorted(glob.glob(os.path.join(glob.escape(self._sys), "class/thermal/thermal_zone*")))
        if len(found) > ZONES:
            missing.append(f"{len(found) - ZONES} more thermal zones")
        return found[:ZONES]

    # ---- the firmware ----------------------------------------------------------------------------------------

    def _bits(self, missing: list[str], alarms: list[str]) -> dict[str, Any]:
        under_voltage = self._lcrit()
        found = glob.glob(os.path.join(glob.escape(self._sys), "devices/platform/soc*/*firmware/get_throttled"))
        bits = _hexadecimal(found[0]) if found else None
        if bits is not None:
            self._had_bits = True
            return {
                "throttled": bool(bits & THROTTLED),
                "soft_limit": bool(bits & SOFT_LIMIT),
                "capped": bool(bits & CAPPED),
                "under_voltage": bool(bits & UNDER_VOLTAGE) or under_voltage is True,
            }
        if found or self._had_bits:
            alarms.append("throttle bits: nonsense" if found else "throttle bits: vanished")
        else:
            missing.append("throttle bits")
        return {"under_voltage": under_voltage}

    def _lcrit(self) -> bool | None:
        for path in glob.glob(os.path.join(glob.escape(self._sys), "class/hwmon/hwmon*")):
            if smallfile.text(os.path.join(path, "name")) == "rpi_volt":
                value = smallfile.number(os.path.join(path, "in0_lcrit_alarm"))
                return None if value is None else bool(value)
        return None

    # ---- clocks ----------------------------------------------------------------------------------------------

    def _clock(self, missing: list[str]) -> dict[str, Any]:
        """Of the cores with the highest clock; where several are alike, the slowest of them."""
        pairs: list[tuple[int, int]] = []
        for path in glob.glob(os.path.join(glob.escape(self._sys), "devices/system/cpu/cpufreq/policy*")):
            most = smallfile.number(os.path.join(path, "cpuinfo_max_freq"))
            now = smallfile.number(os.path.join(path, "scaling_cur_freq"))
            if most is not None and now is not None:
                pairs.append((most, now))
        if not pairs:
            missing.append("core clock")
            return {}
        top = max(most for most, _ in pairs)
        return {"frequency_khz": min(now for most, now in pairs if most == top), "frequency_max_khz": top}


def _celsius(path: str) -> float | str:
    """What it says, or what is wrong with it."""
    try:
        text = smallfile.read(path, 64).strip()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    try:
        value = int(text) / 1000
    except ValueError:
        return "says nothing" if not text else "says nonsense"
    return value if PLAUSIBLE_C[0] <= value <= PLAUSIBLE_C[1] else f"says nonsense ({value:.4g} °C)"


def _hexadecimal(path: str) -> int | None:
    try:
        return int(smallfile.read(path, 64).strip(), 16)
    except (OSError, ValueError):
        return None
