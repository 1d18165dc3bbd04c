"""Metrics of all replicas of a Ray Serve deployment: each replica reports to one actor, and all answer /metrics.

Counters and histograms of replicas that have ended stay in the sums. Their gauges, such as requests in flight, do not.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

ACTOR_NAME, NAMESPACE = "attendo-metrics", "attendo"
REPORT_SECONDS = 2.0  # between two reports of a replica
_MAX_AGE_SECONDS = 10.0  # of the last report of a replica that is alive


class MetricsCollector:
    """Holds the last report of every replica. It runs as a Ray actor."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[str, float]] = {}  # replica → text and time

    def report(self, replica: str, text: str) -> bytes:
        """Store the metrics of a replica, and return those of all."""
        now = time.monotonic()
        self._reports[replica] = (text, now)
        return merge_metrics([(text, now - then < _MAX_AGE_SECONDS) for text, then in self._reports.values()])


def merge_metrics(reports: Iterable[tuple[str, bool]]) -> bytes:
    """Add up metrics in Prometheus' format: of each replica the text, and whether it is alive."""
    merged: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for text, is_alive in reports:
        for family in text_string_to_metric_families(text):
            if family.type == "gauge" and not is_alive:
                continue
            merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            values = sums.setdefault(family.name, {})
            for sample in family.samples:
                series = (sample.name, tuple(sorted(sample.labels.items())))
                values[series] = values.get(series, 0.0) + sample.value
    for family_name, values in sums.items():
        for (name, labels), value in values.items():
            merged[family_name].add_sample(name, dict(labels), value)
    return generate_latest(_Merged(merged.values()))


class _Merged:
    """Metrics in the form that prometheus_client writes."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        # Times of creation cannot be added.
        yield from (each for each in self._families if not each.name.endswith("_created"))


def connect_collector() -> Any:
    """Return the actor, which the first replica starts. It is detached: it must outlive that replica."""
    import ray

    options = {"name": ACTOR_NAME, "namespace": NAMESPACE, "get_if_exists": True}
    return ray.remote(MetricsCollector).options(**options, lifetime="detached", num_cpus=0).remote()
