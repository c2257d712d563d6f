"""A watched group: it learns a baseline from its first observations, then detects changes.

Everything here depends only on the observations in order, not on how checks divided them.

A *family* is the versions of an agent, if a monitor groups by version. The first version of a
family that learns a baseline passes it on to the others. Until then, the observations of earlier
versions count for the baseline of later versions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ..base.jsontext import dumps
from ..scoring import (
    BaselineSettings,
    EDetectorSettings,
    MonitorSettings,
    ThresholdSettings,
    TwoWindowsSettings,
)
from ..store import GroupRow
from .baselines import Baseline, Learning, LearningRules, learn
from .detector import Alarm, Detector, Floats, spending
from .e_detector import EDetector
from .observations import Observations
from .reviews import ReviewedDetector
from .scales import Scale, Side, fit, threshold_scale
from .windowed_rules import Threshold, TwoWindows

__all__ = [
    "Families",
    "GroupChange",
    "LearnedSide",
    "WatchedSide",
    "after_silence",
    "allowance_of",
    "family_of",
    "learn_sides",
    "learning_rules",
    "make_detector",
    "recent_mean",
    "restore",
    "update",
    "watch",
    "with_those_of",
    "without_baseline",
]

_GROWTH = 1.25
# The fewest observations in a period that a user chose for the baseline.
_FEWEST_CHOSEN = 20
_EXAMPLES = 3
# In the average of the newest values, the weight of a value relative to the value after it.
_FADES = 0.5 ** (1 / 25)
_NEWEST = 1000
# The commonness of variants varies around 0.5, where a mean is known least precisely.
_MARGINS = {"variant_shift": 0.05}


@dataclass(frozen=True, slots=True)
class LearnedSide:
    """The scale and the baseline that were learned for one side.

    Attributes:
        scale: The scale.
        baseline: The baseline; None for detectors that need none.
    """

    scale: Scale
    baseline: Baseline | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "scale": self.scale.to_dict(),
            "baseline": self.baseline.to_dict() if self.baseline else None,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LearnedSide:
        """The side that `to_dict` described."""
        baseline = values["baseline"]
        return cls(
            Scale.from_dict(values["scale"]), Baseline.from_dict(baseline) if baseline else None
        )


@dataclass(slots=True)
class WatchedSide:
    """A detector for one side of a group, with its scale and baseline."""

    learned: LearnedSide
    detector: Detector

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        learned = self.learned
        if isinstance(self.detector, ReviewedDetector):
            learned = replace(learned, baseline=self.detector.baseline)
        return {**learned.to_dict(), "state": self.detector.state()}

    def share(self, allowance: float) -> None:
        """Set the budget of false alarms per nanosecond, if the detector has a budget."""
        if isinstance(self.detector, EDetector):
            self.detector.spending = allowance


@dataclass(frozen=True, slots=True)
class GroupChange:
    """An alarm or a recovery of one side of a group.

    Attributes:
        side: The side.
        alarm: The alarm.
        runs: Ids of runs that show an alert.
    """

    side: Side
    alarm: Alarm
    runs: tuple[str, ...] = ()


def without_baseline(settings: MonitorSettings) -> dict[Side, LearnedSide] | None:
    """The sides of a detector that needs no baseline; None for other detectors."""
    rule = settings.detector
    if not isinstance(rule, ThresholdSettings):
        return None
    (side,) = settings.sides
    scale, _ = threshold_scale(settings.measure, side, below=rule.below, above=rule.above)
    return {side: LearnedSide(scale, None)}


def make_detector(settings: MonitorSettings, learned: LearnedSide, *, allowance: float) -> Detector:
    """A new detector for one side.

    Args:
        settings: The monitor.
        learned: The side.
        allowance: The budget of false alarms per nanosecond.
    """
    if isinstance(settings.detector, EDetectorSettings) and learned.baseline is not None:
        baseline = learned.baseline
        if settings.detector.block is not None:
            baseline = replace(
                baseline, block=settings.detector.block, block_reason="set in oteval.yaml"
            )
            return EDetector(baseline, spending=allowance)
        return ReviewedDetector(baseline, spending=allowance)
    rule = settings.detector
    if isinstance(rule, ThresholdSettings):
        _, below = threshold_scale(
            settings.measure, learned.scale.side, below=rule.below, above=rule.above
        )
        window = round(rule.window * 1e9)
        return Threshold(below=below, window_ns=window, least=rule.min_observations)
    assert isinstance(rule, TwoWindowsSettings)
    return TwoWindows(
        window_ns=round(rule.window * 1e9),
        before_ns=round(rule.reference * 1e9),
        level=rule.p,
    )


def allowance_of(settings: MonitorSettings, live_groups: int) -> float:
    """The budget of one side of one group per nanosecond."""
    budget = settings.false_alarms
    sides = max(1, live_groups) * len(settings.sides)
    return spending(budget.alarms, round(budget.per * 1e9), live_groups=sides)


def watch(
    settings: MonitorSettings, learned: dict[Side, LearnedSide], *, allowance: float
) -> dict[Side, WatchedSide]:
    """Return new detectors for the sides of a group."""
    return {
        side: WatchedSide(learned_side, make_detector(settings, learned_side, allowance=allowance))
        for side, learned_side in learned.items()
    }


def restore(
    settings: MonitorSettings, stored: dict[str, Any], *, allowance: float
) -> dict[Side, WatchedSide]:
    """The detectors of a group as they were stored."""
    watched_sides: dict[Side, WatchedSide] = {}
    for side in settings.sides:
        learned = LearnedSide.from_dict(
            {name: stored[side][name] for name in ("scale", "baseline")}
        )
        watched_sides[side] = WatchedSide(
            learned, make_detector(settings, learned, allowance=allowance)
        )
        watched_sides[side].detector.restore(stored[side]["state"])
    return watched_sides


def update(sides: dict[Side, WatchedSide], new: Observations) -> list[GroupChange]:
    """Add observations to the detectors of a group and return the changes, by time."""
    changes = []
    for side, watched in sides.items():
        values = watched.learned.scale.values(new)
        for alarm in watched.detector.update(values, new.times):
            changes.append(GroupChange(side, alarm, _examples(alarm, values, new)))
    return sorted(changes, key=lambda change: change.alarm.time_ns)


def _examples(alarm: Alarm, values: Any, new: Observations) -> tuple[str, ...]:
    """The ids of the lowest runs since a change, the latest first."""
    if alarm.kind != "alert":
        return ()
    inside = np.flatnonzero((new.times >= alarm.change_ns) & (new.times <= alarm.time_ns))
    lowest = inside[np.lexsort((-new.times[inside], values[inside]))][:_EXAMPLES]
    run_ids = new.runs.take(pa.array(lowest)).to_pylist()
    return tuple(run_id for run_id in run_ids if run_id)


def learn_sides(
    settings: MonitorSettings, observations: Observations, reached_ns: int, *, tried: int = 0
) -> tuple[dict[Side, LearnedSide], int] | Learning:
    """Learn the baselines of a group from its first observations.

    Args:
        settings: The monitor.
        observations: All observations of the group so far.
        reached_ns: The latest time of any observation of the monitor.
        tried: The number of observations at the last attempt, which saves time.

    Returns:
        The learned sides and how many of the observations they took; or why there are too few.
    """
    rules = settings.baseline
    if rules.from_ is not None and rules.until is not None:
        if reached_ns < rules.until:
            return Learning(len(observations), 0.0, 0, "the time of the baseline is not over")
        inside = (observations.times >= rules.from_) & (observations.times < rules.until)
        learned = _learn_all(settings, observations.select(inside))
        if isinstance(learned, Learning):
            return replace(learned, reason=f"between from and until: {learned.reason}")
        return learned[0], int(np.searchsorted(observations.times, rules.until))
    sizes = _sizes(rules, observations)
    if fit(settings.measure, "worse", observations.first(rules.scores)).is_fixed:
        sizes = [len(observations)]
    else:
        tried = 0
    latest = Learning(len(observations), 0.0, 0, "too few observations")
    for size in sizes:
        learned = _learn_first(
            settings, observations.first(size), learning_rules(settings), tried=tried
        )
        if not isinstance(learned, Learning):
            return learned
        latest = learned
    return latest


def _learn_all(
    settings: MonitorSettings, period: Observations
) -> tuple[dict[Side, LearnedSide], int] | Learning:
    """Learn from all observations of a period."""
    rules = replace(learning_rules(settings), effective=_FEWEST_CHOSEN, span_ns=0)
    return _learn_first(settings, period, rules, is_chosen=True)


def _learn_first(
    settings: MonitorSettings,
    observations: Observations,
    rules: LearningRules,
    *,
    tried: int = 0,
    is_chosen: bool = False,
) -> tuple[dict[Side, LearnedSide], int] | Learning:
    learned: dict[Side, LearnedSide] = {}
    baseline_size = 0
    if len(settings.sides) > 1:
        # One side may have learned at a size where the other had not.
        tried = 0
    for side in settings.sides:
        if not len(observations):
            return Learning(0, 0.0, 0, "no observations")
        scale = fit(settings.measure, side, observations.first(settings.baseline.scores))
        if not scale.is_fixed:
            scale = fit(settings.measure, side, observations)
        values = scale.baseline_values(observations)
        baseline = learn(values, observations.times, rules, tried=tried, is_chosen=is_chosen)
        if isinstance(baseline, Learning):
            return baseline
        learned[side] = LearnedSide(scale, baseline)
        # Later runs are runs that the scale does not know either.
        baseline_size = max(baseline_size, baseline.size if scale.is_fixed else len(observations))
    return learned, baseline_size


def learning_rules(settings: MonitorSettings) -> LearningRules:
    """When the groups of a monitor have learned their baselines."""
    # Only the e-detector compares with the mean, so only it has to know the mean precisely.
    is_precise = isinstance(settings.detector, EDetectorSettings)
    usual = _MARGINS.get(settings.measure, LearningRules().margin)
    return LearningRules(
        effective=settings.baseline.scores,
        span_ns=round(settings.baseline.span * 1e9),
        unsteady=LearningRules().unsteady if is_precise else 1.0,
        margin=usual if is_precise else 1.0,
    )


def _sizes(settings: BaselineSettings, observations: Observations) -> Sequence[int]:
    """The numbers of first observations to try, which depend on nothing later."""
    reached = np.maximum.accumulate(observations.times) if len(observations) else observations.times
    long_enough = int(
        np.searchsorted(reached - observations.times[:1].sum(), round(settings.span * 1e9))
    )
    sizes = []
    # A tenth more than the least, because `learn` tries sizes in such steps.
    size = max(settings.scores, int(1.11 * (long_enough + 1)) + 1)
    while size <= len(observations):
        sizes.append(size)
        size = int(size * _GROWTH) + 1
    return sizes


def after_silence(row: GroupRow, times: Any, now_ns: int) -> GroupRow:
    """A group's row with new observations counted and its longest silence.

    Args:
        row: The row.
        times: The times of the observations (ns), at least one.
        now_ns: The time of the check. Later times come from a wrong clock, and count as this time.
    """
    times = np.minimum(times, now_ns)
    last = row.last_ns or int(times[0])
    reached = np.maximum.accumulate(np.concatenate([[last], times]))
    gap = int(np.diff(reached).max())
    return replace(
        row,
        first_ns=row.first_ns or int(times[0]),
        last_ns=int(reached[-1]),
        longest_gap_ns=max(row.longest_gap_ns, gap),
        observations=row.observations + len(times),
    )


def recent_mean(before: float | None, count: int, values: Floats) -> float:
    """An average of all values whose weights halve every 25 values.

    Args:
        before: The average before.
        count: The number of values before.
        values: The new values.
    """
    newest = values[-_NEWEST:]
    weights = _FADES ** np.arange(len(newest) - 1, -1, -1)
    old = _FADES ** len(values) * (1 - _FADES**count)
    total = (before or 0.0) * old + (1 - _FADES) * float(weights @ newest)
    return total / (1 - _FADES ** (count + len(values)))


def family_of(group: str, group_by: Sequence[str]) -> str:
    """A group's values without its version, if a monitor groups by version.

    Args:
        group: The values, as a JSON list.
        group_by: The names of the values.
    """
    if "version" not in group_by:
        return group
    values = json.loads(group)
    del values[group_by.index("version")]
    return dumps(values)


class Families:
    """The versions that are learning; none if a monitor does not group by version.

    Args:
        rows: The groups that are learning.
        group_by: The names of their values.
    """

    def __init__(self, rows: Iterable[GroupRow], group_by: Sequence[str]) -> None:
        self._group_by = group_by
        self._members: dict[tuple[str, str], list[GroupRow]] = {}
        if "version" in group_by:
            for row in sorted(rows, key=lambda row: row.first_ns):
                self._members.setdefault(self._key(row), []).append(row)

    def earlier(self, row: GroupRow) -> list[GroupRow]:
        """The earlier versions of a group's agent, the oldest first."""
        if not self._members:
            return []
        members = self._members.get(self._key(row), [])
        return [member for member in members if member.first_ns < row.first_ns]

    def _key(self, row: GroupRow) -> tuple[str, str]:
        return family_of(row.group, self._group_by), row.version


def with_those_of(earlier: Collection[object]) -> str:
    """The end of a sentence about observations, which names the earlier versions."""
    if not earlier:
        return ""
    versions = "earlier version" if len(earlier) == 1 else "earlier versions"
    return f", with those of {len(earlier):,} {versions}"
