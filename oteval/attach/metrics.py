"""Metrics of live scoring: on /metrics as Prometheus has them, and over OTLP.

A registry of its own, so that a process with metrics of its own can have several. Agents are
labels; of an evaluator only the first 200 are told apart, since names come from outside.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ..errors import ConfigError
from ..model import Score
from .attributes import key_values
from .otlp_client import OtlpClient
from .trace_requests import OWN_SCOPE

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
except ImportError as error:
    raise ConfigError('metrics take prometheus-client: pip install "oteval[serve]"') from error

__all__ = ["CONTENT_TYPE", "Metrics", "MetricsExporter", "otlp_request"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_log = logging.getLogger(__name__)
_MOST_AGENTS = 200
_WINDOW = 200
_SCORE_BUCKETS = tuple(n / 10 for n in range(11))
_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_CUMULATIVE = otlp.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def _of_queue(name: str, parts: str) -> dict[str, str]:
    return {
        f"{name}_waiting_requests": f"{parts} that wait to be sent.",
        f"{name}_bytes": "Bytes on disk that are held, wait to be sent or were refused for good.",
        f"{name}_ok": "Whether the endpoint took the last request.",
        f"{name}_failing_seconds": "For how long it has taken none; 0 when it took the last.",
        f"{name}_refused_kept": "Requests refused for good that `oteval resend` would send.",
    }


_GAUGES = {
    "open_traces": "Traces that are not complete.",
    "oldest_open_trace_seconds": "The age of the oldest of them.",
    "put_off": "Evaluations that failed or are over budget and are done later.",
    "config_ok": "Whether oteval.yaml could be read when it last changed.",
}
_FORWARD_GAUGES = {
    "forward_held_spans": "Spans held for their scores.",
    "forward_oldest_seconds": "The age of the oldest of them.",
    "forward_quota_bytes": "The most bytes there may be.",
    **_of_queue("forward", "Parts of requests"),
}
_EVENTS_GAUGES = _of_queue("events", "Requests")
_COUNTERS = {
    "config_reloads": "How often oteval.yaml was taken anew.",
    "config_failures": "How often it could not be.",
}
_FORWARD_COUNTERS = {
    "forward_sent_spans": "Spans sent on.",
    "forward_rejected_spans": "Spans that the endpoint left out of requests that it took.",
    "forward_refused": "Requests refused for good, and kept.",
    "forward_looped_spans": "Spans that came back or came twice.",
}
_EVENTS_COUNTERS = {
    "events_sent": "Events sent.",
    "events_rejected": "Events that the endpoint left out of requests that it took.",
    "events_refused": "Requests refused for good, and kept.",
}


class Metrics:
    """What live scoring counts; other parts may add their own to `registry`.

    Attributes:
        registry: The registry.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        by_agent = ("evaluator", "agent")
        self._scores = Counter(
            "oteval_scores", "Scores by outcome.", (*by_agent, "status"), registry=registry
        )
        self._verdicts = Counter(
            "oteval_verdicts", "Scores that pass or fail.", (*by_agent, "passed"), registry=registry
        )
        self._values = Histogram(
            "oteval_score", "Values of scores.", by_agent, buckets=_SCORE_BUCKETS, registry=registry
        )
        self._rate = Gauge(
            "oteval_pass_rate",
            f"Share of passes among the last {_WINDOW} verdicts and errors.",
            by_agent,
            registry=registry,
        )
        self._took = Histogram(
            "oteval_evaluation_seconds",
            "How long evaluations took.",
            ("evaluator",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._lag = Histogram(
            "oteval_scoring_lag_seconds",
            "From a trace's completion to its score.",
            ("evaluator",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._cost = Counter(
            "oteval_cost_dollars", "What judges cost.", ("evaluator",), registry=registry
        )
        self._to_judge = Gauge(
            "oteval_to_judge", "Trajectories that wait.", ("evaluator",), registry=registry
        )
        self._agents: dict[str, set[str]] = {}
        self._recent: dict[tuple[str, str], deque[bool]] = {}
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._failures: dict[str, Counter] = {}
        self._counted: dict[tuple[str, str], float] = {}
        self._follow(_GAUGES, _COUNTERS)
        self._gauges["config_ok"].set(1)

    def follow_forward(self) -> None:
        """Show figures of forwarding; without, there are none."""
        self._follow_endpoint("forward", _FORWARD_GAUGES, _FORWARD_COUNTERS)

    def follow_events(self) -> None:
        """Show figures of log events; without, there are none."""
        self._follow_endpoint("events", _EVENTS_GAUGES, _EVENTS_COUNTERS)

    def _follow_endpoint(
        self, name: str, gauges: Mapping[str, str], counters: Mapping[str, str]
    ) -> None:
        if name in self._failures:
            return
        self._follow(gauges, counters)
        self._gauges[f"{name}_ok"].set(1)
        self._failures[name] = Counter(
            f"oteval_{name}_failures", "Requests that failed.", ("status",), registry=self.registry
        )

    def _follow(self, gauges: Mapping[str, str], counters: Mapping[str, str]) -> None:
        """Make metrics for what is taken over from others' figures."""
        for name, text in gauges.items():
            self._gauges[name] = Gauge(f"oteval_{name}", text, registry=self.registry)
        for name, text in counters.items():
            self._counters[name] = Counter(f"oteval_{name}", text, registry=self.registry)

    def scored(self, score: Score, agent: str, seconds: float, lag: float) -> None:
        """Count a score.

        Args:
            score: The score.
            agent: The agent's name.
            seconds: How long the evaluation took.
            lag: How long after the trace was complete it came (s).
        """
        labels = (score.evaluator, self._agent(score.evaluator, agent))
        self._scores.labels(*labels, score.status).inc()
        self._took.labels(score.evaluator).observe(seconds)
        self._lag.labels(score.evaluator).observe(lag)
        if score.score is not None:
            self._values.labels(*labels).observe(score.score)
        if score.passed is not None:
            self._verdicts.labels(*labels, str(score.passed).lower()).inc()
        if score.passed is not None or score.status == "error":
            # As everywhere: a run on which the evaluator failed did not pass.
            recent = self._recent.setdefault(labels, deque(maxlen=_WINDOW))
            recent.append(score.passed is True)
            self._rate.labels(*labels).set(sum(recent) / len(recent))

    def paid(self, evaluator: str, cost: float) -> None:
        """Count what an evaluation cost (US dollars)."""
        if cost > 0:
            self._cost.labels(evaluator).inc(cost)

    def scoring(
        self,
        *,
        open_traces: int,
        oldest: float,
        to_judge: Mapping[str, int],
        put_off: int,
        config_error: bool,
        reloads: int,
        failures: int,
    ) -> None:
        """Take over how live scoring stands."""
        self._gauges["open_traces"].set(open_traces)
        self._gauges["oldest_open_trace_seconds"].set(oldest)
        self._gauges["put_off"].set(put_off)
        self._gauges["config_ok"].set(not config_error)
        for name, count in to_judge.items():
            self._to_judge.labels(name).set(count)
        self._count("config_reloads", reloads)
        self._count("config_failures", failures)

    def forwarding(self, state: Mapping[str, Any]) -> None:
        """Take over how forwarding stands: `Forwarder.state`."""
        self.follow_forward()
        self._gauges["forward_held_spans"].set(state["held_spans"])
        self._gauges["forward_oldest_seconds"].set(state["oldest_seconds"])
        self._gauges["forward_quota_bytes"].set(state["quota"])
        self._count("forward_sent_spans", state["sent"])
        self._count("forward_rejected_spans", state["rejected"])
        self._count("forward_looped_spans", state["looped"])
        self._queue("forward", state)

    def emitting(self, state: Mapping[str, Any]) -> None:
        """Take over how the log events stand: `Events.state`."""
        self.follow_events()
        self._count("events_sent", state["sent"])
        self._count("events_rejected", state["rejected"])
        self._queue("events", state)

    def _queue(self, name: str, state: Mapping[str, Any]) -> None:
        for figure in ("waiting_requests", "bytes", "failing_seconds", "refused_kept"):
            self._gauges[f"{name}_{figure}"].set(state[figure])
        self._gauges[f"{name}_ok"].set(state["error"] is None)
        self._count(f"{name}_refused", state["refused"])
        for status, count in state["failures"].items():
            grown = count - self._counted.get((f"{name}_failures", status), 0)
            self._counted[f"{name}_failures", status] = count
            self._failures[name].labels(status).inc(grown)

    def text(self) -> bytes:
        """Return all as Prometheus reads it."""
        return bytes(generate_latest(self.registry))

    def _agent(self, evaluator: str, agent: str) -> str:
        known = self._agents.setdefault(evaluator, set())
        if agent not in known and len(known) >= _MOST_AGENTS:
            return "other"
        known.add(agent)
        return agent

    def _count(self, name: str, total: float) -> None:
        """Bring a counter to a total that only grows."""
        grown = total - self._counted.get((name, ""), 0)
        self._counted[name, ""] = total
        self._counters[name].inc(max(0, grown))


def otlp_request(
    registry: CollectorRegistry, now: int, service: str = "oteval"
) -> ExportMetricsServiceRequest:
    """Return a registry's metrics as an OTLP request.

    Args:
        registry: The registry.
        now: The time (ns).
        service: The ``service.name`` of the resource.
    """
    found = [metric for family in registry.collect() for metric in _metrics(family, now)]
    scoped = otlp.ScopeMetrics(scope=InstrumentationScope(name=OWN_SCOPE), metrics=found)
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
        held = otlp.Histogram(
            data_points=_histogram_points(family, now), aggregation_temporality=_CUMULATIVE
        )
        yield otlp.Metric(name=name, description=about, histogram=held)
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
    # Prometheus' buckets count all that is smaller, OTLP's only what is between two bounds.
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


class MetricsExporter:
    """Sends metrics to an OTLP endpoint now and then, from a thread of its own.

    What cannot be sent is not sent again: the next request holds the same counts and newer ones.

    Args:
        metrics: The metrics.
        client: The endpoint.
        interval: How often (s).
    """

    def __init__(self, metrics: Metrics, client: OtlpClient, interval: float = 60.0) -> None:
        self._metrics, self._client, self._interval = metrics, client, interval
        self._stop = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="oteval-metrics", daemon=True)
        self._thread.start()

    def send(self) -> bool:
        """Send the metrics as they are now; return whether they were taken."""
        request = otlp_request(self._metrics.registry, time.time_ns())
        result = self._client.export("metrics", request.SerializeToString())
        if not result.is_accepted and not self._has_failed:
            _log.warning("%s: metrics: %s %s", self._client.url, result.status, result.reason)
        self._has_failed = not result.is_accepted
        return result.is_accepted

    def close(self) -> None:
        """Send once more, and end."""
        self._stop.set()
        self._thread.join(timeout=30.0)
        self._client.close()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.send()
        self.send()
