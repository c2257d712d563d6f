"""Metrics about monitors in a server: checks, the states of groups, and notifications."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge

if TYPE_CHECKING:
    from ..monitor import DeliveryResult
    from ..store import Notification

__all__ = ["STATES", "MonitorMetrics"]

STATES = ("learning", "ok", "warn", "alert", "recovered", "no_data")


class MonitorMetrics:
    """The metrics about monitors; only a server with monitors has them.

    Args:
        registry: The registry of Prometheus where they are added.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._checks = Counter(
            "oteval_monitor_checks", "Checks of monitors.", ("status",), registry=registry
        )
        self._seconds = Counter(
            "oteval_monitor_check_seconds", "Time that checks took.", registry=registry
        )
        self._last = Gauge(
            "oteval_monitor_last_check_timestamp_seconds",
            "When monitors were last checked.",
            registry=registry,
        )
        self._groups = Gauge(
            "oteval_monitor_groups",
            "Groups by monitor and state.",
            ("monitor", "state"),
            registry=registry,
        )
        self._attempts = Counter(
            "oteval_notifications",
            "Attempts to deliver notifications of monitors.",
            ("destination", "status"),
            registry=registry,
        )
        self._undelivered = Gauge(
            "oteval_notifications_undelivered",
            "Notifications that wait for an attempt, or were refused.",
            ("status",),
            registry=registry,
        )
        for status in ("ok", "failed"):
            self._checks.labels(status)
        for status in ("waiting", "refused"):
            self._undelivered.labels(status)

    def count_check(self, seconds: float, now_ns: int, *, is_ok: bool) -> None:
        """Count a check.

        Args:
            seconds: Its duration.
            now_ns: The time (ns).
            is_ok: Whether it succeeded.
        """
        self._checks.labels("ok" if is_ok else "failed").inc()
        self._seconds.inc(seconds)
        if is_ok:
            self._last.set(now_ns / 1e9)

    def set_groups(self, states_by_monitor: Mapping[str, Mapping[str, int]]) -> None:
        """Set the number of groups in each state, by monitor; other series are removed."""
        self._groups.clear()
        for monitor, states in states_by_monitor.items():
            for state in STATES:
                self._groups.labels(monitor, state).set(states.get(state, 0))

    def count_attempts(self, done: Iterable[tuple[Notification, DeliveryResult]]) -> None:
        """Count attempts to deliver notifications."""
        tally: Tally[tuple[str, str]] = Tally()
        for notification, result in done:
            status = "refused" if result.is_refused else "failed"
            tally[notification.destination, "delivered" if result.is_delivered else status] += 1
        for labels, count in tally.items():
            self._attempts.labels(*labels).inc(count)

    def set_undelivered(self, *, waiting: int, refused: int) -> None:
        """Set the number of notifications that are not delivered."""
        self._undelivered.labels("waiting").set(waiting)
        self._undelivered.labels("refused").set(refused)
