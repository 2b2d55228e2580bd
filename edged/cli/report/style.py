"""How the page looks: light and dark, on paper, on a phone. No font, image or script comes from anywhere."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --back: #ffffff; --card: #f5f6f8; --text: #1b1f24; --soft: #59636e; --rule: #d5d9de;
  --good: #1a7f37; --warning: #8a5a00; --error: #c0242f; --heat: #c2410c; --memory: #0969da; --speed: #1a7f37;
  --second: #8250df;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #0f1318; --card: #181d24; --text: #e4e8ec; --soft: #98a2ad; --rule: #313943;
    --good: #4cc266; --warning: #dba63a; --error: #ff7b72; --heat: #fb8f55; --memory: #58a6ff; --speed: #4cc266;
    --second: #b992ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.2rem; max-width: 62rem; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.45rem; margin: 0 0 .2rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--rule); }
p { margin: .4rem 0; }
.soft { color: var(--soft); }
.good { color: var(--good); } .warning { color: var(--warning); } .error { color: var(--error); }
.state { font-size: 1.15rem; font-weight: 600; }
.note { background: var(--card); border-left: 4px solid var(--rule); padding: .5rem .8rem; margin: .5rem 0; }
.note.warning { border-color: var(--warning); } .note.error { border-color: var(--error); }
.note > * { color: var(--text); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .22rem .9rem .22rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--soft); }
td { overflow-wrap: anywhere; }
table.facts th { width: 11rem; font-weight: 400; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.time { white-space: nowrap; font-variant-numeric: tabular-nums; width: 11rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 0 2rem; }
figure { margin: 1rem 0 1.4rem; break-inside: avoid; }
figcaption { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin-bottom: .25rem; }
figcaption b { font-weight: 600; margin-right: auto; }
.chart { display: grid; grid-template-columns: 4.2rem 1fr; }
.scale {
  display: flex; flex-direction: column; justify-content: space-between; text-align: right; padding-right: .5rem;
  color: var(--soft); font-size: .8rem; line-height: 1; font-variant-numeric: tabular-nums;
}
.chart svg { width: 100%; height: 7.5rem; display: block; background: var(--card); }
.times { grid-column: 2; display: flex; justify-content: space-between; color: var(--soft); font-size: .8rem; }
.grid { stroke: var(--rule); stroke-width: 1; vector-effect: non-scaling-stroke; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.area { opacity: .16; }
.heat { stroke: var(--heat); } .area.heat, .bar.heat { fill: var(--heat); stroke: none; }
.memory { stroke: var(--memory); } .area.memory { fill: var(--memory); stroke: none; }
.speed { stroke: var(--speed); } .area.speed { fill: var(--speed); stroke: none; }
.second { stroke: var(--second); } .area.second { fill: var(--second); stroke: none; }
.bar.good { fill: var(--good); } .bar.warning { fill: var(--warning); } .bar.error { fill: var(--error); }
.band.warm { fill: #e3b341; opacity: .25; } .band.hot { fill: #f0883e; opacity: .35; }
.band.critical { fill: #f85149; opacity: .4; }
.mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; vector-effect: non-scaling-stroke; }
.mark.error { stroke: var(--error); } .mark.warning { stroke: var(--warning); }
.key { display: inline-block; width: .75rem; height: .75rem; margin-right: .3rem; vertical-align: -1px; }
.key.heat { background: var(--heat); } .key.memory { background: var(--memory); }
.key.speed { background: var(--speed); } .key.second { background: var(--second); }
.key.good { background: var(--good); }
.key.warning { background: var(--warning); } .key.error { background: var(--error); }
pre {
  background: var(--card); padding: .8rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .82rem/1.4 ui-monospace, "DejaVu Sans Mono", monospace;
}
@media (max-width: 34rem) {
  body { padding: .8rem; font-size: 14px; }
  .chart { grid-template-columns: 3.2rem 1fr; }
  td.time, table.facts th { width: auto; }
  td.time { white-space: normal; }
}
@media print {
  :root { color-scheme: light; --back: #fff; --card: #fff; --text: #000; --soft: #444; --rule: #bbb; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .chart svg { border: 1px solid var(--rule); print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2 { break-after: avoid; } tr { break-inside: avoid; }
}
"""
