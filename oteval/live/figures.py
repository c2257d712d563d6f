"""The metrics of the listening process, as Prometheus has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Figures"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Figures:
    """Counts requests, and shows how spool and store stand."""

    def __init__(self, stand: Callable[[], Mapping[str, Any]]) -> None:
        """Begin at zero.

        Args:
            stand: How it stands, asked each time the metrics are read.
        """
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "oteval_received_requests", "Requests by what they hold and what became of them.",
            ("signal", "outcome"), registry=self._registry,
        )  # fmt: skip
        self._items = Counter(
            "oteval_received_items", "Spans and log records acknowledged.",
            ("signal",), registry=self._registry,
        )  # fmt: skip
        self._rejected = Counter(
            "oteval_rejected_items", "Spans without valid ids, told to their senders.",
            ("signal",), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "oteval_request_seconds", "From a request's headers to its answer.",
            ("signal",), buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._registry.register(_Stand(stand))

    def observe(self, signal: str, outcome: str, good: int, rejected: int, seconds: float) -> None:
        """Count a request in."""
        self._requests.labels(signal, outcome).inc()
        if outcome == "ok":
            self._items.labels(signal).inc(good)
            self._seconds.labels(signal).observe(seconds)
        if rejected:
            self._rejected.labels(signal).inc(rejected)

    def text(self) -> bytes:
        """Return them in Prometheus' text format."""
        return generate_latest(self._registry)


# Of what the storing process says of itself.
_STORED = {
    "spans": ("oteval_stored_spans", "Spans stored since the storing process began."),
    "logs": ("oteval_stored_logs", "Log records stored since the storing process began."),
    "duplicates": ("oteval_stored_duplicates", "Spans and log records that were there already."),
    "lost_bytes": ("oteval_spool_lost_bytes", "Spooled bytes that the disk damaged."),
    "rejected": ("oteval_store_rejected_requests", "Requests kept in rejected/."),
    "commits": ("oteval_store_commits", "Transactions since the storing process began."),
}
_GAUGES = {
    "spool_bytes": ("oteval_spool_bytes", "Bytes of the spool's segments."),
    "spool_quota": ("oteval_spool_quota_bytes", "Bytes that they may have."),
    "left_bytes": ("oteval_spool_left_bytes", "Spooled bytes that are not stored yet."),
    "oldest_seconds": (
        "oteval_spool_oldest_seconds",
        "For how long the oldest acknowledged request waits to be stored.",
    ),
    "lag": ("oteval_store_lag_seconds", "From receipt to storage, of the oldest last stored."),
    "slowest_commit": ("oteval_store_slowest_commit_seconds", "The longest transaction."),
    "is_ready": ("oteval_ready", "1 while traces are taken and stored."),
    "is_storing": ("oteval_storing", "1 while the storing process runs."),
}


class _Stand:
    def __init__(self, stand: Callable[[], Mapping[str, Any]]) -> None:
        self._stand = stand

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        stand = self._stand()
        stored = stand.get("stored", {})
        for key, (name, text) in _STORED.items():
            yield CounterMetricFamily(name, text, value=stored.get(key, 0))
        for key, (name, text) in _GAUGES.items():
            value = stand.get(key, stored.get(key, 0))
            yield GaugeMetricFamily(name, text, value=float(value or 0))
        yield GaugeMetricFamily(
            "oteval_spool_losses", "Gaps found in the spool when the storing process began.",
            value=float(len(stand.get("losses", ()))),
        )  # fmt: skip
        restarts = CounterMetricFamily(
            "oteval_store_restarts", "How often the storing process ended by itself.",
            value=stand.get("restarts", 0),
        )  # fmt: skip
        yield restarts
