"""Months of usual traffic that a monitor must not call for, and drops after four weeks of it.

Each stream is a group of a default monitor for 42 days, with its own baseline, its reviews, and a
budget of 1 false alarm per 30 days. Unlike in the first table, there are nights, weekends, bursts
and holes, and the level wanders. Neither these streams nor their seeds were used
to choose the rules. Some conditions cannot keep the budget, and a monitor may say so beforehand:
**unsaid** are the alerts at times at which the baseline had no doubt.

The conditions: independent scores (r = 0) and scores that keep the value of the one before with the
probability r; a sine of the day of amplitude .08, alone and with as much more traffic by day; a
nightly job, from 1 to 5 h, with a pass rate of .10 less; weekends of .05 less; hours that differ by
up to .08 at random; a level that wanders (deviation .02, correlation time 12 h); bursts of 20;
hours that are missing (30%); latencies with heavy tails, and those whose hourly level varies by 30%
(lognormal); 20 groups that share a budget, as the sum of all; and sequences of tools with the
frequencies of Zipf's law.

Delays are those of a drop 28 days after the baseline; groups in alert at that time are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.baselines import Learning
from oteval.monitor.detector import DAY_NS, Floats, Ints
from oteval.monitor.groups import WatchedSide, allowance_of, learn_sides, update, watch
from oteval.monitor.observations import Observations
from oteval.monitor.reviews import ReviewedDetector
from oteval.monitor.scales import Side
from oteval.scoring.config import MonitorSettings

from .report import Row

DAYS = 42
MOST_IN_30_DAYS = 1.0
MOST_DELAYS = {0.85: 203, 0.50: 20}

_MINUTE_NS = 60_000_000_000
_HOUR_NS = 60 * _MINUTE_NS
_SEED = 20_261
_USUAL = 0.95
_CHANGE_AFTER = 28


@dataclass(frozen=True)
class Month:
    """A condition.

    Attributes:
        name: Its name.
        rate: Observations a minute, on average.
        shift: The difference from the usual pass rate, by name.
        traffic: When observations come, by name.
        dependence: The probability that a score keeps the value of the one before.
        measure: The measure.
        parameter: The spread of hourly latencies, or the exponent of Zipf's law.
        groups: The number of groups that share the budget.
    """

    name: str
    rate: float = 1.0
    shift: str = "none"
    traffic: str = "even"
    dependence: float = 0.0
    measure: str = "pass_rate"
    parameter: float = 0.0
    groups: int = 1


_RATES = (0.1, 1.0, 10.0)

MONTHS = (
    *(Month(f"{rate:g}/min, r = 0", rate) for rate in _RATES),
    *(Month(f"1/min, r = {r:g}", dependence=r) for r in (0.3, 0.6, 0.9)),
    *(Month(f"{rate:g}/min, sine of .08", rate, "sine") for rate in _RATES),
    Month("1/min, sine of .08 and a cycle of traffic", 1.0, "sine", "cycle"),
    *(Month(f"{rate:g}/min, nightly job", rate, "night") for rate in _RATES),
    *(Month(f"{rate:g}/min, weekends", rate, "weekend") for rate in _RATES),
    *(Month(f"{rate:g}/min, hours of .08", rate, "hours") for rate in _RATES),
    *(Month(f"{rate:g}/min, wandering level", rate, "wander") for rate in _RATES),
    Month("1/min, bursts", 1.0, traffic="bursts"),
    Month("1/min, missing hours", 1.0, traffic="missing"),
    Month("1/min, latency with heavy tails", measure="latency"),
    Month("1/min, latency whose hours vary by 30%", measure="latency", parameter=0.3),
    Month("1/min, 20 groups", groups=20),
    *(
        Month(f"1/min, {measure}, Zipf {exponent:g}", measure=measure, parameter=exponent)
        for measure in ("new_variants", "variant_shift")
        for exponent in (1.5, 1.1, 1.0)
    ),
)


def one_month(month: Month, streams: int) -> dict[str, Any]:
    """Return the false alarms of a condition, and the delays where scores are independent."""
    most = 3 * streams if month.rate <= 1 else streams
    streams = max(1, streams // (month.groups if month.rate <= 1 else 5))
    results = [
        _watched(month, [number, group])
        for number in range(streams)
        for group in range(month.groups)
    ]
    days = sum(result["days"] for result in results) / month.groups
    figures: dict[str, Any] = {
        "month": month.name,
        "alarms": sum(result["alarms"] for result in results) * 30 / days,
        "unsaid": sum(result["unsaid"] for result in results) * 30 / days,
        "doubted": float(np.mean([result["is_doubted"] for result in results])),
        "delays": {},
    }
    if month.name.endswith("r = 0"):
        for level in MOST_DELAYS:
            delays = [_delay(month, number, level) for number in range(most)]
            figures["delays"][f"{level:.2f}"] = float(np.mean([delay for delay in delays if delay]))
    return figures


def month_rows(months: list[dict[str, Any]]) -> list[Row]:
    """Return the figures as rows of a table."""
    table = []
    for each in months:
        is_held = min(each["alarms"], each["unsaid"]) <= MOST_IN_30_DAYS
        table.append(
            Row(
                f"a month, {each['month']}: false alarms in 30 days; unsaid; doubted",
                f"{each['alarms']:.2f}; {each['unsaid']:.2f}; {each['doubted']:.0%}",
                target=f"at most {MOST_IN_30_DAYS:.0f}, or said",
                held=is_held,
            )
        )
        for level, most in MOST_DELAYS.items():
            delay = each["delays"].get(f"{level:.2f}")
            if delay is not None:
                table.append(
                    Row(
                        f"a month, {each['month']}: scores until a drop to {level:.2f} is found",
                        f"{delay:,.0f}",
                        target=f"at most {most}",
                        held=delay <= most,
                    )
                )
    return table


def _watched(month: Month, seed: list[int]) -> dict[str, Any]:
    """Return the alerts of one group, day by day."""
    settings = _settings(month)
    observed = _observed(month, seed)
    learned = learn_sides(settings, observed, int(observed.times.max()))
    if isinstance(learned, Learning):
        return {"alarms": 0, "unsaid": 0, "days": float(DAYS), "is_doubted": True}
    sides, taken = learned
    watched = watch(settings, sides, allowance=allowance_of(settings, month.groups))
    rest = observed.after(taken)
    ends = np.searchsorted(rest.times, np.arange(rest.times[0], rest.times[-1] + DAY_NS, DAY_NS))
    alarms = unsaid = 0
    is_doubted = False
    for first, last in pairwise(ends):
        doubts = _doubts(watched)
        # Two weeks are over for everybody; what counts is a reason that was measured.
        is_doubted |= any("two weeks" not in doubt for doubt in doubts)
        changes = update(watched, rest.between(int(first), int(last)))
        alerts = sum(change.alarm.kind == "alert" for change in changes)
        alarms += alerts
        unsaid += 0 if doubts else alerts
    days = float(rest.times[-1] - rest.times[0]) / DAY_NS
    return {"alarms": alarms, "unsaid": unsaid, "days": days, "is_doubted": is_doubted}


def _doubts(watched: Mapping[Side, WatchedSide]) -> list[str]:
    detectors = [watched_side.detector for watched_side in watched.values()]
    return [
        doubt
        for detector in detectors
        if isinstance(detector, ReviewedDetector)
        for doubt in detector.baseline.doubts
    ]


def _delay(month: Month, number: int, level: float) -> int | None:
    """Return the scores until a drop is found; all that there are if it is not.

    None if the group is in alert when the drop begins.
    """
    settings = _settings(month)
    observed = _observed(month, [number, 0])
    learned = learn_sides(settings, observed, int(observed.times.max()))
    assert not isinstance(learned, Learning)
    sides, taken = learned
    watched = watch(settings, sides, allowance=allowance_of(settings, 1))
    start = int(observed.times[taken]) + _CHANGE_AFTER * DAY_NS
    change = int(np.searchsorted(observed.times, start))
    update(watched, observed.between(taken, change))
    if any(watched_side.detector.alerting for watched_side in watched.values()):
        return None
    rng = np.random.default_rng([_SEED, number, 7])
    after = observed.after(change)
    after.values[:] = rng.random(len(after)) < level
    for alarm in (entry.alarm for entry in update(watched, after)):
        if alarm.kind == "alert":
            return alarm.index - (change - taken) + 1
    return len(after)


def _settings(month: Month) -> MonitorSettings:
    if month.measure == "pass_rate":
        return MonitorSettings(evaluator="e")
    return MonitorSettings(measure=month.measure)


def _observed(month: Month, seed: list[int]) -> Observations:
    rng = np.random.default_rng([_SEED, MONTHS.index(month), *seed])
    times = _times(month, rng)
    variants = np.empty(0, np.int64)
    if month.measure == "latency":
        hours = _hours(times)
        levels = np.exp(rng.normal(0, month.parameter, int(hours[-1]) + 1))[hours]
        tail = rng.pareto(1.2, len(times)) if not month.parameter else 0.0
        values = levels * rng.lognormal(0, 0.5, len(times)) + tail
    elif month.measure == "pass_rate":
        means = np.clip(_USUAL + _SHIFTS[month.shift](times, rng), 0.0, 1.0)
        values = pass_fail(means, month.dependence, rng)
    else:
        values = np.zeros(len(times))
        shares = np.cumsum(np.arange(1, 500_001) ** -month.parameter)
        variants = np.searchsorted(shares / shares[-1], rng.random(len(times))).astype(np.int64)
    zeros = np.zeros(len(times), np.int64)
    return Observations(
        values=np.asarray(values, np.float64),
        times=times,
        variants=variants,
        sizes=zeros + (1 if len(variants) else 0),
        versions=zeros,
        version_names=("",),
        runs=pa.nulls(len(times), pa.string()),
    )


def _times(month: Month, rng: np.random.Generator) -> Ints:
    minutes = DAYS * 1440
    start = 1_790_000_000 * 10**9 + int(rng.integers(0, 7 * 1440)) * _MINUTE_NS
    if month.traffic == "cycle":
        hours = (start // _MINUTE_NS + np.arange(minutes)) / 60
        counts = rng.poisson(month.rate * (1 + 0.9 * np.cos(2 * np.pi * hours / 24)))
    elif month.traffic == "bursts":
        counts = 20 * rng.poisson(month.rate / 20, minutes)
    else:
        counts = rng.poisson(month.rate, minutes)
    if month.traffic == "missing":
        counts = counts * np.repeat(rng.random(minutes // 60) > 0.3, 60)
    times = np.repeat(np.arange(minutes), counts) * _MINUTE_NS
    return np.sort(start + times + rng.integers(0, _MINUTE_NS, len(times)))


def _hours(times: Ints) -> Ints:
    return times // _HOUR_NS - int(times[0]) // _HOUR_NS


def _sine(times: Ints, rng: np.random.Generator) -> Floats:
    return 0.08 * np.sin(2 * np.pi * ((times % DAY_NS) / DAY_NS + rng.random()))


def _night(times: Ints, _: np.random.Generator) -> Floats:
    hours = times % DAY_NS // _HOUR_NS
    return np.where((hours >= 1) & (hours < 5), -0.1, 0.0)


def _weekend(times: Ints, _: np.random.Generator) -> Floats:
    return np.where((times // DAY_NS + 3) % 7 >= 5, -0.05, 0.0)


def _random_hours(times: Ints, rng: np.random.Generator) -> Floats:
    hours = _hours(times)
    return rng.uniform(-0.08, 0.08, int(hours[-1]) + 1)[hours]


def _wander(times: Ints, rng: np.random.Generator) -> Floats:
    hours = _hours(times)
    persistence = np.exp(-1 / 12)
    steps = rng.normal(0, 0.02 * np.sqrt(1 - persistence**2), int(hours[-1]) + 1)
    level = np.empty(len(steps))
    latest = rng.normal(0, 0.02)
    for hour, step in enumerate(steps):
        level[hour] = latest = persistence * latest + step
    return level[hours]


_SHIFTS: dict[str, Callable[[Ints, np.random.Generator], Floats]] = {
    "none": lambda times, _: np.zeros(len(times)),
    "sine": _sine,
    "night": _night,
    "weekend": _weekend,
    "hours": _random_hours,
    "wander": _wander,
}
