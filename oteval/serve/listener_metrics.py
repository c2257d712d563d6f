"""The Prometheus metrics of the listening process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["ListenerMetrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class ListenerMetrics:
    """Counts requests, and reports the state of the spool and of the storage process.

    Args:
        state: Returns the state of the server, at each scrape; see `ServerStatus.read`.
    """

    def __init__(self, state: Callable[[], Mapping[str, Any]]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "oteval_received_requests", "Requests by signal and outcome.",
            ("signal", "outcome"), registry=self._registry,
        )  # fmt: skip
        self._items = Counter(
            "oteval_received_items", "Spans and log records acknowledged.",
            ("signal",), registry=self._registry,
        )  # fmt: skip
        self._rejected = Counter(
            "oteval_rejected_items", "Spans without valid ids, reported to their senders.",
            ("signal",), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "oteval_request_seconds", "From a request's headers to its response.",
            ("signal",), buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._registry.register(_StateCollector(state))

    def observe(self, signal: str, outcome: str, good: int, rejected: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(signal, outcome).inc()
        if outcome == "ok":
            self._items.labels(signal).inc(good)
            self._seconds.labels(signal).observe(seconds)
        if rejected:
            self._rejected.labels(signal).inc(rejected)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


# From the state that the storage process reports.
_STORED = {
    "spans": ("oteval_stored_spans", "Spans stored since the storage process was started."),
    "logs": ("oteval_stored_logs", "Log records stored since the storage process was started."),
    "duplicates": ("oteval_stored_duplicates", "Spans and log records that the store had already."),
    "lost_bytes": ("oteval_spool_lost_bytes", "Spooled bytes that the disk damaged."),
    "rejected": ("oteval_store_rejected_requests", "Requests kept in rejected/."),
    "commits": ("oteval_store_commits", "Transactions since the storage process was started."),
}
_GAUGES = {
    "spool_bytes": ("oteval_spool_bytes", "Bytes of the spool's segments."),
    "spool_quota": ("oteval_spool_quota_bytes", "Quota of the spool's segments in bytes."),
    "left_bytes": ("oteval_spool_left_bytes", "Spooled bytes that are not stored yet."),
    "oldest_seconds": (
        "oteval_spool_oldest_seconds",
        "Age of the oldest acknowledged request that is not stored.",
    ),
    "lag": (
        "oteval_store_lag_seconds",
        "From receipt to storage, of the oldest request in the last transaction.",
    ),
    "slowest_commit": ("oteval_store_slowest_commit_seconds", "The longest transaction."),
    "is_ready": ("oteval_ready", "1 while traces are accepted and stored."),
    "is_storing": ("oteval_storing", "1 while the storage process runs."),
}


class _StateCollector:
    """Turns the state of the server into metrics."""

    def __init__(self, state: Callable[[], Mapping[str, Any]]) -> None:
        self._state = state

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        stored = state.get("stored", {})
        for key, (name, text) in _STORED.items():
            yield CounterMetricFamily(name, text, value=stored.get(key, 0))
        for key, (name, text) in _GAUGES.items():
            value = state.get(key, stored.get(key, 0))
            yield GaugeMetricFamily(name, text, value=float(value or 0))
        yield GaugeMetricFamily(
            "oteval_spool_losses", "Gaps found in the spool when the storage process was started.",
            value=float(len(state.get("losses", ()))),
        )  # fmt: skip
        restarts = CounterMetricFamily(
            "oteval_store_restarts", "How often the storage process ended by itself.",
            value=state.get("restarts", 0),
        )  # fmt: skip
        yield restarts
