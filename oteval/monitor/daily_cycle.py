"""The daily cycle of a group: how its mean depends on the time of day (UTC).

It is a constant and two waves, of a day and of half a day, fitted to the means of hours by weighted
least squares. A wave counts only where it stands out of the variation from hour to hour, which may
be far larger than that of the values: F, its variance relative to that of the hours, is at least 8,
which random hours of two days reach about once in a thousand times. Where successive hours are
alike, F is divided by their autocorrelation time. A cycle needs two days, and values at most hours
of the day on both.

The amplitude is shrunk by 1 - 1/F, and 0.7 of it is followed: following the rest would find drops
hardly sooner, and would be an alarm more often on a day without the cycle, such as a Sunday.

Source: the periodogram and its F test, Fisher 1929, "Tests of significance in harmonic analysis";
the shrinkage: James, Stein 1961, "Estimation with quadratic loss".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .autocorrelation import autocorrelation_time
from .budget import DAY_NS
from .detector import Floats, Ints

__all__ = ["NO_CYCLE", "DailyCycle", "fit_cycle", "may_have_cycle"]

_HOUR_NS = DAY_NS // 24
_STEPS = 288
_STEP_NS = DAY_NS // _STEPS
_WAVES = (1, 2)
_LEAST_F = 8.0
_SUSPECTED_F = 6.0
_FOLLOWED = 0.7
_HOURS_SEEN = 20
"""Of the 24 hours of the day, those that need values on two days or more."""


@dataclass(frozen=True, slots=True)
class DailyCycle:
    """The difference from the mean at each time of day; no difference without waves.

    Attributes:
        waves: For each wave, its number of periods a day, and its coefficients of cosine and sine.
    """

    waves: tuple[tuple[int, float, float], ...] = ()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DailyCycle:
        """Return the cycle that `dataclasses.asdict` described, also after JSON."""
        return cls(tuple((int(each), cosine, sine) for each, cosine, sine in values["waves"]))

    @property
    def reach(self) -> float:
        """The largest difference from the mean that is possible."""
        return float(sum(np.hypot(cosine, sine) for _, cosine, sine in self.waves))

    def removed(self, values: Floats, times: Ints) -> Floats:
        """Return the values less the difference at their times."""
        if not self.waves or not len(values):
            return values
        return values - self._steps()[times % DAY_NS // _STEP_NS]

    def _steps(self) -> Floats:
        """Return the difference in the middle of every step of the day."""
        angles = (np.arange(_STEPS) + 0.5) * (2 * np.pi / _STEPS)
        cycle = np.zeros(_STEPS)
        for periods, cosine, sine in self.waves:
            cycle += cosine * np.cos(periods * angles) + sine * np.sin(periods * angles)
        return cycle


NO_CYCLE = DailyCycle()


def fit_cycle(values: Floats, times: Ints, time: float) -> DailyCycle:
    """Return the daily cycle that values show, without waves if they show none.

    Args:
        values: The observations of a baseline.
        times: Their times.
        time: Their autocorrelation time.
    """
    hours = _Hours.of(values, times)
    if hours.often_seen() < _HOURS_SEEN:
        return NO_CYCLE
    found = _waves(hours, float(values.var()) * time)
    return DailyCycle(
        tuple(
            (periods, share * cosine, share * sine)
            for periods, cosine, sine, strength in found
            if strength >= _LEAST_F and (share := _FOLLOWED * (1 - 1 / strength))
        )
    )


def may_have_cycle(values: Floats, times: Ints, time: float) -> bool:
    """Return whether values that cover a day give reason to learn from a second one.

    Args:
        values: The observations of a baseline.
        times: Their times.
        time: Their autocorrelation time.
    """
    found = _waves(_Hours.of(values, times), float(values.var()) * time)
    return any(strength >= _SUSPECTED_F for *_, strength in found)


@dataclass(frozen=True, slots=True)
class _Hours:
    """The hours with observations: numbers, counts and means."""

    numbers: Ints
    counts: Floats
    means: Floats

    @classmethod
    def of(cls, values: Floats, times: Ints) -> _Hours:
        hours = times // _HOUR_NS
        first = int(hours.min())
        counts = np.bincount(hours - first)
        sums = np.bincount(hours - first, values)
        numbers = np.flatnonzero(counts)
        return cls(
            numbers + first, counts[numbers].astype(np.float64), sums[numbers] / counts[numbers]
        )

    def often_seen(self) -> int:
        """Return how many of the 24 hours of the day were seen on two days or more."""
        return int(np.sum(np.bincount(self.numbers % 24, minlength=24) >= 2))


def _waves(hours: _Hours, noise: float) -> list[tuple[int, float, float, float]]:
    """Return the waves: periods a day, coefficients of cosine and sine, and F.

    Args:
        hours: The hours.
        noise: The variance of one value, as if they were independent.
    """
    columns = 1 + 2 * len(_WAVES)
    if len(hours.numbers) < 4 * columns:
        return []
    angles = (hours.numbers % 24 + 0.5) * (2 * np.pi / 24)
    design = np.ones((len(angles), columns))
    for place, periods in enumerate(_WAVES):
        design[:, 1 + 2 * place] = np.cos(periods * angles)
        design[:, 2 + 2 * place] = np.sin(periods * angles)
    weights = np.sqrt(hours.counts)
    scaled = design * weights[:, None]
    products = scaled.T @ scaled
    if np.linalg.cond(products) > 1e6:
        return []
    inverse = np.linalg.inv(products)
    fitted = inverse @ (scaled.T @ (hours.means * weights))
    residuals = (hours.means - design @ fitted) * weights
    spread = max(noise, float(residuals @ residuals) / (len(angles) - columns), 1e-12)
    spread *= autocorrelation_time(residuals)
    found = []
    for place, periods in enumerate(_WAVES):
        part = slice(1 + 2 * place, 3 + 2 * place)
        strength = float(fitted[part] @ np.linalg.solve(inverse[part, part], fitted[part]))
        found.append(
            (periods, float(fitted[part][0]), float(fitted[part][1]), strength / 2 / spread)
        )
    return found
