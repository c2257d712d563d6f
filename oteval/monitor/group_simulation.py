"""Simulate the rules of a monitor, and a plain threshold, on each group's own history.

Most alerting systems have such a threshold: the mean of the last 60 minutes below a limit, here
halfway from the baseline's mean to the smallest simulated drop. `simulation` describes how a
history is resampled. Drops are of the values that detectors compare: .1 is ten more failures in a
hundred runs, or ten more slow ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..scoring import MonitorSettings
from .baselines import Baseline, Learning
from .detector import Detector, Floats
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
from .simulation import Rule, RuleResult, simulate
from .status import group_values
from .threshold import Threshold

__all__ = ["PLAIN", "GroupSimulation", "simulate_group"]

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
