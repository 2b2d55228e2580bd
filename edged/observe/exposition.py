"""Metrics as Prometheus reads them. The only importer of prometheus_client, and itself imported only when they are on.

A registry of our own, without the collectors of process and platform, which would say what nobody asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from edged.observe.metrics import Buckets, Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Given(Collector):
    """What is told is what was given."""

    def __init__(self) -> None:
        self.families: Iterable[Family] = ()

    def collect(self) -> Iterator[Metric]:
        for family in self.families:
            yield _metric(family)


class Exposition:
    def __init__(self) -> None:
        self._given = _Given()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._given)

    def text(self, families: Iterable[Family]) -> bytes:
        self._given.families = families
        return generate_latest(self._registry)


def _metric(family: Family) -> Metric:
    if family.buckets is not None:
        return _histogram(family, family.buckets)
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, found: Buckets) -> HistogramMetricFamily:
    bounds = [*(repr(bound) for bound in found.bounds), "+Inf"]
    metric = HistogramMetricFamily(family.name, family.help)
    metric.add_metric([], list(zip(bounds, found.cumulative, strict=True)), found.sum)
    return metric
