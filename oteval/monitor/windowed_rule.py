"""The common part of detectors on sliding windows: the observations of the last hours.

A rule on windows is in alert while its condition is true, and recovers when it no longer is. So the
change is not estimated: its interval is the window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from .detector import Alarm, Floats, Ints, checked

__all__ = ["HOUR_NS", "WindowedRule"]

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
