"""Rules on sliding windows: a threshold, and the comparison of two windows.

A rule on windows is in alert while its condition is true, and recovers when it no longer is. So the
change is not estimated: its interval is the window.

`Threshold` alerts while the mean of the last 60 minutes is below a limit. Most alerting systems
have this rule. Its false alarms depend on the traffic: few scores in an hour make their mean vary
widely. `oteval monitor simulate` prints its rate for a history; docs/explanation/monitors.md has
the rate for simulated ones. Prefer the e-detector.

Source: Google 2016, "Site Reliability Engineering", chapter 10, alerts on time series.

`TwoWindows` alerts while the last hour has more failures than the day before. A failure is a value
below a limit. At every observation, Fisher's exact test compares the failures of the last 60
minutes with the failures of the 24 hours before. The level applies to one test, not to the
thousands of a month, and the windows overlap: docs/explanation/monitors.md has its false alarms. A
slow decline moves both windows and is not found.

Source: Fisher 1922, "On the interpretation of chi-squared from contingency tables".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from .detector import Alarm, Floats, Ints, checked

__all__ = [
    "HOUR_NS",
    "Threshold",
    "TwoWindows",
    "WindowedRule",
    "fisher",
]

HOUR_NS = 3_600_000_000_000


class WindowedRule(ABC):
    """A rule about the observations of the last hours, checked at every observation.

    Attributes:
        window_ns: The length of the recent window.
    """

    def __init__(self, *, window_ns: int, reach_ns: int) -> None:
        self.window_ns = window_ns
        self._reach_ns = reach_ns
        self._values: Floats = np.empty(0)
        self._times: Ints = np.empty(0, np.int64)
        self._index = 0
        self._alerting = False

    @property
    def alerting(self) -> bool:
        """Whether the condition was true at the last observation."""
        return self._alerting

    @property
    def evidence(self) -> float:
        """0 or 1: a rule on windows accumulates nothing."""
        return float(self._alerting)

    def update(self, values: npt.ArrayLike, times_ns: npt.ArrayLike) -> list[Alarm]:
        """Add observations and check the rule at each; the later of two times counts for both."""
        new, times = checked(values, times_ns)
        if not len(new):
            return []
        old = len(self._values)
        joined = np.concatenate([self._values, new])
        reached = np.maximum.accumulate(np.concatenate([self._times, times]))
        holds = self._holds(joined, reached, old)
        before = np.concatenate([[self._alerting], holds[:-1]])
        alarms = [
            self._alarm(joined, reached, old + int(turn), alert=bool(holds[turn]))
            for turn in np.flatnonzero(holds != before)
        ]
        self._alerting = bool(holds[-1])
        self._index += len(new)
        keep = int(np.searchsorted(reached, reached[-1] - self._reach_ns, side="right"))
        self._values, self._times = joined[keep:], reached[keep:]
        return alarms

    def state(self) -> dict[str, Any]:
        """The observations of the windows, and whether the condition is true."""
        return {
            "index": self._index,
            "alerting": self._alerting,
            "values": self._values.tolist(),
            "times": self._times.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the windows of a state that `state` returned."""
        self._index = state["index"]
        self._alerting = state["alerting"]
        self._values = np.array(state["values"], np.float64)
        self._times = np.array(state["times"], np.int64)

    @abstractmethod
    def _holds(self, values: Floats, times: Ints, first: int) -> npt.NDArray[np.bool_]:
        """Whether the condition is true at each observation from ``first`` on."""

    def _alarm(self, values: Floats, times: Ints, at: int, *, alert: bool) -> Alarm:
        start = int(np.searchsorted(times, times[at] - self.window_ns, side="right"))
        oldest = int(np.searchsorted(times, times[at] - self._reach_ns, side="right"))
        older = values[oldest:start]
        return Alarm(
            kind="alert" if alert else "recovered",
            index=self._index + at - len(self._values),
            time_ns=int(times[at]),
            change_ns=int(times[start]),
            change_from_ns=int(times[at] - self.window_ns),
            change_to_ns=int(times[at]),
            before=float(older.mean()) if len(older) else float(values[start]),
            after=float(values[start : at + 1].mean()),
            observations=at + 1 - start,
        )


class Threshold(WindowedRule):
    """Alerts while the mean of the window is below a limit.

    Attributes:
        below: The limit.
        least: The least number of observations in the window; with fewer, nothing is alerted.
    """

    def __init__(self, *, below: float, window_ns: int = HOUR_NS, least: int = 1) -> None:
        super().__init__(window_ns=window_ns, reach_ns=2 * window_ns)
        self.below = below
        self.least = least

    def _holds(self, values: Floats, times: Ints, first: int) -> npt.NDArray[np.bool_]:
        sums = np.concatenate([[0.0], np.cumsum(values)])
        ends = np.arange(first, len(values)) + 1
        starts = np.searchsorted(times, times[first:] - self.window_ns, side="right")
        counts = ends - starts
        means = (sums[ends] - sums[starts]) / counts
        is_alarm: npt.NDArray[np.bool_] = (means < self.below) & (counts >= self.least)
        return is_alarm


class TwoWindows(WindowedRule):
    """Alerts while Fisher's exact test finds more failures in the recent window.

    Attributes:
        failure_below: Values below this limit are failures.
        before_ns: The length of the window before.
        level: The p-value below which the rule alerts.
    """

    def __init__(
        self,
        *,
        failure_below: float = 0.5,
        window_ns: int = HOUR_NS,
        before_ns: int = 24 * HOUR_NS,
        level: float = 0.001,
    ) -> None:
        super().__init__(window_ns=window_ns, reach_ns=window_ns + before_ns)
        self.failure_below = failure_below
        self.before_ns = before_ns
        self.level = level

    def _holds(self, values: Floats, times: Ints, first: int) -> npt.NDArray[np.bool_]:
        failures = np.concatenate([[0], np.cumsum(values < self.failure_below)])
        ends = np.arange(first, len(values)) + 1
        middles = np.searchsorted(times, times[first:] - self.window_ns, side="right")
        starts = np.searchsorted(
            times, times[first:] - self.window_ns - self.before_ns, side="right"
        )
        is_alarm: npt.NDArray[np.bool_] = (
            fisher(
                failures[ends] - failures[middles],
                ends - middles,
                failures[middles] - failures[starts],
                middles - starts,
            )
            < self.level
        )
        return is_alarm


def fisher(
    failures: npt.ArrayLike, size: npt.ArrayLike, before: npt.ArrayLike, before_size: npt.ArrayLike
) -> Floats:
    """The one-sided p-values of Fisher's exact test for more failures than before.

    Args:
        failures: The failures in each recent window.
        size: The observations in it.
        before: The failures in the window before.
        before_size: The observations in it.
    """
    a, n, b, m = (
        np.atleast_1d(np.asarray(part, np.int64)) for part in (failures, size, before, before_size)
    )
    total = a + b
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int((n + m).max(initial=0)) + 1)))])

    def choose(of: Ints, take: Ints) -> Floats:
        result: Floats = logs[of] - logs[take] - logs[of - take]
        return result

    term = np.exp(choose(n, a) + choose(m, b) - choose(n + m, total))
    tail = term.copy()
    for step in range(int((np.minimum(n, total) - a).max(initial=0))):
        x = a + step
        term = term * np.maximum(n - x, 0) * np.maximum(total - x, 0)
        term = term / ((x + 1.0) * np.maximum(m - total + x + 1.0, 1.0))
        tail += term
        if float(term.max()) < 1e-12:
            break
    return np.minimum(tail, 1.0)
