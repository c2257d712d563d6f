"""Check the monitors of oteval.yaml while the server runs, and deliver their notifications.

Everything that lasts is in the store: a worker that is killed continues where the last committed
check ended. No failure here disturbs receiving or scoring. A failure is logged when it begins and
when it ends, counted in the metrics, and named in /readyz.

It is a thread, because a check takes only 1% of the CPU time for storing and scoring its runs, and
a process would need the libraries in memory once more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from .. import __version__
from ..base.text import counted
from ..monitor import require_packages
from ..scoring import Config
from ..store import Notification, Store, is_short_of_memory
from .upkeep import shortage

if TYPE_CHECKING:
    from ..monitor import DeliveryResult, MonitorStatus, Outbox
    from ..store import Notification

__all__ = [
    "STATES",
    "MonitorMetrics",
    "MonitorWorker",
]

_log = logging.getLogger(__name__)

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


_POLL = 0.05  # seconds between two interruptions of a check


class _Stopped(Exception):
    """The server stops."""


class MonitorWorker:
    """A thread that checks monitors at intervals.

    Without monitors in the configuration it only waits, and imports neither numpy nor apprise.

    Args:
        store: The store; the thread uses a sibling of it.
        config: Returns the configuration in force.
        registry: The registry where metrics are added, once there are monitors.
        interval: The seconds between two checks.
        clock: The time of day (ns).
    """

    def __init__(
        self,
        store: Store,
        config: Callable[[], Config],
        registry: CollectorRegistry,
        *,
        interval: float,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store.sibling()
        self._config, self._registry = config, registry
        self._interval, self._clock = interval, clock
        self._metrics: MonitorMetrics | None = None
        self._outbox: Outbox | None = None
        self._outbox_of: Config | None = None
        self._state: dict[str, Any] = {}
        self._error = ""
        self._failing: dict[str, str] = {}
        self._refused = 0
        self._closing = threading.Event()
        self._is_checking = False
        self._thread = threading.Thread(target=self._run, name="monitors", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing new; a check that is running is undone, a delivery is finished."""
        self._closing.set()

    def close(self, timeout: float) -> None:
        """End.

        Args:
            timeout: The seconds to wait for a delivery that is running. If it takes longer, it is
                repeated at the next start.
        """
        self._closing.set()
        until = time.monotonic() + timeout
        while self._thread.is_alive() and time.monotonic() < until:
            if self._is_checking:
                self._store.interrupt()
            self._thread.join(_POLL)
        if not self._thread.is_alive():
            self._store.close()

    def state(self) -> dict[str, Any]:
        """The state for people and for /readyz; empty without monitors."""
        return self._state

    def _run(self) -> None:
        while not self._closing.is_set():
            config = self._config()
            has_space = not shortage(self._store.path)
            if not config.monitors:
                self._state, self._failing, self._refused = {}, {}, 0
                if has_space:
                    self._end_removed(config)
            elif has_space:
                self._tick(config)
            self._closing.wait(self._interval)

    def _tick(self, config: Config) -> None:
        """Check, deliver, and report."""
        if self._metrics is None:
            self._metrics = MonitorMetrics(self._registry)
        begun = time.monotonic()
        statuses: Sequence[MonitorStatus] = ()
        try:
            statuses = self._check(config)
            self._note_error("")
        except _Stopped:
            return
        except Exception as error:
            if self._closing.is_set():
                return
            if is_short_of_memory(error):
                self._store.raise_memory_limit(2)
            self._note_error(_reason(error))
        is_ok = not self._error
        self._metrics.count_check(time.monotonic() - begun, self._clock(), is_ok=is_ok)
        try:
            done = self._deliver(config)
            waiting, refused = self._store.outbox.waiting(), self._store.outbox.refused()
        except Exception as error:
            self._note_error(_reason(error))
            return
        self._note_deliveries(done)
        self._report(statuses if is_ok else None, waiting, refused)

    def _end_removed(self, config: Config) -> None:
        """End the episodes of removed monitors if the configuration has no monitors."""
        error = ""
        try:
            # The row without a name stores the position of versions.
            stored_monitors = self._store.monitors.monitors()
            if set(stored_monitors) - {""}:
                from ..monitor import end_removed

                end_removed(self._store, config, stored_monitors, self._clock(), self._pause)
                done = self._deliver(config)
                if self._metrics is not None:
                    self._note_deliveries(done)
        except (_Stopped, ImportError):
            # The packages may have been removed with the monitors.
            return
        except Exception as failure:
            error = _reason(failure)
            if error != self._error and not self._closing.is_set():
                _log.error("removed monitors are not ended: %s", error)
        self._error, self._failing = error, {}

    def _check(self, config: Config) -> Sequence[MonitorStatus]:
        require_packages(config)
        from ..monitor import check

        self._is_checking = True
        try:
            return check(self._store, config, self._clock(), self._pause)
        finally:
            # Before `_closing` is read, so that no interruption meets a delivery.
            self._is_checking = False

    def _pause(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise _Stopped

    def _deliver(self, config: Config) -> Sequence[tuple[Notification, DeliveryResult]]:
        if self._outbox is None or self._outbox_of is not config:
            from ..monitor import Outbox

            self._outbox = Outbox(self._store.outbox, config.notify, version=__version__)
            self._outbox_of = config
        return self._outbox.pump(self._clock(), self._closing.is_set)

    def _note_error(self, error: str) -> None:
        """Log an error when it begins, and its end."""
        if error and error != self._error:
            _log.error("monitors are not checked: %s", error)
        elif self._error and not error:
            _log.info("monitors are checked again")
        self._error = error
        self._state = {**self._state, "error": error or None, "problems": self._problems()}

    def _note_deliveries(self, done: Sequence[tuple[Notification, DeliveryResult]]) -> None:
        """Count attempts, and log attempts when a destination begins or ceases to fail."""
        assert self._metrics is not None
        self._metrics.count_attempts(done)
        for notification, result in done:
            name = notification.destination
            if result.is_refused:
                _log.error("%s refused %s: %s", name, notification.notification_id, result.error)
            elif not result.is_delivered:
                if name not in self._failing:
                    _log.error("%s: %s waits: %s", name, notification.notification_id, result.error)
                self._failing[name] = result.error
            else:
                _log.info("%s: %s is delivered", name, notification.notification_id)
                self._failing.pop(name, None)

    def _report(
        self,
        statuses: Sequence[MonitorStatus] | None,
        waiting: Sequence[Notification],
        refused: Sequence[Notification],
    ) -> None:
        assert self._metrics is not None
        self._refused = len(refused)
        self._metrics.set_undelivered(waiting=len(waiting), refused=self._refused)
        for name in set(self._failing) - {notification.destination for notification in waiting}:
            del self._failing[name]
        self._state = {
            **self._state,
            "waiting": len(waiting),
            "refused": self._refused,
            "problems": self._problems(),
        }
        if statuses is None:
            return
        groups: dict[str, Tally[str]] = {}
        for status in statuses:
            groups.setdefault(status.monitor, Tally())[status.state] += 1
        self._metrics.set_groups(groups)
        self._state = {
            **self._state,
            "checked_ns": self._clock(),
            "groups": {name: dict(states) for name, states in groups.items()},
        }

    def _problems(self) -> list[str]:
        problems = [f"monitors are not checked: {self._error}"] if self._error else []
        problems += [
            f"notifications for {name} wait: {error}" for name, error in self._failing.items()
        ]
        if self._refused:
            count = counted(self._refused, "notification")
            problems.append(f"{count} refused; `oteval monitor status` names them")
        return problems


def _reason(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
