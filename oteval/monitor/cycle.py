"""The pattern of a group's hours and weekdays: how its mean depends on them (UTC).

Hours are described by two waves, of a day and of half a day. A table of the 24 hours describes
the rest, such as a nightly job. They are fitted to the means of hours by weighted least
squares. A wave counts only where it exceeds the variation from hour to hour, which may be far
larger than the variation of the values. F, the variance of the wave relative to the variance of the
hours, must be at least 8; random hours of two days reach that about once in a thousand times. The F
of the table must be at least 4. Where successive hours are alike, F is divided by their
autocorrelation time. A pattern of hours needs two days, and values at most hours of the day on
both; a pattern of weekdays needs two weeks.

Each part is shrunk by 1 - 1/F. The pattern is followed down, where the group is usually worse, and
0.7 of it is followed up. Following the rest would find drops hardly sooner. It would also raise an
alarm more often on a day without the pattern, such as a Sunday.

Source: the periodogram and its F test, Fisher 1929, "Tests of significance in harmonic analysis";
the analysis of variance: Fisher 1925, "Statistical methods for research workers"; the shrinkage:
James, Stein 1961, "Estimation with quadratic loss".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .autocorrelation import autocorrelation_time
from .detector import Floats, Ints
from .hours import HOUR_NS, Hours, weekday

__all__ = ["NO_CYCLE", "WeeklyCycle", "fit_cycle", "fit_hours", "may_have_cycle"]

_WAVES = (1, 2)
_LEAST_F = 8.0
_SUSPECTED_F = 6.0
_LEAST_F_OF_HOURS = 4.0
_LEAST_F_OF_WEEKDAYS = 12.0
_FOLLOWED_UP = 0.7
_HOURS_SEEN = 20
"""At least this many of the 24 hours of the day need values on two days or more."""

_WEEKS = 14 * 24


@dataclass(frozen=True, slots=True)
class WeeklyCycle:
    """The differences from the mean at each hour of the day, and on each weekday from Monday on.

    Attributes:
        hours: 24 differences, or none.
        weekdays: Seven differences, or none.
    """

    hours: tuple[float, ...] = ()
    weekdays: tuple[float, ...] = ()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> WeeklyCycle:
        """The cycle that `dataclasses.asdict` described, also when it had waves."""
        if "waves" not in values:
            return cls(tuple(values["hours"]), tuple(values["weekdays"]))
        waves = [tuple(wave) for wave in values["waves"]]
        return cls(tuple(_curve(waves).tolist())) if waves else cls()

    @property
    def reach(self) -> float:
        """By how much a value may be above 1 when the differences are removed."""
        least = min(self.hours, default=0.0) + min(self.weekdays, default=0.0)
        return max(0.0, -least)

    @property
    def surplus(self) -> float:
        """By how much the mean is above the mean of bad hours when the differences are removed."""
        parts = (differences for differences in (self.hours, self.weekdays) if differences)
        repeats = 1 / _FOLLOWED_UP - 1
        return sum(repeats * float(np.maximum(part, 0.0).mean()) for part in parts)

    def at(self, hours: Ints) -> Floats:
        """The differences at hours since 1970."""
        differences = np.zeros(len(hours))
        if self.hours:
            differences += np.array(self.hours)[hours % 24]
        if self.weekdays:
            differences += np.array(self.weekdays)[weekday(hours)]
        return differences

    def removed(self, values: Floats, times: Ints) -> Floats:
        """The values less the differences at their times."""
        if self == NO_CYCLE or not len(values):
            return values
        return values - self.at(times // HOUR_NS)

    def removed_from(self, hours: Hours) -> Hours:
        """Return hours less their differences."""
        return Hours(hours.numbers, hours.counts, hours.means - self.at(hours.numbers))

    def levelled(
        self, relearned: WeeklyCycle, start_ns: int, end_ns: int, traffic: Hours
    ) -> WeeklyCycle:
        """The cycle raised or lowered to the mean of another cycle in a period.

        Args:
            relearned: The other cycle.
            start_ns: The start of the period (ns).
            end_ns: Its end (ns).
            traffic: Hours with the usual traffic of the hours of the day.
        """
        hours = np.arange(start_ns // HOUR_NS, end_ns // HOUR_NS + 1)
        weights = np.bincount(traffic.of_day, traffic.counts, minlength=24)[hours % 24]
        if not weights.any():
            return relearned
        step = float(np.average(relearned.at(hours) - self.at(hours), weights=weights))
        return WeeklyCycle(
            tuple(difference + step for difference in self.hours or (0.0,) * 24), self.weekdays
        )


NO_CYCLE = WeeklyCycle()


def fit_cycle(values: Floats, times: Ints, time: float) -> WeeklyCycle:
    """The pattern of hours that values show; none if they show none.

    Args:
        values: The observations of a baseline.
        times: Their times.
        time: Their autocorrelation time.
    """
    return fit_hours(Hours.of(values, times), float(values.var()) * time)


def fit_hours(hours: Hours, noise: float) -> WeeklyCycle:
    """The pattern that hours show; none if they show none.

    Args:
        hours: The hours.
        noise: The variance of one value, as if they were independent.
    """
    if hours.often_seen() < _HOURS_SEEN:
        return NO_CYCLE
    waves = [wave for wave in _waves(hours, noise) if wave[-1] >= _LEAST_F]
    daily_curve = _curve([wave[:3] for wave in waves])
    shrunk = _curve([(n, cos * _kept(f), sin * _kept(f)) for n, cos, sin, f in waves])
    residual = Hours(hours.numbers, hours.counts, hours.means - daily_curve[hours.of_day])
    table, strength = _table(residual, hours.of_day, 24, noise)
    if strength >= _LEAST_F_OF_HOURS:
        shrunk = shrunk + table * _kept(strength)
    cycle = WeeklyCycle(_followed(shrunk))
    return WeeklyCycle(cycle.hours, _weekdays(cycle.removed_from(hours), noise))


def may_have_cycle(values: Floats, times: Ints, time: float) -> bool:
    """Whether values that cover a day are a reason to learn from a second day.

    Args:
        values: The observations of a baseline.
        times: Their times.
        time: Their autocorrelation time.
    """
    waves = _waves(Hours.of(values, times), float(values.var()) * time)
    return any(strength >= _SUSPECTED_F for *_, strength in waves)


def _kept(strength: float) -> float:
    return 1.0 - 1.0 / strength


def _followed(differences: Floats) -> tuple[float, ...]:
    """Return differences as far as they are followed; none if all are 0."""
    if not differences.any():
        return ()
    lowered = np.where(differences < 0, differences, _FOLLOWED_UP * differences)
    return tuple(lowered.tolist())


def _curve(waves: list[tuple[Any, ...]]) -> Floats:
    """The sum of waves in the middle of each hour of the day."""
    angles = (np.arange(24) + 0.5) * (2 * np.pi / 24)
    curve = np.zeros(24)
    for periods, cosine, sine in waves:
        curve += cosine * np.cos(periods * angles) + sine * np.sin(periods * angles)
    return curve


def _weekdays(hours: Hours, noise: float) -> tuple[float, ...]:
    """The differences of weekdays, if two weeks or more show them."""
    if not len(hours.numbers) or np.ptp(hours.numbers) + 1 < _WEEKS:
        return ()
    days = hours.joined(24)
    table, strength = _table(days, weekday(days.numbers * 24), 7, noise)
    if strength < _LEAST_F_OF_WEEKDAYS:
        return ()
    return _followed(table * _kept(strength))


def _table(hours: Hours, labels: Ints, size: int, noise: float) -> tuple[Floats, float]:
    """The differences of labels that were seen twice or more, and their F.

    Args:
        hours: Means.
        labels: The label of each.
        size: The number of labels.
        noise: The variance of one value, as if they were independent.
    """
    counts_by_label = np.bincount(labels, minlength=size)
    weights = np.bincount(labels, hours.counts, minlength=size)
    often = counts_by_label >= 2
    free = int(counts_by_label[often].sum()) - int(often.sum())
    if often.sum() < 2 or free < 1:
        return np.zeros(size), 0.0
    sums = np.bincount(labels, hours.counts * hours.means, minlength=size)
    usual = float(sums[often].sum() / weights[often].sum())
    table = np.where(often, sums / np.maximum(weights, 1) - usual, 0.0)
    residuals = (hours.means - usual - table[labels]) * np.sqrt(hours.counts)
    residuals = residuals[often[labels]]
    spread = max(noise, float(residuals @ residuals) / free, 1e-12)
    spread *= autocorrelation_time(residuals)
    between = float(weights[often] @ table[often] ** 2) / (int(often.sum()) - 1)
    return table, between / spread


def _waves(hours: Hours, noise: float) -> list[tuple[int, float, float, float]]:
    """The waves: periods a day, coefficients of cosine and sine, and F.

    Args:
        hours: The hours.
        noise: The variance of one value, as if they were independent.
    """
    columns = 1 + 2 * len(_WAVES)
    if len(hours.numbers) < 4 * columns:
        return []
    angles = (hours.of_day + 0.5) * (2 * np.pi / 24)
    design = np.ones((len(angles), columns))
    for wave_index, periods in enumerate(_WAVES):
        design[:, 1 + 2 * wave_index] = np.cos(periods * angles)
        design[:, 2 + 2 * wave_index] = np.sin(periods * angles)
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
    waves = []
    for wave_index, periods in enumerate(_WAVES):
        part = slice(1 + 2 * wave_index, 3 + 2 * wave_index)
        strength = float(fitted[part] @ np.linalg.solve(inverse[part, part], fitted[part]))
        waves.append(
            (periods, float(fitted[part][0]), float(fitted[part][1]), strength / 2 / spread)
        )
    return waves
