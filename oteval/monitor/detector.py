"""The interface of all detectors: observations in, alarms and recoveries out.

A detector belongs to one group of one monitor. It starts in the state ok. An alarm takes it to
alert; a recovery takes it back to ok, and then it starts over. Detectors are exact under any
partition of their input: two calls of ``update`` with the halves of a sequence return the alarms of
one call with the whole, and a detector restored from ``state()`` continues as the original would.

Observations are values in [0, 1], lower is worse. NaN and values outside are refused, because a
detector that skipped them would be silent about a broken measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ..base.errors import InputError

__all__ = ["Alarm", "Detector", "Floats", "Ints", "checked"]

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
