"""The page: facts in, HTML out. Pure, but for the local time zone.

It needs nothing but itself: no script, and a policy that forbids fetching anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import yaml

from edged.cli import glance
from edged.cli.happened import happened, local
from edged.cli.report.charts import figures
from edged.cli.report.facts import Facts
from edged.cli.report.markup import Child, Markup, el, join
from edged.cli.report.style import STYLE
from edged.cli.words import duration, words
from edged.doctor import Finding, Severity
from edged.doctor.finding import RANK

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
COLOURS: Final = {"good": "good", "warning": "warning", "error": "error"}
FINE: Final = (Severity.OK, Severity.INFO)
OUTCOMES: Final = (("finished_", "with a result"), ("failed_", "with an error"), ("refused_", "refused"))


def page(facts: Facts) -> str:
    title = f"edged on {facts.host}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        el("style", Markup(STYLE)),
    )
    body = el(
        "body",
        el("h1", title),
        el(
            "p",
            f"Made {local(facts.made, '%Y-%m-%d %H:%M:%S %Z')} by edgectl report. No text of requests.",
            class_="soft",
        ),
        *_state(facts),
        *_doctor(facts),
        *_hour(facts),
        *_incidents(facts),
        *_outcomes(facts),
        *_machine(facts),
        *_settings(facts),
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def _state(facts: Facts) -> list[Markup]:
    if facts.down:
        why = el("div", "The daemon does not answer: ", facts.down, class_="note error")
        return [el("p", "no answer", class_="state error"), why, el("p", f"asked at {facts.endpoint}", class_="soft")]
    rows = list(glance.glance(facts.status, facts.made))
    state, _, rest = next(value for label, value in rows if label == "state").partition(", ")
    colour = {"ready": "good", "unavailable": "error"}.get(state.partition(" ")[0], "warning")
    warnings = [el("div", el("span", text), class_="note warning") for label, text in rows if label == "warning"]
    shown = [(label, value) for label, value in rows if label not in ("state", "warning") and value]
    model = facts.status.get("model")
    build = model.get("build") if isinstance(model, dict) else None
    if build:
        shown.append(("engine", words(build)))
    return [
        el("p", state, el("span", f", {rest}", class_="soft"), class_=f"state {colour}"),
        *warnings,
        _table(shown),
    ]


def _doctor(facts: Facts) -> list[Markup]:
    if facts.findings is None:
        return []
    worth = sorted((f for f in facts.findings if f.severity not in FINE), key=lambda f: RANK[f.severity], reverse=True)
    rest = len(facts.findings) - len(worth)
    out: list[Child] = [_finding(finding) for finding in worth]
    if rest:
        out.append(
            el("p", f"{rest} {'check has' if rest == 1 else 'checks have'} nothing to complain about.", class_="soft")
        )
    return [el("h2", "Doctor"), join(*out)]


def _finding(finding: Finding) -> Markup:
    colour = finding.severity if finding.severity in COLOURS else ""
    why = el("div", finding.why, class_="soft") if finding.why else None
    do = el("div", finding.do) if finding.do else None
    return el("div", el("b", f"{finding.check}: {finding.what}"), why, do, class_=f"note {colour}")


def _hour(facts: Facts) -> list[Markup]:
    if facts.past is None or not facts.past.length:
        return []
    drawn = figures(facts.past)
    span = duration(facts.past.length * facts.past.interval_s)
    note = f"The last {span}. A gap: the daemon was stopped, or the box asleep. Shaded: warm, hot or critical. "
    note += "Dashed: see Incidents."
    return [el("h2", "The last hour"), el("p", note, class_="soft"), *drawn]


def _incidents(facts: Facts) -> list[Markup]:
    if facts.past is None:
        return []
    rows = []
    for event in reversed(facts.past.events):
        what = happened(event)
        rows.append(
            el(
                "tr",
                el("td", local(event.get("time")), class_="time"),
                el("td", what.text, class_=COLOURS.get(what.weight)),
            )
        )
    if not rows:
        return []
    note = "What happened since the daemon started, 200 events at most, the newest first."
    return [el("h2", "Incidents"), el("p", note, class_="soft"), el("table", *rows)]


def _outcomes(facts: Facts) -> list[Markup]:
    counters = facts.status.get("counters")
    if not isinstance(counters, dict):
        return []
    rows, taken = [], set()
    for prefix, how in OUTCOMES:
        for name in sorted(name for name in counters if name.startswith(prefix)):
            taken.add(name)
            rows.append((f"{how}: {name.removeprefix(prefix)}", words(counters[name])))
    rest = [(name.replace("_", " "), words(value)) for name, value in sorted(counters.items()) if name not in taken]
    requests = [el("h2", "Requests by outcome"), _numbers(rows) if rows else el("p", "none yet", class_="soft")]
    return [el("div", el("div", *requests), el("div", el("h2", "Counters"), _numbers(rest)), class_="columns")]


def _machine(facts: Facts) -> list[Markup]:
    def shown(name: str, value: str) -> str:
        try:
            return duration(float(value)) if name == "up" else value
        except ValueError:
            return value

    rows = [(name, shown(name, value)) for name, value in facts.machine]
    where = f"The machine where this page was made. The daemon was asked at {facts.endpoint}."
    return [el("h2", "Machine and versions"), el("p", where, class_="soft"), _table(rows)]


def _settings(facts: Facts) -> list[Markup]:
    settings = facts.settings
    title = el("h2", "Configuration")
    if settings.wrong:
        return [title, el("div", f"{settings.path} is wrong: {settings.wrong}", class_="note error")]
    out = [title, el("p", f"{settings.path}; without secrets.", class_="soft")]
    if settings.changed:
        rows = [
            el("tr", el("td", key), el("td", _json(value)), el("td", _json(usual), class_="soft"))
            for key, (value, usual) in settings.changed.items()
        ]
        out.append(el("table", el("tr", el("th", "changed"), el("th", "is"), el("th", "default")), *rows))
    else:
        out.append(el("p", "Nothing differs from the defaults."))
    whole = yaml.safe_dump(settings.every, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return [*out, el("h2", "All of it"), el("pre", whole)]


def _table(rows: Iterable[tuple[str, str]]) -> Markup:
    return el("table", *(el("tr", el("th", name), el("td", value)) for name, value in rows), class_="facts")


def _numbers(rows: Sequence[tuple[str, str]]) -> Markup:
    return el("table", *(el("tr", el("td", name), el("td", value, class_="number")) for name, value in rows))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
