"""Simulate detectors: on synthetic passes and failures, and on resampled history with a drop.

`simulate` answers "how often would this rule have called for nothing, and how soon for a drop?" for
a user's own history. It resamples the history in stretches, which keeps the dependence of
neighbours. It learns a baseline from the first part of each stream, as a monitor would, and counts
alerts on the rest. Where the history shows a daily cycle, stretches keep their time of day within
half an hour. Then it lowers the mean from a known observation on and measures the delay. A
change inside the history is resampled as well and counts as usual variation, so simulate on a
period without incidents.

Source: moving blocks bootstrap, Künsch 1989, "The jackknife and the bootstrap for general
stationary observations"; by the time of day: Politis 2001, "Resampling time series with seasonal
components".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .autocorrelation import autocorrelation_time
from .baselines import Baseline, LearningRules, learn
from .blocks import resampled
from .budget import DAY_NS
from .cycle import NO_CYCLE, fit_cycle
from .detector import Alarm, Detector, Floats, Ints, checked

__all__ = ["Delay", "Drop", "Rule", "RuleResult", "delay_of", "lowered", "pass_fail", "simulate"]

_NEAR_NS = DAY_NS // 48

Rule = Callable[[Baseline], Detector]


@dataclass(frozen=True, slots=True)
class Delay:
    """The first alert after a change.

    Attributes:
        observations: How many observations it took, the last included.
        covered: Whether the stated interval contains the time of the change.
    """

    observations: int
    covered: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """How a rule found a drop of one size.

    Attributes:
        size: The drop of the mean.
        found: The share of streams where the rule alerted.
        observations: The mean number of observations until then; None if none was found.
        time_ns: The mean time until then, at the traffic of the history.
        covered: The share of alerts whose interval contains the change; None if none was found.
    """

    size: float
    found: float
    observations: float | None
    time_ns: float | None
    covered: float | None


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The false alarms and delays of one rule in a simulation.

    Attributes:
        name: The rule.
        streams: The number of simulated streams that yielded a baseline.
        observations: The number of observations without a change that were checked.
        false_alarms: The alerts among them.
        per_30_days: The same per 30 days, at the traffic of the history.
        drops: The delay for each size of drop.
    """

    name: str
    streams: int
    observations: int
    false_alarms: int
    per_30_days: float
    drops: tuple[Drop, ...]


def pass_fail(means: Floats, dependence: float, rng: np.random.Generator) -> Floats:
    """Return passes (1) and failures (0) with some means.

    With the probability ``dependence``, an observation keeps the value of the observation before;
    otherwise it is drawn anew.
    """
    count = len(means)
    is_repeated = rng.random(count) < dependence
    is_repeated[:1] = False
    drawn = (rng.random(count) < means).astype(np.float64)
    sources = np.maximum.accumulate(np.where(is_repeated, 0, np.arange(count)))
    return drawn[sources]


def lowered(values: Floats, size: float, rng: np.random.Generator) -> Floats:
    """The values with some set to 0, so that their mean falls by a size in expectation."""
    mean = float(values.mean()) if len(values) else 0.0
    if mean <= 0.0:
        return values
    is_unchanged = rng.random(len(values)) >= min(1.0, size / mean)
    return values * is_unchanged


def delay_of(detector: Detector, values: Floats, times_ns: Ints, *, change: int) -> Delay | None:
    """How soon a detector found a change; None if it did not or was already alerting.

    Args:
        detector: A detector; it is used up.
        values: Observations before and after the change.
        times_ns: Their times.
        change: The index of the first observation after the change.
    """
    detector.update(values[:change], times_ns[:change])
    if detector.alerting:
        return None
    alarm = _first(detector, values, times_ns, change)
    if alarm is None:
        return None
    at = int(times_ns[change])
    covered = alarm.change_from_ns <= at <= alarm.change_to_ns
    return Delay(observations=alarm.index - change + 1, covered=covered)


def simulate(
    values: npt.ArrayLike,
    times_ns: npt.ArrayLike,
    rules: Mapping[str, Rule],
    *,
    drops: Sequence[float] = (0.05, 0.1),
    streams: int = 50,
    checks: int = 5000,
    learning: LearningRules | None = None,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> list[RuleResult]:
    """Run rules over resampled history, without a change and with drops.

    Args:
        values: The observations of one group, in order.
        times_ns: Their times.
        rules: Each returns a new detector for a baseline.
        drops: By how much the mean falls.
        streams: The number of simulated streams.
        checks: The observations of a stream after its baseline; a drop begins after a fifth.
        learning: The rules for baselines.
        seed: Equal seeds lead to equal results.
        report: Receives the number of streams that are done.
    """
    observations, times = checked(values, times_ns)
    tallies = {name: _RuleTally(name, [_DropTally(size) for size in drops]) for name in rules}
    for number in range(streams):
        stream = _stream(observations, times, checks, learning, [seed, number])
        if stream is not None:
            for name, rule in rules.items():
                tallies[name].add(rule, stream, np.random.default_rng([seed, number, 1]))
        if report is not None:
            report(number + 1)
    interval = float(times[-1] - times[0]) / max(1, len(times) - 1) if len(times) else 0.0
    return [tally.result(interval) for tally in tallies.values()]


@dataclass(frozen=True, slots=True)
class _Stream:
    """A baseline and the observations after it."""

    baseline: Baseline
    values: Floats
    times: Ints


class _DropTally:
    """The delays for drops of one size."""

    def __init__(self, size: float) -> None:
        self.size = size
        self.tried = 0
        self.delays: list[Delay] = []

    def result(self, interval: float) -> Drop:
        if not self.delays:
            return Drop(self.size, 0.0, None, None, None)
        mean = float(np.mean([delay.observations for delay in self.delays]))
        return Drop(
            size=self.size,
            found=len(self.delays) / self.tried,
            observations=mean,
            time_ns=mean * interval,
            covered=float(np.mean([delay.covered for delay in self.delays])),
        )


class _RuleTally:
    """The counts of one rule."""

    def __init__(self, name: str, drops: list[_DropTally]) -> None:
        self.name = name
        self.drops = drops
        self.streams = self.observations = self.alarms = 0

    def add(self, rule: Rule, stream: _Stream, rng: np.random.Generator) -> None:
        self.streams += 1
        self.observations += len(stream.values)
        alarms = rule(stream.baseline).update(stream.values, stream.times)
        self.alarms += sum(alarm.kind == "alert" for alarm in alarms)
        change = len(stream.values) // 5
        for drop in self.drops:
            detector = rule(stream.baseline)
            after = lowered(stream.values[change:], drop.size, rng)
            changed = np.concatenate([stream.values[:change], after])
            drop.tried += 1
            if (delay := delay_of(detector, changed, stream.times, change=change)) is not None:
                drop.delays.append(delay)

    def result(self, interval: float) -> RuleResult:
        months = self.observations * interval / (30 * DAY_NS)
        return RuleResult(
            name=self.name,
            streams=self.streams,
            observations=self.observations,
            false_alarms=self.alarms,
            per_30_days=self.alarms / months if months else 0.0,
            drops=tuple(drop.result(interval) for drop in self.drops),
        )


def _first(detector: Detector, values: Floats, times: Ints, start: int) -> Alarm | None:
    """The first alert from ``start`` on, without running to the end."""
    for at in range(start, len(values), 1024):
        for alarm in detector.update(values[at : at + 1024], times[at : at + 1024]):
            if alarm.kind == "alert":
                return alarm
    return None


def _stream(
    values: Floats, times: Ints, checks: int, learning: LearningRules | None, seed: list[int]
) -> _Stream | None:
    """A resampled stream: a baseline and observations after it, at the usual traffic."""
    if len(values) < 2:
        return None
    rng = np.random.default_rng(seed)
    time = autocorrelation_time(values)
    stretch = max(50, int(10 * time), round(len(values) ** (1 / 3)))
    interval = max(1.0, float(times[-1] - times[0]) / (len(times) - 1))
    size = len(values) + checks
    clock = times[0] + (np.arange(size) * interval).astype(np.int64)
    if np.ptp(times) >= 2 * DAY_NS and fit_cycle(values, times, time) != NO_CYCLE:
        drawn = _resampled_by_hour(values, times, clock, min(stretch, len(values)), rng)
    else:
        drawn = resampled(values, stretch=stretch, size=size, rng=rng)
    baseline = learn(drawn[: len(values)], clock[: len(values)], learning)
    if not isinstance(baseline, Baseline):
        return None
    checked = slice(baseline.size, baseline.size + checks)
    return _Stream(baseline, drawn[checked], clock[checked])


def _resampled_by_hour(
    values: Floats, times: Ints, clock: Ints, stretch: int, rng: np.random.Generator
) -> Floats:
    """A sequence of random stretches, each from the time of day of its place."""
    day_times = times[: len(times) - stretch + 1] % DAY_NS
    order = np.argsort(day_times, kind="stable")
    times_of_day = clock[::stretch] % DAY_NS
    first = np.searchsorted(day_times, times_of_day - _NEAR_NS, sorter=order)
    last = np.searchsorted(day_times, times_of_day + _NEAR_NS, sorter=order)
    first = np.minimum(first, len(order) - 1)
    chosen = first + (rng.random(len(times_of_day)) * np.maximum(last - first, 1)).astype(np.int64)
    starts = order[chosen]
    drawn: Floats = values[(starts[:, None] + np.arange(stretch)).ravel()[: len(clock)]]
    return drawn
