"""The service as systemd has it: as the release brings it along, started with the box, not restarted over and over; and
settings, most of them meant well, that edged does not work under.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from edged.doctor import finding, limits, manager, memory, needs, unitfiles
from edged.doctor.box import Box
from edged.doctor.finding import Finding

UNIT: Final = "unit"
SETTINGS: Final = "unit-settings"

SHOWN: Final = (
    "ActiveState",
    "SubState",
    "UnitFileState",
    "NRestarts",
    "Result",
    "NeedDaemonReload",
    "MainPID",
    "ExecMainStatus",
)
OFTEN: Final = 3
"""Restarts since the box came up: more of them are no accident."""

SPARE_S: Final = 5.0
"""Beside draining and saving, until TimeoutStopSec (docs/operations.md)."""

REINSTALL: Final = "install the release's unit again (make install), or lay changes over it (systemctl edit edged)"


class Unit(Struct, frozen=True):
    """`shown`: of `systemctl show`; None: systemd does not run here, or does not say. `changed`: lines that differ."""

    installed: bool
    shown: dict[str, str] | None
    changed: list[str]
    laid_over: list[str]


def check_unit(box: Box) -> list[Finding]:
    return judge_unit(look(box))


def look(box: Box) -> Unit:
    installed, shipped = unitfiles.installed(box), unitfiles.shipped(box)
    changed = []
    for name, path in installed.items():
        if name in shipped:
            changed += difference(name, box.text(path) or "", shipped[name])
    return Unit(bool(installed), show(box), changed, unitfiles.laid_over(box))


def show(box: Box) -> dict[str, str] | None:
    found = manager.show([manager.SERVICE], SHOWN) if box.here else None
    return (found or {}).get(manager.SERVICE)


def main_pid(box: Box) -> int | None:
    """Of the service; None when it does not run."""
    pid = (show(box) or {}).get("MainPID", "")
    return int(pid) if pid.isdigit() and int(pid) > 0 else None


def difference(name: str, installed: str, shipped: str) -> list[str]:
    """`edged.service: OOMPolicy=stop, not OOMPolicy=continue`; comments do not count."""
    there, meant = unitfiles.settings(installed), unitfiles.settings(shipped)
    added = [line for line in there if line not in meant]
    missing = [line for line in meant if line not in there]
    out = []
    for line in added:
        other = next((one for one in missing if one.partition("=")[0] == line.partition("=")[0]), None)
        if other is not None:
            missing.remove(other)
        out.append(f"{name}: {line}" + (f", not {other}" if other else ""))
    return out + [f"{name}: without {line}" for line in missing]


def judge_unit(unit: Unit) -> list[Finding]:
    if not unit.installed:
        why = "edged does not come up with the box, and nobody restarts it"
        return [finding.info(UNIT, "not installed as a service", why, "docs/operations.md, Install one box")]
    out = _state(unit.shown) if unit.shown is not None else []
    if unit.changed:
        more = f" and {len(unit.changed) - 3} more" if len(unit.changed) > 3 else ""
        what = f"the unit is not the release's: {'; '.join(unit.changed[:3])}{more}"
        out.append(finding.warning(UNIT, what, "what was tested is another one", REINSTALL))
    if unit.laid_over:
        out.append(finding.info(UNIT, f"settings laid over it: {', '.join(unit.laid_over)}"))
    if unit.shown is None and not out:
        return [finding.info(UNIT, "installed; systemd does not run here, so nothing is known of its state")]
    return out or [finding.ok(UNIT, "the release's unit, enabled and active")]


def _state(shown: dict[str, str]) -> list[Finding]:
    out = []
    active, result = shown.get("ActiveState", ""), shown.get("Result", "")
    if active == "failed":
        do = "journalctl -u edged -n 50; then sudo systemctl reset-failed edged; sudo systemctl start edged"
        ended = f"{result}{_status(shown)}"
        out.append(finding.error(UNIT, f"the service has failed ({ended})", "systemd has given it up", do))
    elif shown.get("SubState") == "auto-restart":
        what = f"the service does not come up: it ended ({result}{_status(shown)}) and is started again and again"
        do = "journalctl -u edged -n 50; `unit-settings` and `configuration` say what may be missing"
        out.append(finding.error(UNIT, what, "nobody answers", do))
    elif active != "active":
        do = "sudo systemctl start edged"
        out.append(finding.warning(UNIT, f"the service is {active or 'unknown'}", "nobody answers", do))
    if shown.get("UnitFileState") not in ("enabled", "enabled-runtime", "static", "linked"):
        what, why = f"the unit is {shown.get('UnitFileState') or 'not enabled'}", "it does not come up with the box"
        out.append(finding.warning(UNIT, what, why, "sudo systemctl enable edged"))
    restarts = shown.get("NRestarts", "0")
    if restarts.isdigit() and int(restarts) > OFTEN:
        why = "systemd restarts the daemon only when it ends or hangs: that should not happen"
        out.append(finding.warning(UNIT, f"restarted {restarts} times", why, "journalctl -u edged -p warning"))
    if shown.get("NeedDaemonReload") == "yes":
        why = "systemd still goes by the old one"
        out.append(finding.warning(UNIT, "the unit file was changed", why, "sudo systemctl daemon-reload"))
    return out


EXITS: Final = {
    "78": "CONFIG",
    "200": "CHDIR",
    "203": "EXEC",
    "216": "GROUP",
    "217": "USER",
    "226": "NAMESPACE",
    "233": "RUNTIME_DIRECTORY",
    "238": "STATE_DIRECTORY",
    "243": "CREDENTIALS",
}
"""Of systemd.exec(5), "Process Exit Codes"."""


def _status(shown: dict[str, str]) -> str:
    """`, status 243/CREDENTIALS`; nothing where there was none."""
    number = shown.get("ExecMainStatus", "0")
    name = f"/{EXITS[number]}" if number in EXITS else ""
    return f", status {number}{name}" if shown.get("Result") == "exit-code" else ""


# ---- settings that hurt -------------------------------------------------------------------------------------------


class Rule(Struct, frozen=True):
    """`broken` by the settings of the service, drop-ins included; mended by `line`."""

    broken: Callable[[list[str]], bool]
    what: str
    why: str
    line: str
    error: bool = False


def _yes(name: str) -> Callable[[list[str]], bool]:
    return lambda lines: unitfiles.last(lines, name).lower() in ("yes", "true", "1", "on", "self", "identity")


def _other(name: str, *good: str) -> Callable[[list[str]], bool]:
    return lambda lines: unitfiles.last(lines, name).lower() not in good


def _no_resources(lines: list[str]) -> bool:
    """`~@resources` takes sched_setaffinity away, unless it is given back afterwards."""
    filters = [line.partition("=")[2] for line in lines if line.startswith("SystemCallFilter=")]
    taken = max((n for n, value in enumerate(filters) if re.match(r"~.*@resources\b", value)), default=None)
    return taken is not None and not any("sched_setaffinity" in value for value in filters[taken + 1 :])


RULES: Final = (
    Rule(
        _yes("PrivateUsers"),
        "PrivateUsers=yes",
        "local callers all look like nobody (65534)",
        "PrivateUsers=no",
        error=True,
    ),
    Rule(
        lambda lines: unitfiles.last(lines, "ProcSubset") == "pid",
        "ProcSubset=pid",
        "/proc/meminfo is hidden: the watchdog cannot see memory",
        "ProcSubset=all",
        error=True,
    ),
    Rule(
        _no_resources,
        "SystemCallFilter=~@resources",
        "compute threads cannot be pinned to their cores",
        "SystemCallFilter=sched_setaffinity setpriority",
    ),
    Rule(
        _other("Restart", "on-failure", "always", "on-abnormal"),
        "no Restart=on-failure",
        "a daemon that ends or hangs stays away until somebody starts it",
        "Restart=on-failure",
    ),
    Rule(
        _other("OOMPolicy", "continue"),
        "no OOMPolicy=continue",
        "when the kernel kills the worker for memory, systemd stops the whole service",
        "OOMPolicy=continue",
    ),
    Rule(
        _other("RuntimeDirectoryPreserve", "yes", "true", "1", "on", "restart"),
        "no RuntimeDirectoryPreserve=yes",
        "a restart loses accepted requests (journal: ram)",
        "RuntimeDirectoryPreserve=yes",
    ),
    Rule(
        _other("LimitCORE", "0", "0:0"),
        "no LimitCORE=0",
        "a crash may write gigabytes onto the card",
        "LimitCORE=0",
    ),
)


def check_settings(box: Box) -> list[Finding]:
    ours = [text for path, text in unitfiles.texts(box).items() if manager.SERVICE in path]
    lines = [line for text in ours for line in unitfiles.settings(text)]
    need_s = box.config.limits.drain_s + box.config.cache.save_s + SPARE_S
    wrong = needs.missing(box, lines) if box.installed else []
    wrong += limits.judge(lines, memory.all_wanted(box), memory.total(box)) if lines else []
    return wrong + judge_settings(lines, need_s, box.config.model_path, fine=not wrong)


def judge_settings(lines: list[str], stop_s: float, model: str, *, fine: bool = True) -> list[Finding]:
    """`stop_s`: how long a stop may take. `fine`: say so when it is."""
    if not lines:
        return [finding.info(SETTINGS, "no unit is installed")]
    out = []
    for rule in RULES:
        if rule.broken(lines):
            make = finding.error if rule.error else finding.warning
            out.append(make(SETTINGS, rule.what, rule.why, f"sudo systemctl edit edged: {rule.line}"))
    allowed = seconds(unitfiles.last(lines, "TimeoutStopSec"))
    if allowed is not None and allowed < stop_s:
        why = f"limits.drain_s + cache.save_s + {SPARE_S:g} s are {stop_s:g} s: systemd kills it in between"
        do = f"sudo systemctl edit edged: TimeoutStopSec={stop_s:g}; or smaller limits"
        out.append(finding.warning(SETTINGS, f"TimeoutStopSec={allowed:g}", why, do))
    home = unitfiles.last(lines, "ProtectHome").lower() in ("yes", "true", "1", "on", "tmpfs")
    if home and model.startswith(("/home/", "/root/", "/run/user/")):
        why = "the service cannot see home directories (ProtectHome=)"
        do = "edgectl model import FILE as root, so that it lies in /var/lib/edged/models"
        out.append(finding.error(SETTINGS, f"model.path is {model}", why, do))
    return out or [finding.ok(SETTINGS, "nothing in the unit stands against the service")] * fine


_UNITS: Final = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 0.001, "min": 60.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """systemd.time(7), as far as it is used: `30`, `1min 30s`. None: infinity, or nothing that is understood."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    if not parts or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
