"""Observations summed up by the hour, to learn patterns of hours and weekdays from.

`Hours` are the means of hours. `HourlySums` collects them over four weeks for a detector, in little
space and in whole numbers, so that the sums do not depend on how checks divided the observations.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .detector import DAY_NS, Floats, Ints

__all__ = ["HOUR_NS", "STEPS", "HourlySums", "Hours"]

HOUR_NS = DAY_NS // 24
STEPS = 255
"""Values are kept in such steps, which is precise enough."""

_KEPT = 28 * 24
_COLUMNS = 4
_MONDAY = 3  # 1 January 1970 was a Thursday.


@dataclass(frozen=True, slots=True)
class Hours:
    """The hours with observations: numbers since 1970, counts and means."""

    numbers: Ints
    counts: Floats
    means: Floats

    @classmethod
    def of(cls, values: Floats, times: Ints) -> Hours:
        """The hours of observations, at least one."""
        hours = times // HOUR_NS
        first = int(hours.min())
        counts = np.bincount(hours - first)
        sums = np.bincount(hours - first, values)
        return cls.of_sums(first, counts, sums)

    @classmethod
    def of_sums(cls, first: int, counts: npt.NDArray[Any], sums: npt.NDArray[Any]) -> Hours:
        """The hours that have observations; the sums begin at the hour ``first``."""
        numbers = np.flatnonzero(counts)
        return cls(
            numbers + first, counts[numbers].astype(np.float64), sums[numbers] / counts[numbers]
        )

    @property
    def of_day(self) -> Ints:
        """The hours of the day (UTC), from 0 to 23."""
        return self.numbers % 24

    def often_seen(self) -> int:
        """How many of the 24 hours of the day were seen on two days or more."""
        return int(np.sum(np.bincount(self.of_day, minlength=24) >= 2))

    def joined(self, size: int) -> Hours:
        """The means of successive stretches of some hours, with their own numbers."""
        if not len(self.numbers):
            return self
        stretches = self.numbers // size
        first = int(stretches[0])
        counts = np.bincount(stretches - first, self.counts)
        sums = np.bincount(stretches - first, self.counts * self.means)
        return Hours.of_sums(first, counts, sums)


def weekday(hours: Ints) -> Ints:
    """The days of the week of hours since 1970, from 0 for Monday."""
    return (hours // 24 + _MONDAY) % 7


class HourlySums:
    """The sums of the newest four weeks, by the hour: of all observations, and of the quiet ones.

    Observations outside of episodes are quiet.
    """

    def __init__(self) -> None:
        self._first = 0
        # For each hour: the count and the sum of all observations, and of the quiet ones.
        self._sums = np.zeros((_COLUMNS, 0), np.int64)

    def add(self, values: Floats, times: Ints, is_quiet: npt.NDArray[np.bool_]) -> None:
        """Add observations, except for observations older than four weeks."""
        if not len(values):
            return
        hours = times // HOUR_NS
        last = max(int(hours.max()), self._first + self._sums.shape[1] - 1)
        if not self._sums.shape[1]:
            self._first = int(hours.min())
        first = max(self._first, last - _KEPT + 1)
        sums = np.zeros((_COLUMNS, last - first + 1), np.int64)
        recent_sums = self._sums[:, max(0, first - self._first) :]
        sums[:, : recent_sums.shape[1]] = recent_sums
        inside = hours >= first
        steps = np.round(values * STEPS).astype(np.int64)
        for row, chosen in ((0, inside), (2, inside & is_quiet)):
            np.add.at(sums[row], hours[chosen] - first, 1)
            np.add.at(sums[row + 1], hours[chosen] - first, steps[chosen])
        self._first, self._sums = first, sums

    def hours(self, *, quiet: bool = False) -> Hours:
        """The hours of all observations, or of the quiet ones."""
        counts, sums = self._sums[2:] if quiet else self._sums[:2]
        return Hours.of_sums(self._first, counts, sums / STEPS)

    def state(self) -> dict[str, Any]:
        """The sums as plain JSON."""
        packed = base64.b64encode(zlib.compress(self._sums.tobytes(), 1)).decode()
        return {"first": self._first, "sums": packed}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        self._first = state["first"]
        content = zlib.decompress(base64.b64decode(state["sums"]))
        self._sums = np.frombuffer(content, np.int64).reshape(_COLUMNS, -1)
