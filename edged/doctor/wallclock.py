"""The wall clock. edged measures by the monotonic one: a wrong date breaks the times in logs, the certificates of a
model pull, and the order of files of different boots, but no request.
"""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Final

from msgspec import Struct

from edged.doctor import finding
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.doctor.manager import PLACES

NAME: Final = "clock"

RELEASED: Final = 1_735_689_600
"""2025-01-01: no clock that is set shows less."""

SYNCED: Final = "run/systemd/timesync/synchronized"
SERVICES: Final = ("systemd-timesyncd", "chrony", "chronyd", "ntpsec", "ntp", "ntpd", "openntpd")
"""What may set the clock, as the distributions call it. systemd-timesyncd is a package of its own in Debian."""
_STATUS_AT: Final = 40  # of struct timex on 64-bit Linux
_UNSYNCED: Final = 0x40  # STA_UNSYNC


class Clock(Struct, frozen=True):
    """`now`: Unix time; None for another box. `synced` None: nobody says."""

    now: float | None
    synced: bool | None
    rtc: bool
    service: bool = True  # something is installed that sets it


def check(box: Box) -> list[Finding]:
    synced = True if box.exists(SYNCED) else _kernel_says() if box.here else None
    return judge(Clock(time.time() if box.here else None, synced, bool(box.glob("sys/class/rtc/rtc*")), _service(box)))


def _service(box: Box) -> bool:
    return any(box.exists(f"{place}/{name}.service") for place in PLACES for name in SERVICES)


def _kernel_says() -> bool | None:
    """adjtimex(2), nothing is set."""
    timex = ctypes.create_string_buffer(512)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return None
    return not struct.unpack_from("@i", timex.raw, _STATUS_AT)[0] & _UNSYNCED


def judge(clock: Clock) -> list[Finding]:
    sync = "sudo timedatectl set-ntp true; the box needs a time server it can reach (/etc/systemd/timesyncd.conf)"
    sync = sync if clock.service else f"nothing sets it: sudo apt install systemd-timesyncd (or chrony); then {sync}"
    if clock.now is not None and clock.now < RELEASED:
        date = time.strftime("%Y-%m-%d", time.gmtime(clock.now))
        why = "times in the log are wrong, and no download over https is believed"
        return [finding.warning(NAME, f"the date is {date}", why, sync)]
    if clock.synced is False:
        why = "the times in the log may be off" + ("" if clock.rtc else "; without RTC they are after each power cut")
        return [finding.warning(NAME, "not synchronised", why, sync)]
    rtc = "" if clock.rtc else "; no RTC: wrong after each power cut, until it is synchronised"
    if clock.synced is None:
        return [finding.info(NAME, f"whether it is synchronised is not told{rtc}", do="timedatectl")]
    return [finding.ok(NAME, f"synchronised{rtc}")]
