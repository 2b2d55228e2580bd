"""Clocks, heat and the supply, as the watchdog sees them (`edged.watchdog.sensors`), and what it cannot see.

What a machine has not got (a VM without cpufreq, a board without firmware bits) is no fault. The bits of "it happened"
(16 to 19) are told here and nowhere else: the watchdog acts by what is so now. The kernel clears them as it polls, so
that they are clear proves nothing.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from edged.config_watchdog import Heat
from edged.doctor import board, finding
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.system import smallfile
from edged.watchdog.sensors import CAPPED, SOFT_LIMIT, THROTTLED, UNDER_VOLTAGE, Sensors

CLOCK: Final = "frequency"
SUPPLY: Final = "supply"
THROTTLING: Final = "throttling"
TEMPERATURE: Final = "temperature"
COOLING: Final = "cooling"

BEFORE: Final = 16
"""The bits of "it happened" are those of "it is so", shifted."""

ADAPTIVE: Final = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp")
"""Drivers whose governor `powersave` follows the load; with any other one it is the lowest clock."""

PSU: Final = "use the supply that is made for this board (27 W for a Pi 5, 15 W for a Pi 4), and a short, thick cable"
COOL: Final = "a heat sink or fan, more air around the board; pacing goes on meanwhile (watchdog.pacing)"


class Policy(Struct, frozen=True):
    """One of cpufreq, in kHz. `ours`: the service's user may set its limit."""

    governor: str
    driver: str
    limit: int | None
    most: int | None
    ours: bool = True


# ---- clock --------------------------------------------------------------------------------------------------------


def check_clock(box: Box) -> list[Finding]:
    policies = [_policy(box, name) for name in box.glob("sys/devices/system/cpu/cpufreq/policy*")]
    capped = box.exists(os.path.join(box.runtime_dir, "clock"))
    return judge_clock(policies, capped=capped, paces="frequency" in box.config.watchdog.pacing.knobs)


def _policy(box: Box, name: str) -> Policy:
    """The unit gives the limit to the service's group."""
    limit = box.path(f"{name}/scaling_max_freq")
    try:
        status = os.stat(limit)
        given = bool(status.st_gid and status.st_mode & 0o020)
    except OSError:
        given = False
    return Policy(
        governor=box.text(f"{name}/scaling_governor") or "",
        driver=box.text(f"{name}/scaling_driver") or "",
        limit=smallfile.number(limit),
        most=box.number(f"{name}/cpuinfo_max_freq"),
        ours=given or not box.installed,
    )


def judge_clock(policies: list[Policy], *, capped: bool, paces: bool) -> list[Finding]:
    """`capped`: the service holds the clock down for heat now. `paces`: it is meant to."""
    if not policies:
        return [finding.info(CLOCK, "no cpufreq here: the clock is the machine's own affair (usual in a VM)")]
    out = []
    slow = sorted({p.governor for p in policies if p.governor == "userspace" or _lowest(p)})
    if slow:
        do = "echo ondemand | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; for good: cpufrequtils"
        why = "the cores do not go faster when there is work"
        out.append(finding.warning(CLOCK, f"governor {', '.join(slow)}", why, do))
    below = next((p for p in policies if p.limit is not None and p.most is not None and p.limit < p.most), None)
    if below is not None and below.limit is not None and below.most is not None:
        what = f"the clock is limited to {_ghz(below.limit)} of {_ghz(below.most)}"
        if capped:
            out.append(finding.info(CLOCK, what, "edged holds it down because of heat, and puts it back"))
        else:
            do = "see who set scaling_max_freq (a power profile, cpufrequtils), and put cpuinfo_max_freq back"
            out.append(finding.warning(CLOCK, what, "tokens are made that much slower", do))
    if paces and not all(p.ours for p in policies):
        why = "of all ways to be cooler a lower clock costs the fewest tokens; threads and pauses do it instead"
        do = "sudo systemctl restart edged: the unit gives it the right at its start (ExecStartPre)"
        out.append(finding.info(CLOCK, "edged may not set the clock's limit", why, do))
    governors = ", ".join(sorted({p.governor for p in policies if p.governor})) or "unknown"
    top = max((p.most or 0 for p in policies), default=0)
    return out or [finding.ok(CLOCK, f"governor {governors}, up to {_ghz(top)}")]


def _lowest(policy: Policy) -> bool:
    return policy.governor == "powersave" and policy.driver not in ADAPTIVE


def _ghz(khz: int) -> str:
    return f"{khz / 1e6:.2g} GHz"


# ---- the firmware's bits ------------------------------------------------------------------------------------------


class Bits(Struct, frozen=True):
    """`raw`: get_throttled; `alarm`: hwmon's, of under-voltage only. None: not there. `pi`: a board that should."""

    raw: int | None
    alarm: bool | None
    pi: bool


def check_supply(box: Box) -> list[Finding]:
    return judge_supply(_bits(box))


def check_throttling(box: Box) -> list[Finding]:
    return judge_throttling(_bits(box))


def _bits(box: Box) -> Bits:
    raw = None
    for name in box.glob("sys/devices/platform/soc*/*firmware/get_throttled")[:1]:
        text = box.text(name) or ""
        raw = int(text, 16) if text and all(c in "0123456789abcdefABCDEF" for c in text) else None
    alarm = None
    for name in box.glob("sys/class/hwmon/hwmon*"):
        if box.text(f"{name}/name") == "rpi_volt":
            value = box.number(f"{name}/in0_lcrit_alarm")
            alarm = None if value is None else bool(value)
    return Bits(raw, alarm, board.raspberry_pi(box))


def judge_supply(bits: Bits) -> list[Finding]:
    if bits.raw is None and bits.alarm is None:
        return [_unseen(SUPPLY, "under-voltage", pi=bits.pi)]
    raw = bits.raw or 0
    why = "the firmware lowers the clock, and a board whose voltage drops under load restarts by itself"
    if raw & UNDER_VOLTAGE or bits.alarm:
        return [finding.error(SUPPLY, "under-voltage now", why, PSU)]
    if raw & UNDER_VOLTAGE << BEFORE:
        return [finding.warning(SUPPLY, "there was under-voltage since the start", why, PSU)]
    return [finding.ok(SUPPLY, "no under-voltage")]


def judge_throttling(bits: Bits) -> list[Finding]:
    if bits.raw is None:
        return [_unseen(THROTTLING, "throttling", pi=bits.pi)]
    cold = bits.raw & UNDER_VOLTAGE
    words = {CAPPED: "clock capped", THROTTLED: "throttled", SOFT_LIMIT: "soft temperature limit"}
    now = [word for bit, word in words.items() if bits.raw & bit]
    before = [word for bit, word in words.items() if bits.raw & bit << BEFORE]
    if now:
        why = "for its supply, perhaps: see `supply`" if cold else "the firmware takes speed away because of heat"
        return [finding.warning(THROTTLING, f"now: {', '.join(now)}", why, PSU if cold else COOL)]
    if before:
        why = "under load the cooling, or the supply, does not suffice"
        return [finding.info(THROTTLING, f"earlier: {', '.join(before)}", why, COOL)]
    return [finding.ok(THROTTLING, "not throttled")]


def _unseen(name: str, what: str, *, pi: bool) -> Finding:
    if pi:
        return finding.unknown(name, f"this kernel does not tell {what}", do="vcgencmd get_throttled (0x0 is good)")
    return finding.info(name, f"this board does not tell {what}")


# ---- heat ---------------------------------------------------------------------------------------------------------


class Fan(Struct, frozen=True):
    """`state` of `most` steps; `rpm` None: it does not tell."""

    kind: str
    state: int | None
    most: int | None
    rpm: int | None


class Temperature(Struct, frozen=True):
    zones: dict[str, float]
    counted: float | None  # the hottest that counts
    alarms: list[str]
    real: bool  # a board that should have a sensor


def check_temperature(box: Box) -> list[Finding]:
    alarms: list[str] = []
    read = Sensors(box.root, box.config.watchdog.heat.zones).read([], alarms)
    about_heat = [text for text in alarms if text.startswith(("thermal zone", "no thermal zone"))]
    real = bool(box.glob("proc/device-tree/model")) or board.raspberry_pi(box)
    temperature = Temperature(read["zones"], read["temperature_c"], about_heat, real)
    return judge_temperature(temperature, box.config.watchdog.heat)


def judge_temperature(temperature: Temperature, heat: Heat) -> list[Finding]:
    out = []
    for alarm in temperature.alarms:
        why = "edged takes a sensor that fails for a warm board"
        do = "name the zones that count in watchdog.heat.zones; they are in /sys/class/thermal/thermal_zone*/type"
        out.append(finding.warning(TEMPERATURE, alarm, why, do))
    celsius = temperature.counted
    if celsius is None:
        if not out and temperature.real:
            why = "edged cannot see heat: only a chip that throttles by itself protects the board"
            out.append(finding.warning(TEMPERATURE, "no temperature sensor", why, "another kernel, or a driver for it"))
        return out or [finding.info(TEMPERATURE, "no temperature sensor here (usual in a VM)")]
    zone = max(temperature.zones, key=lambda name: temperature.zones[name])
    what = f"{celsius:.1f} °C ({zone})"
    if celsius >= heat.hot_c:
        out.append(finding.error(TEMPERATURE, what, f"hot begins at {heat.hot_c:g} °C: a smaller model runs", COOL))
    elif celsius >= heat.warm_c:
        out.append(finding.warning(TEMPERATURE, what, f"warm begins at {heat.warm_c:g} °C: work is paced", COOL))
    else:
        out.append(finding.ok(TEMPERATURE, what))
    return out


def check_cooling(box: Box) -> list[Finding]:
    rpm = None
    for name in box.glob("sys/class/hwmon/hwmon*/fan1_input"):
        rpm = box.number(name)
    fans = []
    for name in box.glob("sys/class/thermal/cooling_device*"):
        kind = box.text(f"{name}/type") or ""
        if "fan" in kind.lower():
            fans.append(Fan(kind, box.number(f"{name}/cur_state"), box.number(f"{name}/max_state"), rpm))
    return judge_cooling(fans, pi=board.raspberry_pi(box))


def judge_cooling(fans: list[Fan], *, pi: bool) -> list[Finding]:
    for fan in fans:
        if fan.state and fan.rpm == 0:
            why = "the kernel has it run, and it does not turn"
            return [finding.error(COOLING, f"{fan.kind}: 0 rpm", why, "see to its plug and its blades")]
        if fan.state and fan.state == fan.most:
            why = "there is nothing more to come"
            return [finding.info(COOLING, f"{fan.kind}: at its highest step", why, COOL)]
    if fans:
        said = f"{fans[0].kind}: step {fans[0].state} of {fans[0].most}"
        return [finding.ok(COOLING, said + ("" if fans[0].rpm is None else f", {fans[0].rpm} rpm"))]
    if pi:
        why = "without one, work is paced sooner on a warm day"
        return [finding.info(COOLING, "no fan that the kernel knows of", why)]
    return [finding.info(COOLING, "no cooling device that the kernel knows of")]
