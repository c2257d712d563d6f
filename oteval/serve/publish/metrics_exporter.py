"""Export of the metrics over OTLP, converted from the Prometheus registry.

The OpenTelemetry SDK's instruments and readers are not used: with them, /metrics would lose the
``*_created`` series, a counter would take three times as long, and a series beyond the SDK's limit
would change the labels of all others. See docs/decisions/001-every-dependency-has-a-reason.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client import CollectorRegistry

from ...base.clients.otlp_client import OtlpClient
from ...scoring import OWN_SCOPE, key_values
from .metrics import ScoringMetrics

__all__ = ["MetricsExporter", "otlp_request"]

_log = logging.getLogger(__name__)
_CUMULATIVE = otlp.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


class MetricsExporter:
    """Sends the metrics to an OTLP endpoint at intervals, from its own thread.

    A failed request is not retried: the next request has the same totals and newer ones.

    Args:
        metrics: The metrics.
        client: The endpoint.
        interval: Seconds between two requests.
    """

    def __init__(self, metrics: ScoringMetrics, client: OtlpClient, interval: float = 60.0) -> None:
        self._metrics, self._client, self._interval = metrics, client, interval
        self._stop = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="oteval-metrics", daemon=True)
        self._thread.start()

    def send(self) -> bool:
        """Send the current metrics; return whether the endpoint accepted them."""
        request = otlp_request(self._metrics.registry, time.time_ns())
        result = self._client.export("metrics", request.SerializeToString())
        if not result.is_accepted and not self._has_failed:
            _log.warning("%s: metrics: %s %s", self._client.url, result.status, result.reason)
        self._has_failed = not result.is_accepted
        return result.is_accepted

    def close(self) -> None:
        """Send the metrics once more, and stop."""
        self._stop.set()
        self._thread.join(timeout=30.0)
        self._client.close()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.send()
        self.send()


def otlp_request(
    registry: CollectorRegistry, now: int, service: str = "oteval"
) -> ExportMetricsServiceRequest:
    """Convert a registry's metrics to an OTLP request.

    Args:
        registry: The registry.
        now: The time (ns).
        service: The ``service.name`` of the resource.
    """
    metrics = [metric for family in registry.collect() for metric in _metrics(family, now)]
    scoped = otlp.ScopeMetrics(scope=InstrumentationScope(name=OWN_SCOPE), metrics=metrics)
    resource = Resource(attributes=key_values({"service.name": service}))
    return ExportMetricsServiceRequest(
        resource_metrics=[otlp.ResourceMetrics(resource=resource, scope_metrics=[scoped])]
    )


def _metrics(family: Any, now: int) -> Iterator[otlp.Metric]:
    name, about = family.name, family.documentation
    if family.type == "counter":
        began = {_labels(s.labels): s.value for s in family.samples if s.name.endswith("_created")}
        points = [
            _point(s.labels, s.value, now, began.get(_labels(s.labels)))
            for s in family.samples
            if s.name.endswith("_total")
        ]
        total = otlp.Sum(data_points=points, is_monotonic=True, aggregation_temporality=_CUMULATIVE)
        yield otlp.Metric(name=name, description=about, sum=total)
    elif family.type == "histogram":
        histogram = otlp.Histogram(
            data_points=_histogram_points(family, now), aggregation_temporality=_CUMULATIVE
        )
        yield otlp.Metric(name=name, description=about, histogram=histogram)
    elif family.type == "gauge":
        points = [_point(s.labels, s.value, now, None) for s in family.samples]
        yield otlp.Metric(name=name, description=about, gauge=otlp.Gauge(data_points=points))


def _labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in labels.items() if key != "le"))


def _point(
    labels: Mapping[str, str], value: float, now: int, began: float | None
) -> otlp.NumberDataPoint:
    return otlp.NumberDataPoint(
        attributes=key_values(labels),
        time_unix_nano=now,
        start_time_unix_nano=0 if began is None else int(began * 1e9),
        as_double=value,
    )


def _histogram_points(family: Any, now: int) -> list[otlp.HistogramDataPoint]:
    points: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        point = points.setdefault(_labels(sample.labels), {"bounds": [], "counts": []})
        kind = sample.name.removeprefix(family.name)
        if kind == "_bucket":
            point["bounds"].append(float(sample.labels["le"]))
            point["counts"].append(int(sample.value))
        else:
            point[kind] = sample.value
    return [_histogram_point(labels, point, now) for labels, point in points.items()]


def _histogram_point(
    labels: tuple[tuple[str, str], ...], point: Mapping[str, Any], now: int
) -> otlp.HistogramDataPoint:
    # A bucket of Prometheus includes the smaller ones; a bucket of OTLP does not.
    counts = [n - before for n, before in zip(point["counts"], [0, *point["counts"]], strict=False)]
    return otlp.HistogramDataPoint(
        attributes=key_values(dict(labels)),
        time_unix_nano=now,
        start_time_unix_nano=int(point.get("_created", 0) * 1e9),
        count=sum(counts),
        sum=point.get("_sum", 0.0),
        bucket_counts=counts,
        explicit_bounds=point["bounds"][:-1],
    )
