"""Metrics of several replicas, added up."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from attendo.serve import ray_metrics
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.ray_metrics import MetricsCollector, merge_metrics

Values = dict[tuple[str, tuple[str, ...]], float]


def make_text(tokens: int, times: int, in_flight: int) -> str:
    metrics = ServerMetrics()
    metrics.count_tokens("demo", tokens, 2 * tokens)
    for _ in range(times):
        metrics.observe_times(0.003, 0.2)
    metrics._in_flight.inc(in_flight)
    return generate_latest(metrics.registry).decode()


def read(text: bytes) -> Values:
    families = text_string_to_metric_families(text.decode())
    return {(each.name, tuple(each.labels.values())): each.value for family in families for each in family.samples}


def test_counters_histograms_and_gauges_are_added() -> None:
    found = read(merge_metrics([(make_text(3, 1, 1), True), (make_text(4, 2, 1), True)]))
    assert found["attendo_source_tokens_total", ("demo",)] == 7
    assert found["attendo_target_tokens_total", ("demo",)] == 14
    assert found["attendo_queue_seconds_count", ()] == 3
    assert found["attendo_queue_seconds_bucket", ("0.005",)] == 3
    assert found["attendo_decoding_seconds_bucket", ("0.1",)] == 0
    assert found["attendo_decoding_seconds_sum", ()] == pytest.approx(0.6)
    assert found["attendo_in_flight_requests", ()] == 2


def test_names_and_types_are_those_of_one_replica() -> None:
    text = make_text(3, 1, 1)
    alone, merged = text, merge_metrics([(text, True)]).decode()
    types = [sorted(line for line in each.splitlines() if line.startswith("# TYPE") and "_created" not in line)
             for each in (alone, merged)]  # fmt: skip
    assert types[0] == types[1]


def test_a_replica_that_ended_keeps_its_counts_but_not_its_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(ray_metrics.time, "monotonic", lambda: now)
    collector = MetricsCollector()
    collector.report("one", make_text(3, 1, 1))
    now += 11
    found = read(collector.report("two", make_text(4, 1, 0)))
    assert found["attendo_source_tokens_total", ("demo",)] == 7
    assert found["attendo_in_flight_requests", ()] == 0
    assert read(collector.report("two", make_text(5, 1, 0)))["attendo_source_tokens_total", ("demo",)] == 8
