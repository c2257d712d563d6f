"""False alarms and delays of the detectors of monitors, simulated.

Each stream is a group with a pass rate of .95: it learns its baseline as a monitor does, with the
default rules, and is then checked at each of 10,000 scores. **False alarms** are alerts among these
checks. For the **delay**, the pass rate falls to .85 or .90 after 1,000 checks; it is the mean
number of scores until the alert, and a drop that was not found within 10,000 scores counts as
10,000. Streams that are in alert when the drop begins are left out of the delay.

The streams differ in traffic (0.1, 1 and 5 scores a minute), in the variation of the pass rate from
hour to hour (``none``; ``sine``: a daily sine of amplitude .04; ``hours``: a random shift of up to
.04 in every hour), and in dependence: a score keeps the value of the one before with the
probability r. The last rows are of conditions beyond these: larger variation, a daily sine that
stops at weekends, weekends that are worse by .04, incidents (one hour in fifty is worse by .35),
and weak or extreme dependence.

The rules:

- e-detector: the default rule, with the default budget of 1 false alarm per 30 days.
- the same with a budget of 1 false alarm per 10,000 scores, which takes traffic out of the delay.
- threshold: the mean of the last 60 minutes is below .90.
- Fisher: Fisher's exact test of the last 60 minutes against the 24 hours before, p < .001.

The baseline chooses floor and length of blocks; nothing is set for a condition. The targets are 1
false alarm per 10,000 scores everywhere, and a delay to .85 of at most 1.3 times 156 scores where
scores are independent. ``coverage`` is the share of the first alerts after a drop whose stated
interval contains the true time of the change. The last rows are months of other traffic, described
in `benchmarks/monitor_months.py`, with a fifth of the streams.

    python -m benchmarks.monitor              200 streams for each condition: 8 minutes of CPU time
    python -m benchmarks.monitor --quick      10 streams
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.baselines import Baseline, learn
from oteval.monitor.detector import Detector, Floats, Ints, spending
from oteval.monitor.e_detector import EDetector
from oteval.monitor.simulation import delay_of
from oteval.monitor.windowed_rules import Threshold, TwoWindows

from . import parts
from .checks import check
from .monitor_months import MONTHS, month_rows, one_month
from .report import Row, below

FULL = {"streams": 200}
QUICK = {"streams": 10}

CHECKS = 10_000
BEFORE = 1_000
USUAL = 0.95
AMPLITUDE = 0.04
RATES = (0.1, 1.0, 5.0)
VARIATIONS = ("none", "sine", "hours")
DEPENDENCE = (0.0, 0.3, 0.6, 0.9)
DROPS = (0.85, 0.90)

MOST_ALARMS = 1.0
MOST_DELAY = 1.3 * 156

_MINUTE_NS = 60_000_000_000
_SIZES = (30_000, 120_000)
"""Scores to learn from; the second where the first is not enough."""
_SLACK = 0.1
"""The most that a simulated mean of dependent scores differs from its pass rate."""


@dataclass(frozen=True)
class Condition:
    """Traffic, variation and dependence of the streams.

    Attributes:
        rate: Scores a minute.
        variation: One of `VARIATIONS`.
        dependence: The probability that a score keeps the value of the one before.
        amplitude: The largest difference from the usual pass rate.
        usual: The usual pass rate.
    """

    rate: float
    variation: str
    dependence: float
    amplitude: float = AMPLITUDE
    usual: float = USUAL

    def __str__(self) -> str:
        text = f"{self.rate:g}/min, {self.variation}, r = {self.dependence:g}"
        if self.amplitude != AMPLITUDE:
            text += f", amplitude {self.amplitude:g}"
        return text if self.usual == USUAL else f"{text}, pass rate {self.usual:g}"


CONDITIONS = tuple(
    Condition(rate, variation, dependence)
    for dependence, rate, variation in product(DEPENDENCE, RATES, VARIATIONS)
)

BEYOND = (
    Condition(5.0, "sine", 0.0, amplitude=0.05),
    Condition(5.0, "sine", 0.0, amplitude=0.08),
    Condition(5.0, "hours", 0.0, amplitude=0.08),
    Condition(1.0, "weekdays", 0.0),
    Condition(1.0, "weekends", 0.0),
    Condition(1.0, "incidents", 0.0, amplitude=0.35),
    Condition(1.0, "none", 0.15),
    Condition(1.0, "none", 0.97),
    Condition(0.1, "none", 0.9, usual=0.99),
)
"""Conditions beyond those that the targets are for; only false alarms are measured."""


def rules(condition: Condition) -> dict[str, Callable[[Baseline], Detector]]:
    """Return the rules by name."""
    checks = spending(1, round(CHECKS / condition.rate * _MINUTE_NS))
    return {
        "e-detector": lambda baseline: EDetector(baseline, spending=spending()),
        "1 per 10,000": lambda baseline: EDetector(baseline, spending=checks),
        "threshold": lambda _: Threshold(below=0.90),
        "Fisher": lambda _: TwoWindows(),
    }


def pass_rates(condition: Condition, count: int, rng: np.random.Generator) -> Floats:
    """Return the pass rate at each score."""
    minutes = np.arange(count) / condition.rate
    hours = (minutes // 60).astype(int)
    shifts = np.zeros(count)
    if condition.variation == "sine":
        shifts = np.sin(2 * np.pi * (minutes / 1440 + rng.random()))
    elif condition.variation == "hours":
        shifts = rng.uniform(-1.0, 1.0, hours[-1] + 1)[hours]
    elif condition.variation == "weekends":
        shifts = -1.0 * ((minutes / 1440 + 7 * rng.random()) % 7 >= 5)
    elif condition.variation == "weekdays":
        wave = np.sin(2 * np.pi * (minutes / 1440 + rng.random()))
        shifts = wave * ((minutes / 1440 + 7 * rng.random()) % 7 < 5)
    elif condition.variation == "incidents":
        shifts = -1.0 * (rng.random(hours[-1] + 1) < 0.02)[hours]
    return np.clip(condition.usual + condition.amplitude * shifts, 0.0, 1.0)


@dataclass(frozen=True)
class Stream:
    """A baseline and the scores after it, with and without drops."""

    baseline: Baseline
    scores: Floats
    dropped: dict[float, Floats]
    times: Ints


def stream(condition: Condition, number: int) -> Stream:
    """Return one simulated group; equal numbers give equal groups."""
    for size in _SIZES:
        rng = np.random.default_rng([number, (CONDITIONS + BEYOND).index(condition)])
        means = pass_rates(condition, size + BEFORE + CHECKS, rng)
        scores = pass_fail(means, condition.dependence, rng)
        times = (np.arange(len(scores)) / condition.rate * _MINUTE_NS).astype(np.int64)
        baseline = learn(scores[:size], times[:size])
        if isinstance(baseline, Baseline):
            break
    else:
        raise RuntimeError(f"{condition}: {baseline.reason}")
    first = baseline.size
    change, end = first + BEFORE, first + BEFORE + CHECKS
    dropped = {
        drop: np.concatenate(
            [
                scores[first:change],
                pass_fail(means[change:end] - USUAL + drop, condition.dependence, rng),
            ]
        )
        for drop in DROPS
    }
    # Levels that wander or follow the hours are measured for false alarms alone.
    for drop, after in dropped.items() if condition in CONDITIONS else ():
        mean = float(np.mean(after[BEFORE:]))
        check(abs(mean - drop) < _SLACK, f"the pass rate falls to {drop}", mean)
    return Stream(baseline, scores[first : first + CHECKS], dropped, times[first:end])


def one_condition(condition: Condition, streams: int) -> dict[str, Any]:
    """Return the figures of all rules under one condition."""
    detectors = rules(condition)
    drops = DROPS if condition in CONDITIONS else ()
    alarms = dict.fromkeys(detectors, 0)
    delays: dict[str, dict[float, list[int]]] = {name: {d: [] for d in drops} for name in detectors}
    covered: list[bool] = []
    baselines = []
    for number in range(streams):
        group = stream(condition, number)
        baselines.append(group.baseline)
        for name, rule in detectors.items():
            raised = rule(group.baseline).update(group.scores, group.times[:CHECKS])
            alarms[name] += sum(alarm.kind == "alert" for alarm in raised)
            for drop in drops:
                detector = rule(group.baseline)
                scores = group.dropped[drop]
                delay = delay_of(detector, scores, group.times, change=BEFORE)
                if delay is not None:
                    delays[name][drop].append(delay.observations)
                elif not detector.alerting:
                    delays[name][drop].append(CHECKS)
                if name == "e-detector" and delay is not None:
                    covered.append(delay.covered)
    return {
        "condition": str(condition),
        "alarms": {name: count / streams for name, count in alarms.items()},
        "delays": {
            name: {
                f"{drop:.2f}": float(np.mean(scores)) if scores else None
                for drop, scores in by_drop.items()
            }
            for name, by_drop in delays.items()
        },
        "coverage": float(np.mean(covered)) if covered else None,
        "learned_from": float(np.mean([baseline.size for baseline in baselines])),
        "block": float(np.mean([baseline.block for baseline in baselines])),
        "floor": float(np.mean([baseline.floor for baseline in baselines])),
    }


def measure(streams: int) -> dict[str, Any]:
    """Simulate all conditions, in as many processes as there are processors."""
    conditions = CONDITIONS + BEYOND
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        figures = []
        for each in pool.map(one_condition, conditions, [streams] * len(conditions)):
            figures.append(each)
            if sys.stderr.isatty():
                print(f"{len(figures)} of {len(conditions)}: {each['condition']}", file=sys.stderr)
        months = list(pool.map(one_month, MONTHS, [max(1, streams // 5)] * len(MONTHS)))
    for each in figures[: len(CONDITIONS)]:
        check(each["coverage"] is not None, "a drop is found", each["condition"])
        delays = each["delays"]["e-detector"].values()
        check(None not in delays, "the delay of a drop is known", each["condition"])
    return {
        "streams": streams,
        "checks": CHECKS,
        "conditions": figures[: len(CONDITIONS)],
        "beyond": figures[len(CONDITIONS) :],
        "months": months,
    }


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as rows of a table."""
    table = []
    for each in figures["conditions"]:
        table.append(_alarms(each))
        table.extend(_delay(each, f"{drop:.2f}") for drop in DROPS)
    conditions = figures["conditions"]
    coverage = [each["coverage"] for each in conditions]
    learned = ", ".join(f"{each['block']:.0f}" for each in conditions)
    return [
        *table,
        Row(
            "coverage of the interval of the change: mean and least of all conditions",
            f"{np.mean(coverage):.2f}, {min(coverage):.2f}",
            target="a mean of at least 0.90",
            held=bool(np.mean(coverage) >= 0.9),
        ),
        Row("mean length of blocks, in the order of the conditions", learned),
        *(_beyond(each) for each in figures["beyond"]),
        *month_rows(figures["months"]),
    ]


def _alarms(each: dict[str, Any]) -> Row:
    figures = each["alarms"]
    limited = below(
        f"{each['condition']}: false alarms per 10,000 scores",
        figures["e-detector"],
        "{:.2f}",
        MOST_ALARMS,
    )
    return Row(
        limited.figure,
        limited.ours,
        _others(figures, "{:.2f}"),
        target=limited.target,
        held=limited.held,
    )


def _beyond(each: dict[str, Any]) -> Row:
    figures = each["alarms"]
    return Row(
        f"beyond the targets: {each['condition']}: false alarms per 10,000 scores",
        f"{figures['e-detector']:.2f}",
        _others(figures, "{:.2f}"),
    )


def _delay(each: dict[str, Any], drop: str) -> Row:
    figures = {name: by_drop[drop] for name, by_drop in each["delays"].items()}
    ours = figures["e-detector"]
    independent = each["condition"].endswith("r = 0") and drop == "0.85"
    return Row(
        f"{each['condition']}: scores until a drop to {drop} is found",
        f"{ours:,.0f}",
        _others(figures, "{:,.0f}"),
        target=f"at most {MOST_DELAY:.0f}" if independent else "",
        held=ours <= MOST_DELAY if independent else None,
    )


def _others(figures: dict[str, float | None], form: str) -> str:
    return ", ".join(
        f"{'-' if figure is None else form.format(figure)} ({name})"
        for name, figure in figures.items()
        if name != "e-detector"
    )


if __name__ == "__main__":
    parts.main("monitor")
