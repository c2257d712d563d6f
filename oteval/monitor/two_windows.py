"""The two-window rule: alert while the last hour has more failures than the day before.

A failure is a value below a limit. At every observation, Fisher's exact test compares the failures
of the last 60 minutes with the failures of the 24 hours before. The level applies to one test, not
to the thousands of a month, and the windows overlap: docs/explanation/monitors.md has its false
alarms. A slow decline moves both windows and is not found.

Source: Fisher 1922, "On the interpretation of chi-squared from contingency tables".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .detector import Floats, Ints
from .windowed_rule import HOUR_NS, WindowedRule

__all__ = ["TwoWindows", "fisher"]


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
