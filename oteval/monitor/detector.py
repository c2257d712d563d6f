"""The interface of all detectors, and the budget of false alarms that they share.

A detector belongs to one group of one monitor. It starts in the state ok. An alarm takes it to
alert; a recovery takes it back to ok, and then it starts over. Detectors are exact under any
partition of their input: two calls of ``update`` with the halves of a sequence return the alarms of
one call with the whole, and a detector restored from ``state()`` continues as the original would.

Observations are values in [0, 1], lower is worse. NaN and values outside are refused, because a
detector that skipped them would be silent about a broken measure.

A changing set of groups shares a budget. A budget such as ``1 per 30d`` is spent continuously: a
detector receives an allowance for every observation, and alarms at most with the probability of the
sum of its allowances while nothing is wrong. The allowance of an observation is

    alarms * share * (time since the previous observation) / period

so that the allowances of a group in any 30 days add up to its share of the budget, whatever its
traffic. This bounds false alarms where the condition of the detector holds; see `e_detector`. The
allowances of all groups add up to the budget, as long as the shares of the groups that are live
at any moment add up to at most 1. Every live group has the share 1 / (number of live groups). A new
group lowers the shares of the others from then on. Past spending is unaffected, and nobody's
promise is loosened. A group that ends leaves its share to the others from then on.

Source: an e-detector whose increments are not 1 but the allowances; by Ville's inequality for its
difference with their sum (Shin, Ramdas, Rinaldo 2022, https://arxiv.org/abs/2203.03532).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..base.errors import InputError

__all__ = [
    "DAY_NS",
    "Alarm",
    "Detector",
    "Floats",
    "Ints",
    "checked",
    "spending",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Alarm:
    """One change of a detector's state.

    Attributes:
        kind: ``alert`` when the values became worse, ``recovered`` when they became better again.
        index: The observation that caused it, counted from 0 since the detector was created.
        time_ns: Its time.
        change_ns: The estimated time of the change: the first observation after it.
        change_from_ns: The earliest plausible time of the change.
        change_to_ns: The latest plausible time of the change.
        before: The mean before the change (of the baseline for an alert).
        after: The mean since the estimated change.
        observations: The number of observations since the estimated change.
    """

    kind: Literal["alert", "recovered"]
    index: int
    time_ns: int
    change_ns: int
    change_from_ns: int
    change_to_ns: int
    before: float
    after: float
    observations: int


class Detector(Protocol):
    """Decides from observations in order whether a group got worse, and whether it recovered."""

    @property
    def alerting(self) -> bool:
        """Whether the last alarm has not been followed by a recovery."""

    @property
    def evidence(self) -> float:
        """How near the next alarm is, from 0 to 1; 1 while alerting.

        It is on a logarithmic scale where the detector accumulates evidence: at 0.5 the detector
        has gone half the way in the logarithm of its statistic.
        """

    def update(self, values: npt.ArrayLike, times_ns: npt.ArrayLike) -> list[Alarm]:
        """Add observations in order and return the alarms and recoveries they caused."""

    def state(self) -> dict[str, Any]:
        """Everything that the next update depends on, as plain JSON."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned."""


def checked(values: npt.ArrayLike, times_ns: npt.ArrayLike) -> tuple[Floats, Ints]:
    """Return observations and their times as arrays.

    Raises:
        InputError: A value is not in [0, 1], or there is not one time for each value.
    """
    checked_values = np.atleast_1d(np.asarray(values, dtype=np.float64))
    times = np.atleast_1d(np.asarray(times_ns, dtype=np.int64))
    if checked_values.ndim != 1 or checked_values.shape != times.shape:
        raise InputError(
            f"observations of shape {checked_values.shape} with times of shape {times.shape}; "
            "pass one time for each value"
        )
    wrong = np.flatnonzero(~((checked_values >= 0.0) & (checked_values <= 1.0)))
    if wrong.size:
        raise InputError(
            f"observation {wrong[0]} is {checked_values[wrong[0]]}; "
            "a measure must be between 0 and 1"
        )
    return checked_values, times


DAY_NS = 86_400_000_000_000


def spending(alarms: float = 1.0, period_ns: int = 30 * DAY_NS, *, live_groups: int = 1) -> float:
    """The allowance of false alarms per nanosecond of one of the live groups of a monitor.

    Args:
        alarms: At most this many false alarms in a period, expected, over all groups.
        period_ns: The period.
        live_groups: The number of live groups.
    """
    return alarms / period_ns / max(1, live_groups)
