"""Simulate detectors on resampled history, without a change and with a drop.

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

`simulate_group` simulates the rules of a monitor, and a plain threshold, on each group's own
history. Most alerting systems have such a threshold: the mean of the last 60 minutes below a limit,
here halfway from the baseline's mean to the smallest simulated drop. Drops are of the values that
detectors compare: .1 is ten more failures in a hundred runs, or ten more slow ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..scoring import MonitorSettings
from .autocorrelation import autocorrelation_time, resampled
from .baselines import Baseline, Learning, LearningRules, learn
from .cycle import NO_CYCLE, fit_cycle
from .detector import DAY_NS, Alarm, Detector, Floats, Ints, checked
from .groups import (
    LearnedSide,
    allowance_of,
    learn_sides,
    learning_rules,
    make_detector,
    without_baseline,
)
from .observations import Observations
from .scales import Scale, Side
from .status import group_values
from .windowed_rules import Threshold

__all__ = [
    "PLAIN",
    "Delay",
    "Drop",
    "GroupSimulation",
    "Rule",
    "RuleResult",
    "delay_of",
    "lowered",
    "simulate",
    "simulate_group",
]

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


# A baseline, and the values and times of the observations after it.
_Stream = tuple[Baseline, Floats, Ints]
# The observations and false alarms of a rule on a stream, and its delay for each drop.
_Outcome = tuple[int, int, list[Delay | None]]


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
    outcomes: dict[str, list[_Outcome]] = {name: [] for name in rules}
    for number in range(streams):
        stream = _stream(observations, times, checks, learning, [seed, number])
        if stream is not None:
            for name, rule in rules.items():
                rng = np.random.default_rng([seed, number, 1])
                outcomes[name].append(_outcome(rule, stream, drops, rng))
        if report is not None:
            report(number + 1)
    interval = float(times[-1] - times[0]) / max(1, len(times) - 1) if len(times) else 0.0
    return [_result(name, outcomes[name], drops, interval) for name in rules]


def _outcome(
    rule: Rule, stream: _Stream, drops: Sequence[float], rng: np.random.Generator
) -> _Outcome:
    """The observations and false alarms of a stream, and the delay for each drop."""
    baseline, values, times = stream
    alarms = rule(baseline).update(values, times)
    change = len(values) // 5
    delays = []
    for size in drops:
        after = lowered(values[change:], size, rng)
        changed = np.concatenate([values[:change], after])
        delays.append(delay_of(rule(baseline), changed, times, change=change))
    return len(values), sum(alarm.kind == "alert" for alarm in alarms), delays


def _result(
    name: str, outcomes: Sequence[_Outcome], drops: Sequence[float], interval: float
) -> RuleResult:
    observations = sum(count for count, _, _ in outcomes)
    alarms = sum(count for _, count, _ in outcomes)
    months = observations * interval / (30 * DAY_NS)
    return RuleResult(
        name=name,
        streams=len(outcomes),
        observations=observations,
        false_alarms=alarms,
        per_30_days=alarms / months if months else 0.0,
        drops=tuple(
            _drop(size, [delays[number] for _, _, delays in outcomes], interval)
            for number, size in enumerate(drops)
        ),
    )


def _drop(size: float, attempts: Sequence[Delay | None], interval: float) -> Drop:
    delays = [delay for delay in attempts if delay is not None]
    if not delays:
        return Drop(size, 0.0, None, None, None)
    mean = float(np.mean([delay.observations for delay in delays]))
    return Drop(
        size=size,
        found=len(delays) / len(attempts),
        observations=mean,
        time_ns=mean * interval,
        covered=float(np.mean([delay.covered for delay in delays])),
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
    return baseline, drawn[checked], clock[checked]


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


PLAIN = "threshold of 60 minutes"


@dataclass(frozen=True, slots=True)
class GroupSimulation:
    """How rules would do on the history of one group.

    Attributes:
        monitor: The monitor.
        group: The values that the monitor groups by, by name.
        side: The change that alerts.
        figure: The name of the figure.
        observations: The number of observations in the history.
        rules: The results of the monitor's rule and of the plain threshold.
        reason: Why nothing was simulated, or "".
        doubts: Why the budget of false alarms is not promised; none if it is.
    """

    monitor: str
    group: dict[str, str]
    side: str
    figure: str
    observations: int
    rules: Sequence[RuleResult]
    reason: str = ""
    doubts: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval monitor simulate --json`` prints."""
        return asdict(self)


def simulate_group(
    settings: MonitorSettings,
    group: str,
    observations: Observations,
    *,
    groups: int,
    drops: Sequence[float],
    streams: int,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> list[GroupSimulation]:
    """Simulate the rule of a monitor and the plain threshold on a group's history.

    Args:
        settings: The monitor.
        group: The group's values, as a JSON list.
        observations: Its observations.
        groups: The number of groups that share the budget.
        drops: By how much the mean falls.
        streams: The number of simulated streams.
        seed: Equal seeds lead to equal results.
        report: Receives the number of simulated streams.

    Returns:
        One result for each side that alerts.
    """
    values = group_values(settings, group)
    attempt = _learned(settings, observations)
    if isinstance(attempt, Learning):
        count, measure = len(observations), settings.measure
        return [GroupSimulation(settings.title, values, "", measure, count, (), attempt.reason)]
    learned, baseline_size = attempt
    allowance = allowance_of(settings, groups)
    results = []
    for side, learned_side in learned.items():
        rules = simulate(
            _values(learned_side.scale, observations, baseline_size),
            observations.times,
            _rules(settings, learned_side, allowance, min(drops)),
            drops=drops,
            streams=streams,
            learning=learning_rules(settings),
            seed=seed,
            report=report,
        )
        reason = "" if rules[0].streams else "resampled, it is too short for a baseline"
        results.append(
            GroupSimulation(
                monitor=settings.title,
                group=values,
                side=side,
                figure=learned_side.scale.figure,
                observations=len(observations),
                rules=tuple(rules) if rules[0].streams else (),
                reason=reason,
                doubts=learned_side.baseline.doubts if learned_side.baseline is not None else (),
            )
        )
    return results


def _learned(
    settings: MonitorSettings, observations: Observations
) -> tuple[Mapping[Side, LearnedSide], int] | Learning:
    """The sides, and the number of observations that they were learned from."""
    plain = without_baseline(settings)
    if plain is not None:
        return plain, 0
    return learn_sides(settings, observations, int(observations.times.max()))


def _values(scale: Scale, observations: Observations, baseline_size: int) -> Floats:
    """The values of a history; values of the baseline are as if they had come later."""
    own = scale.baseline_values(observations.first(baseline_size))
    return np.concatenate([own, scale.values(observations.after(baseline_size))])


def _rules(
    settings: MonitorSettings, learned: LearnedSide, allowance: float, drop: float
) -> dict[str, Rule]:
    def configured(baseline: Baseline) -> Detector:
        side = LearnedSide(learned.scale, baseline)
        return make_detector(settings, side, allowance=allowance)

    def plain(baseline: Baseline) -> Detector:
        return Threshold(below=baseline.mean - drop / 2)

    return {f"{settings.detector.type} (configured)": configured, PLAIN: plain}
