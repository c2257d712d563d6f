"""The baseline of a group: learned from its first observations, then frozen.

Learning takes the first observations that suffice:

- they cover at least one day, so that the variation from hour to hour is in the mean. Where that
  variation exceeds the noise, they cover two days, so that a daily cycle is seen twice;
- their effective number (their number divided by the autocorrelation time) is at least 300;
- they show at least ten separate runs of low values. Otherwise the autocorrelation time is assumed
  to be at least 10, since it cannot be seen without failures;
- the lower confidence bound of their mean is within the margin.

After 14 days, learning ends with the bound that was reached. How many observations are used depends
only on the observations, not on how they arrived, because sizes are tried on a fixed grid. Until
then, `learn` returns a `Learning` with the reason.

The floor is the mean that a detector defends: the lower of the mean's confidence bound (Wilson, for
the effective number) and the mean minus the margin. Intervals that are shown are exact. The floor
is not: the rate of false alarms was simulated with this bound, of 300 observations or more. A daily
cycle (`cycle.py`) is subtracted first, so that the floor follows it. The margin grows with
the slow variation that is left: a steady group gets half the margin, an unsteady group up to 1.2 of
it, and a group whose variation is certain up to 10 of it. Where that is not enough (`Wander`),
or where something was not seen yet, the baseline has a doubt: a sentence with the reason why false
alarms may exceed the budget.

`review` recomputes the length of blocks from later observations, and `review_hours` the pattern of
hours and weekdays. The mean stays frozen, so that a slow decline is not learned away; the floor may
become lower where the level wanders more than the baseline showed.

Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from .autocorrelation import (
    ABOVE_BUDGET,
    CERTAIN,
    LIKELY,
    Wander,
    autocorrelation_time,
    block_noise,
    choose_block,
    is_unsteady,
    least_slow_variance,
    long_run_ratio,
    low_runs,
    measured_wander,
    slow_deviation,
    window_length,
)
from .change_point import UsualMean
from .cycle import NO_CYCLE, WeeklyCycle, fit_cycle, fit_hours, may_have_cycle
from .detector import DAY_NS, Floats, Ints, checked
from .hours import HOUR_NS, HourlySums, Hours

__all__ = [
    "Baseline",
    "Learning",
    "LearningRules",
    "learn",
    "lower_bound",
    "review",
    "review_hours",
]

_GROWTH = 1.1
_FEWEST_RUNS = 10
_ASSUMED_TIME = 10.0
_FEWEST_HOURS = 2 * 24
_TWO_WEEKS = 14 * 24

_LEAST_DISPERSION = 0.02
_HEAVY_TAILS = 0.15
"""Dependent failures come in runs, so that a few of them are low more often than their variance
predicts: this share of the excess of their dispersion is added for the interval of a change."""

_MARGIN = 0.55
"""The margin is this times the variance of the slow variation, divided by the usual margin, because
the gain of bets from hours that are better and worse grows with their variance. It chooses a place
on a curve. With random shifts of .04 in each hour, even a rule that knows their distribution needs
268 scores to find a drop of .1 at one false alarm in 30 days. This margin needs 265 to 275."""

_LEAST_MARGIN, _MOST_MARGIN, _CERTAIN_MARGIN = 0.5, 1.2, 10.0
"""In usual margins: the least and the most for a variance that may be chance, and for a variance
that is certain."""


@dataclass(frozen=True, slots=True)
class LearningRules:
    """When a baseline has been learned, and how its floor follows.

    Attributes:
        effective: The least effective number of observations.
        span_ns: The least time they cover.
        unsteady: The factor to that time where observations vary from hour to hour.
        longest_ns: The time limit; learning then ends with the precision reached.
        margin: The usual distance of the floor below the mean.
    """

    effective: int = 300
    span_ns: int = DAY_NS
    unsteady: float = 2.0
    longest_ns: int = 14 * DAY_NS
    margin: float = 0.02


@dataclass(frozen=True, slots=True)
class Learning:
    """A baseline that has not been learned yet, and why."""

    size: int
    effective_size: float
    span_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """The learned behaviour of a group.

    Attributes:
        size: How many of the first observations it was learned from.
        effective_size: Their number divided by the autocorrelation time.
        mean: Their mean, less the daily cycle.
        variance: Their variance, less the daily cycle.
        floor: The mean that detectors defend.
        autocorrelation_time: In observations, at least 1.
        block: The number of consecutive observations whose mean a detector takes at a time.
        block_reason: The reason for this number.
        dispersion: The long-run variance of the values, relative to independent 0/1 values.
        start_ns: The time of the first observation.
        end_ns: The time of the last observation.
        cycle: The difference from the mean at each hour of the day and on each weekday.
        noise: The variance of one value, as if they were independent; 0 if it was not measured.
        doubts: Why there may be more false alarms than the budget; sentences.
    """

    size: int
    effective_size: float
    mean: float
    variance: float
    floor: float
    autocorrelation_time: float
    block: int
    block_reason: str
    dispersion: float
    start_ns: int
    end_ns: int
    cycle: WeeklyCycle = NO_CYCLE
    noise: float = 0.0
    doubts: tuple[str, ...] = ()

    @property
    def interval_ns(self) -> float:
        """The mean time between two observations."""
        return max(1.0, (self.end_ns - self.start_ns) / max(1, self.size - 1))

    def margin_for(self, wander: Wander) -> float:
        """The margin that a level with this wander needs."""
        return wander.margin((self.end_ns - self.start_ns) / HOUR_NS)

    @property
    def usual(self) -> UsualMean:
        """The mean, with its precision."""
        dispersion = float(self.dispersion_of(np.array([float(self.size)]))[0])
        return UsualMean(self.mean, self.effective_size * dispersion, self.dispersion_of)

    def dispersion_of(self, counts: Floats) -> Floats:
        """The dispersion of stretches of consecutive observations.

        The dependence of neighbours counts in all of them. Slow variation adds to the variance of
        a sum by the square of its length, up to the windows of its measurement.

        Args:
            counts: The numbers of observations of the stretches.
        """
        usual = max(self.mean * (1 - self.mean), 0.5 / self.size)
        short = max(_LEAST_DISPERSION, self.variance * self.size / self.effective_size / usual)
        short += _HEAVY_TAILS * max(0.0, short - 1.0)
        slow = max(0.0, self.dispersion - short)
        shares: Floats = np.minimum(1.0, counts / window_length(self.size))
        return short + slow * shares

    def to_dict(self) -> dict[str, Any]:
        """The baseline as plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Baseline:
        """The baseline that `to_dict` described, also before there were cycles."""
        cycle = values.get("cycle")
        known_cycle = WeeklyCycle.from_dict(cycle) if cycle else NO_CYCLE
        return cls(**{**values, "cycle": known_cycle, "doubts": tuple(values.get("doubts", ()))})


def learn(
    values: npt.ArrayLike,
    times_ns: npt.ArrayLike,
    rules: LearningRules | None = None,
    *,
    tried: int = 0,
    is_chosen: bool = False,
) -> Baseline | Learning:
    """Learn a baseline from the first observations that suffice.

    Args:
        values: All observations of the group so far, in order. `Baseline.size` is the number of
            them that were used; a detector gets the rest.
        times_ns: Their times.
        rules: When to stop.
        tried: The `Learning.size` of an earlier call with fewer observations, which saves time.
        is_chosen: Whether a user chose the observations: all are used, whatever they cover.
    """
    checked_values, times = checked(values, times_ns)
    rules = rules or LearningRules()
    if is_chosen:
        if len(checked_values) < rules.effective:
            return _short(checked_values, float(len(checked_values)), _span(times), rules)
        return _frozen(checked_values, times, rules)
    latest = Learning(0, 0.0, 0, "no observations")
    for size in takewhile(lambda size: size <= len(checked_values), _sizes(rules.effective)):
        if size <= tried and size * _GROWTH + 1 <= len(checked_values):
            continue
        progress = _progress(checked_values[:size], times[:size], rules)
        if isinstance(progress, Baseline):
            return progress
        latest = progress
    if latest.size == 0 and len(checked_values):
        return _short(checked_values, float(len(checked_values)), _span(times), rules)
    return latest


def lower_bound(mean: float, size: float, *, deviations: float = 1.96) -> float:
    """Wilson's lower bound of a mean of values in [0, 1], for floors alone."""
    squared = deviations**2
    centre = mean + squared / (2 * size)
    width = deviations * float(np.sqrt(mean * (1 - mean) / size + squared / (4 * size**2)))
    return max(0.0, (centre - width) / (1 + squared / size))


def review(baseline: Baseline, values: npt.ArrayLike, times_ns: npt.ArrayLike) -> Baseline:
    """Recompute the length of blocks from later observations of the state ok.

    The baseline is returned unchanged if there are fewer than 300 effective observations, or if
    their mean is below the floor: dependence in a decline must not slow its detection down. Blocks
    become at most twice as long at a time.

    Args:
        baseline: The baseline of the group.
        values: Observations since the baseline, all from the state ok.
        times_ns: Their times.
    """
    checked_values, times = checked(values, times_ns)
    residuals = baseline.cycle.removed(checked_values, times)
    if not len(residuals) or float(residuals.mean()) < baseline.floor:
        return baseline
    time = autocorrelation_time(residuals)
    if len(residuals) / time < LearningRules().effective or low_runs(residuals) < _FEWEST_RUNS:
        return baseline
    block, reason = choose_block(residuals, time=time, floor=baseline.floor)
    return replace(
        baseline,
        autocorrelation_time=time,
        noise=block_noise(residuals, time),
        block=min(block, 2 * baseline.block),
        block_reason=f"{reason} (from {len(residuals):,} later observations)",
    )


def review_hours(baseline: Baseline, sums: HourlySums, values: npt.ArrayLike) -> Baseline:
    """Learn the pattern of hours and weekdays, and how the level wanders, from later hours.

    The pattern keeps the mean of the baseline: the mean of the hours and weekdays that it saw.
    Hours of episodes count for the pattern, because it comes back every day or week. They do not
    count for the wander, which may lower the floor.

    Args:
        baseline: The baseline of the group.
        sums: Later hours. If they span less than two days, the baseline is returned unchanged.
        values: The newest observations of the state ok, for the dependence of neighbours.
    """
    hours = sums.hours()
    if not len(hours.numbers) or np.ptp(hours.numbers) + 1 < _FEWEST_HOURS:
        return baseline
    latest = np.asarray(values, np.float64)
    noise = baseline.noise or baseline.variance * baseline.autocorrelation_time
    if len(latest):
        noise = max(noise, block_noise(latest, autocorrelation_time(latest)))
    cycle = fit_hours(hours, noise)
    if cycle == NO_CYCLE:
        cycle = baseline.cycle
    else:
        cycle = cycle.levelled(baseline.cycle, baseline.start_ns, baseline.end_ns, hours)
    quiet = cycle.removed_from(sums.hours(quiet=True))
    margin = baseline.margin_for(measured_wander(quiet, noise, errors=CERTAIN))
    margin = min(margin, _CERTAIN_MARGIN * LearningRules().margin)
    margin = max(margin, baseline.mean - baseline.floor - baseline.cycle.surplus)
    floor = max(0.0, min(baseline.floor, baseline.mean - margin - cycle.surplus))
    reviewed = replace(baseline, cycle=cycle, floor=floor)
    return replace(reviewed, doubts=_doubts(reviewed, quiet, hours, noise))


def _certain_margin(variance: float, usual: float) -> float:
    return min(_MARGIN * variance / usual, _CERTAIN_MARGIN * usual)


def _doubts(baseline: Baseline, quiet: Hours, observed: Hours, noise: float) -> tuple[str, ...]:
    """Why there may be more false alarms than the budget.

    Args:
        baseline: A baseline.
        quiet: Hours outside of episodes, less the pattern.
        observed: All hours that it was learned or reviewed from.
        noise: The variance of one value, as if they were independent.
    """
    doubts = []
    wander = measured_wander(quiet, noise, errors=LIKELY)
    allowed, needed = baseline.mean - baseline.floor, baseline.margin_for(wander)
    if needed > LearningRules().margin:
        doubts.append(
            f"the level wanders by {wander.deviation:.2g} (standard deviation of means of "
            f"{wander.hours} h beyond chance), which takes a margin of {needed:.2g}; "
            f"it is {allowed:.2g}"
        )
    hours = (baseline.end_ns - baseline.start_ns) / HOUR_NS
    if max(hours, float(np.ptp(observed.numbers))) + 1 < _TWO_WEEKS:
        doubts.append(
            "less than two weeks were seen: days that differ from them, such as weekends, may alert"
        )
    if ABOVE_BUDGET in baseline.block_reason:
        doubts.append("resampled, the baseline raises more false alarms than the budget")
    return tuple(doubts)


def _sizes(least: int) -> list[int]:
    sizes = [least]
    while sizes[-1] < 10_000_000:
        sizes.append(int(sizes[-1] * _GROWTH) + 1)
    return sizes


def _span(times: Ints) -> int:
    return int(times.max() - times.min()) if len(times) else 0


def _short(values: Floats, effective: float, span: int, rules: LearningRules) -> Learning:
    if effective < rules.effective:
        reason = f"{effective:.0f} of {rules.effective} effective observations"
        if round(effective) < len(values) and low_runs(values) < _FEWEST_RUNS:
            reason += f" ({len(values):,}; {_ASSUMED_TIME:.0f} count as one without failures)"
    elif span < rules.span_ns:
        reason = f"{span / 3.6e12:.1f} of {rules.span_ns / 3.6e12:.0f} hours"
    else:
        reason = f"the mean is not yet known to within {rules.margin}"
    return Learning(len(values), effective, span, reason)


def _cautious_time(values: Floats, time: float) -> float:
    """The autocorrelation time plus its standard error, or 10 if it cannot be seen."""
    if low_runs(values) < _FEWEST_RUNS:
        return max(time, _ASSUMED_TIME)
    return time * (1 + 4 * float(np.sqrt(time / len(values)))) if time > 1.1 else time


def _progress(values: Floats, times: Ints, rules: LearningRules) -> Baseline | Learning:
    span = _span(times)
    if span < rules.span_ns:
        return _short(values, float(len(values)), span, rules)
    time = autocorrelation_time(values)
    effective = len(values) / _cautious_time(values, time)
    mean = float(values.mean())
    bound = lower_bound(mean, effective)
    enough = effective >= rules.effective and bound >= mean - rules.margin
    if not enough and span < rules.longest_ns:
        return _short(values, effective, span, rules)
    longer = min(rules.unsteady * rules.span_ns, rules.longest_ns)
    if span < longer and _varies(values, times, time):
        hours = f"{span / 3.6e12:.1f} of {longer / 3.6e12:.0f} hours"
        reason = f"{hours}, since hours differ from each other"
        return Learning(len(values), effective, span, reason)
    return _frozen(values, times, rules)


def _varies(values: Floats, times: Ints, time: float) -> bool:
    return is_unsteady(values, time) or may_have_cycle(values, times, time)


def _frozen(values: Floats, times: Ints, rules: LearningRules) -> Baseline:
    """The baseline of values less their daily cycle."""
    time = autocorrelation_time(values)
    cycle = fit_cycle(values, times, time) if _span(times) >= 2 * DAY_NS else NO_CYCLE
    if cycle != NO_CYCLE:
        values = cycle.removed(values, times)
        time = autocorrelation_time(values)
    effective = len(values) / _cautious_time(values, time)
    mean = float(values.mean())
    bound = lower_bound(mean, effective)
    margin = _margin(values, time, rules.margin)
    floor = max(0.0, min(bound, mean - margin) - cycle.surplus)
    block, reason = choose_block(values, time=time, floor=floor)
    usual = max(mean * (1 - mean), 0.5 / len(values))
    learned = Baseline(
        size=len(values),
        effective_size=effective,
        mean=mean,
        variance=float(values.var()),
        floor=floor,
        autocorrelation_time=time,
        block=block,
        block_reason=reason,
        dispersion=max(
            _LEAST_DISPERSION, float(values.var()) * max(time, long_run_ratio(values)) / usual
        ),
        start_ns=int(times[0]),
        end_ns=int(times.max()),
        cycle=cycle,
        noise=block_noise(values, time),
    )
    hours = Hours.of(values, times)
    return replace(learned, doubts=_doubts(learned, hours, hours, learned.noise))


def _margin(values: Floats, time: float, usual: float) -> float:
    """The distance of the floor below the mean, before the mean's own error."""
    possible = _MARGIN * slow_deviation(values, time) ** 2 / usual
    possible = min(max(possible, _LEAST_MARGIN * usual), _MOST_MARGIN * usual)
    return max(
        possible, _certain_margin(least_slow_variance(values, block_noise(values, time)), usual)
    )
