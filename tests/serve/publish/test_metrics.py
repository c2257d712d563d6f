"""Metrics, in the format of Prometheus and in OTLP."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus_client.parser import text_string_to_metric_families

from oteval.base.clients.otlp_client import HttpClient
from oteval.serve.publish.metrics import ScoringMetrics
from oteval.serve.publish.metrics_exporter import MetricsExporter, otlp_request

from ...make import score
from ...otlp_endpoint import Downstream


def filled() -> ScoringMetrics:
    metrics = ScoringMetrics()
    for passed in (True, True, False):
        result = score(passed=passed, score=float(passed))
        metrics.count_scores("e", [("refunds", result)], seconds=0.01, lag=0.2, cost=0.125)
    metrics.count_scores("e", [("refunds", score(status="error"))], seconds=1.0, lag=2.0)
    return metrics


def samples(metrics: ScoringMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    text = metrics.text().decode()
    return {
        (sample.name, tuple(v for _, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_scores_are_counted_by_evaluator_and_agent() -> None:
    """/metrics has scores, verdicts, costs and a pass rate in which an error is not a pass."""
    values = samples(filled())

    assert values["oteval_scores_total", ("refunds", "e", "ok")] == 3
    assert values["oteval_scores_total", ("refunds", "e", "error")] == 1
    assert values["oteval_verdicts_total", ("refunds", "e", "true")] == 2
    assert values["oteval_pass_rate", ("refunds", "e")] == 0.5
    assert values["oteval_cost_dollars_total", ("e",)] == 0.375
    assert values["oteval_score_count", ("refunds", "e")] == 3


def test_the_names_of_agents_cannot_fill_the_memory() -> None:
    """Agents after the first 200 share one label."""
    metrics = ScoringMetrics()
    for number in range(500):
        metrics.count_scores("e", [(f"agent {number}", score())], seconds=0.1)

    agents = {labels[0] for name, labels in samples(metrics) if name == "oteval_scores_total"}

    assert len(agents) == 201
    assert samples(metrics)["oteval_scores_total", ("other", "e", "ok")] == 300


def test_forwarding_is_counted_up() -> None:
    """Counters follow the totals of the forwarder."""
    metrics = ScoringMetrics()
    state: dict[str, Any] = {
        "held_spans": 3,
        "oldest_seconds": 1.5,
        "waiting_requests": 2,
        "bytes": 10,
        "quota": 100,
        "error": "503: x",
        "sent": 5,
        "refused": 0,
        "rejected": 2,
        "looped": 1,
        "failures": {"503": 2},
        "failing_seconds": 7.0,
        "refused_kept": 4,
    }
    metrics.update_forward(state)
    before = samples(metrics)
    metrics.update_events({**state, "sent": 5})
    metrics.update_forward(
        {**state, "sent": 9, "failures": {"503": 3}, "error": None, "failing_seconds": 0.0}
    )

    after = samples(metrics)
    assert after["oteval_forward_sent_spans_total", ()] == 9
    assert after["oteval_forward_failures_total", ("503",)] == 3
    assert after["oteval_forward_ok", ()] == 1
    assert after["oteval_forward_held_spans", ()] == 3
    assert before["oteval_forward_failing_seconds", ()] == 7
    assert after["oteval_forward_failing_seconds", ()] == 0
    assert after["oteval_forward_refused_kept", ()] == 4
    assert after["oteval_forward_rejected_spans_total", ()] == 2
    assert after["oteval_events_rejected_total", ()] == 2
    assert after["oteval_events_sent_total", ()] == 5
    assert after["oteval_events_ok", ()] == 0


def test_otlp_says_the_same() -> None:
    """Counters become monotonic sums, histograms have counts per bucket, gauges their value."""
    request = otlp_request(filled().registry, 5)
    metrics = {m.name: m for m in request.resource_metrics[0].scope_metrics[0].metrics}

    scores = metrics["oteval_scores"].sum
    assert scores.is_monotonic
    assert sum(point.as_double for point in scores.data_points) == 4
    assert all(point.start_time_unix_nano for point in scores.data_points)
    data_points = metrics["oteval_score"].histogram.data_points[0]
    assert (data_points.count, data_points.sum) == (3, 2.0)
    assert sum(data_points.bucket_counts) == 3
    assert len(data_points.bucket_counts) == len(data_points.explicit_bounds) + 1
    assert data_points.bucket_counts[0] == 1
    assert metrics["oteval_pass_rate"].gauge.data_points[0].as_double == 0.5


def test_they_are_sent_at_the_end_too(downstream: Downstream) -> None:
    """The metrics of a short-lived process arrive when it closes."""
    exporter = MetricsExporter(filled(), HttpClient(downstream.url), interval=3600)
    exporter.close()

    request = ExportMetricsServiceRequest.FromString(downstream.bodies("/v1/metrics")[0])
    assert request.resource_metrics[0].scope_metrics[0].scope.name == "oteval"
