"""The threshold rule: alert while the mean of the last 60 minutes is below a limit.

Most alerting systems have this rule. Its false alarms depend on the traffic: few scores
in an hour make their mean vary widely. `oteval monitor simulate` prints its rate for a history;
docs/explanation/monitors.md has the rate for simulated ones. Prefer the e-detector.

Source: Google 2016, "Site Reliability Engineering", chapter 10, alerts on time series.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .detector import Floats, Ints
from .windowed_rule import HOUR_NS, WindowedRule

__all__ = ["Threshold"]


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
