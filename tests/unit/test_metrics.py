"""The service's figures as metrics: their names, their labels, and the page that lists them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from edged.config import Watchdog
from edged.messages import CacheFacts
from edged.observe import watch
from edged.observe.metrics import Family, Snapshot, buckets, families
from edged.observe.status import status_fields
from edged.watchdog.ladder import Course
from edged.watchdog.policy import Policy
from edged.watchdog.readings import Readings
from unit.rig import Rig
from unit.test_status import facts

PAGE = Path(__file__).parents[2] / "docs/operations.md"
BOARD = PAGE.parents[1] / "deploy/grafana/edged.json"
READINGS = Readings(
    zones={"cpu-thermal": 51.5},
    temperature_c=51.5,
    throttled=True,
    soft_limit=False,
    under_voltage=False,
    capped=False,
    frequency_khz=1_500_000,
    frequency_max_khz=1_800_000,
    memory_total=4 << 30,
    memory_available=3 << 30,
    swap_free=0,
    psi_some10=12.5,
    worker_anon=100 << 20,
    worker_swap=1 << 20,
)


def everything() -> list[Family]:
    """All that there can be."""
    rig = Rig()
    verdict = Policy(Watchdog()).observe(READINGS, 0.0)
    rig.lives.pace.counters.update({"accepted": 3, "finished_stop": 2, "failed_worker_lost": 1, "refused_busy": 4})
    rig.lives.pace.counters["prefill_tokens"] = 70
    rig.lives.pace.first_token.add(0.3)
    rig.lives.pace.tokens_per_second = 9.5
    known = facts(
        watch=watch.fields(READINGS, verdict, Course(), 1.0),
        ends={"SIGSEGV": 1, "heat": 2},
        cache=CacheFacts(*range(13)),
        sessions={"count": 1, "bytes": 2, "failures": 0, "set_aside": 0},
        journal={"mode": "disk", "ram_bytes": 3, "disk_bytes": 4, "waiting_bytes": 0},
    )
    status = status_fields(rig.lives, rig.config, known)
    pace = rig.lives.pace
    return families(Snapshot(status, buckets(pace.first_token), buckets(pace.interval)), 30 << 20)


def samples(name: str) -> dict[Any, float]:
    return dict(next(family for family in everything() if family.name == name).samples)


def test_figures():
    assert samples("edged_requests_total") == {("stop",): 2, ("worker_lost",): 1}
    assert samples("edged_requests_refused_total") == {("busy",): 4}
    assert samples("edged_incidents_total") == {("malformed",): 3}
    assert samples("edged_prefill_tokens_total") == {(): 70}
    assert samples("edged_worker_ends_total") == {("SIGSEGV",): 1, ("heat",): 2}
    assert samples("edged_temperature_celsius") == {("cpu-thermal",): 51.5}
    assert samples("edged_throttled") == {(): 1}
    assert samples("edged_memory_pressure_ratio") == {(): 0.125}
    assert samples("edged_worker_memory_bytes") == {(): 101 << 20}
    assert samples("edged_journal_bytes") == {("ram",): 3, ("disk",): 4}


def test_what_is_unknown_is_not_told():
    rig = Rig()
    status = status_fields(rig.lives, rig.config, facts(ready=None, slots=None))
    pace = rig.lives.pace
    names = {f.name for f in families(Snapshot(status, buckets(pace.first_token), buckets(pace.interval)), None)}
    told = {"edged_temperature_celsius", "edged_throttled", "edged_memory_available_bytes", "edged_daemon_memory_bytes"}
    assert names.isdisjoint(told)
    assert {"edged_ready", "edged_requests_accepted_total", "edged_model_info"} <= names


def row(family: Family) -> str:
    return f"| `{family.name}` | {', '.join(f'`{label}`' for label in family.labels)} | {family.help} |".replace(
        "|  |", "| |"
    )


def test_the_page_lists_them_all():
    listed = re.findall(r"^\| `edged_.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [row(family) for family in everything()]


def test_the_dashboard_is_one_that_grafana_shows():
    """Panels have numbers of their own, places of their own, and the data source that was chosen."""
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in own) < 24
        assert cells.isdisjoint(own), panel["title"]
        cells |= own
        assert panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "instance"]


def test_no_two_have_one_name():
    names = [family.name for family in everything()]
    assert len(names) == len(set(names))
