"""Compare the measures of monitors before and after a time, such as a deployment.

`level_changes` compares the levels and estimates how uncertain the difference is, given how much
the level wanders by itself. Both figures have exact intervals for the number of independent
observations that are as uncertain. The p-values of all groups and measures are adjusted together
(Benjamini-Hochberg). A measure whose unit is unbounded is compared by the share beyond 90% of the
values before. New and rare variants are the variants that every second run before lacks. So the
other runs before and the runs after are compared with the same variants. Groups by version are
joined, since a deployment changes the version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..evaluators import benjamini_hochberg, clopper_pearson
from ..scoring import MonitorSettings
from ..store import Store
from .autocorrelation import autocorrelation_time
from .detector import Floats
from .level_changes import LevelChange, TimedValues, effective_size, level_change
from .observations import Observations
from .past import PastPeriod, histories
from .scales import VARIANT_MEASURES, Scale, fit
from .slices import ALPHA, Slice, worst_slices
from .status import group_values

__all__ = ["Estimate", "MeasuredChange", "adjusted", "compared_scale", "measured_changes"]

_LEAST_EFFECTIVE = 20.0
_EXAMPLES = 3
_FEW = "fewer than 20 independent observations on a side"
_SHORT = "less than a day of hours with observations on a side"
_UNMATCHED = "other days of the week: their pattern may explain a difference of 0.1"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95% confidence interval."""

    mean: float
    low: float
    high: float
    observations: int


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A measure of a group before and after.

    Attributes:
        monitor: The monitor.
        group: The values that the monitor groups by, by name.
        figure: The name of the figure.
        before: The figure before; None with too few observations.
        after: The figure after; None with too few observations.
        change: The difference with its 95% interval, in the terms of the figure; None if too little
            is known.
        note: Why no change can be estimated, or which pattern may explain the change.
        is_worse: Whether the change is to the worse side.
        p: The p-value, adjusted by `adjusted`; None with too few observations.
        slices: The slices that got worse most, their means in the terms of the figure.
        runs_before: Ids of runs before that were good.
        runs_after: Ids of runs after that were bad, of the worst slice if there is one.
    """

    monitor: str
    group: dict[str, str]
    figure: str
    before: Estimate | None = None
    after: Estimate | None = None
    change: tuple[float, float, float] | None = None
    note: str = ""
    is_worse: bool = False
    p: float | None = None
    slices: Sequence[Slice] = ()
    runs_before: Sequence[str] = ()
    runs_after: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """``worse``, ``better``, ``no evidence``, ``too few`` or ``too few days``."""
        if self.p is None:
            return "too few days" if self.note == _SHORT else "too few"
        if self.p > ALPHA:
            return "no evidence"
        return "worse" if self.is_worse else "better"

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval monitor compare --json`` prints."""
        return {**asdict(self), "verdict": self.verdict}


def measured_changes(
    store: Store,
    settings: MonitorSettings,
    *,
    before_ns: int,
    after_ns: int,
    window_ns: int,
    now_ns: int,
    by: Sequence[str] = (),
) -> list[MeasuredChange]:
    """Compare a monitor's measure in each group; pass all results to `adjusted`.

    Args:
        store: The store.
        settings: The monitor.
        before_ns: The end of the time before (ns).
        after_ns: The start of the time after (ns).
        window_ns: The length of both times.
        now_ns: The time (ns).
        by: Attributes to slice by, in addition to tools, model and version.
    """
    names = [name for name in settings.group_by if name != "version"]
    joined = settings.model_copy(update={"group_by": names})
    period = PastPeriod(before_ns - window_ns, after_ns + window_ns)
    changes = []
    for group, observations in sorted(histories(store, joined, period, now_ns).items()):
        old = observations.select(observations.times < before_ns)
        new = observations.select(observations.times >= after_ns)
        plain = MeasuredChange(settings.title, group_values(joined, group), settings.measure)
        changes.append(_change(store, joined, plain, old, new, by))
    return changes


def adjusted(changes: Sequence[MeasuredChange]) -> list[MeasuredChange]:
    """Return changes with their p-values adjusted together."""
    values = iter(benjamini_hochberg([change.p for change in changes if change.p is not None]))
    return [change if change.p is None else replace(change, p=next(values)) for change in changes]


def compared_scale(measure: str, before: Observations) -> tuple[Scale, Observations]:
    """The scale of a comparison, and the observations before to compare by it.

    Args:
        measure: The measure.
        before: The observations before, at least one.
    """
    if measure not in VARIANT_MEASURES:
        return fit(measure, "worse", before), before
    # Runs are new compared with other runs, not with themselves.
    places = np.arange(len(before))
    return fit(measure, "worse", before.select(places[::2])), before.select(places[1::2])


def _change(
    store: Store,
    settings: MonitorSettings,
    plain: MeasuredChange,
    old: Observations,
    new: Observations,
    by: Sequence[str],
) -> MeasuredChange:
    if not len(old) or not len(new):
        return plain
    scale, old = compared_scale(settings.measure, old)
    if not len(old):
        return plain
    before, after = scale.values(old), scale.values(new)
    parts = TimedValues(before, old.times), TimedValues(after, new.times)
    sizes = effective_size(parts[0]), effective_size(parts[1])
    with_estimates = replace(
        plain,
        figure=scale.figure,
        before=_estimate(scale, before, sizes[0]),
        after=_estimate(scale, after, sizes[1]),
    )
    times = autocorrelation_time(before), autocorrelation_time(after)
    if min(len(before) / times[0], len(after) / times[1]) < _LEAST_EFFECTIVE:
        return replace(with_estimates, note=_FEW)
    change = level_change(*parts)
    if change is None:
        return replace(with_estimates, note=_SHORT)
    decided = replace(
        with_estimates,
        change=_shown_change(scale, change),
        note="" if change.is_matched else _UNMATCHED,
        is_worse=change.delta < 0,
        p=change.p,
    )
    names = store.observations.dimensions([*old.runs.to_pylist(), *new.runs.to_pylist()], by)
    dimensions = {
        name: (_texts(values, old), _texts(values, new)) for name, values in names.items()
    }
    time = max(len(before) / sizes[0], len(after) / sizes[1])
    slices = worst_slices(before, after, dimensions, time=time)
    inside = np.ones(len(after), bool)
    if slices:
        inside = dimensions[slices[0].dimension][1] == slices[0].value
    return replace(
        decided,
        slices=[_shown_slice(scale, worst_slice) for worst_slice in slices],
        runs_before=_examples(old, -before),
        runs_after=_examples(new.select(inside), after[inside]),
    )


def _shown_slice(scale: Scale, part: Slice) -> Slice:
    """A slice whose means are in the terms of the figure."""
    return replace(part, before=_shown(scale, part.before), after=_shown(scale, part.after))


def _shown(scale: Scale, value: float) -> float:
    figure = scale.shown(value)
    assert figure is not None
    return figure


def _shown_change(scale: Scale, change: LevelChange) -> tuple[float, float, float]:
    """A difference and its interval in the terms of the figure, which is linear."""
    origin = _shown(scale, 0.0)
    delta, *ends = (
        _shown(scale, delta_or_end) - origin
        for delta_or_end in (change.delta, change.low, change.high)
    )
    return delta, min(ends), max(ends)


def _estimate(scale: Scale, values: Floats, size: float) -> Estimate:
    mean = float(values.mean())
    interval = clopper_pearson(mean * size, size)
    ends = sorted((_shown(scale, interval.low), _shown(scale, interval.high)))
    return Estimate(_shown(scale, mean), ends[0], ends[1], len(values))


def _examples(observations: Observations, order: Floats) -> tuple[str, ...]:
    """The ids of the runs with the lowest order, the latest first."""
    rows = np.lexsort((-observations.times, order))[:_EXAMPLES]
    return tuple(observations.runs[int(row)].as_py() for row in rows)


def _texts(values: dict[str, str], observations: Observations) -> Any:
    return np.array([values.get(name, "") for name in observations.runs.to_pylist()], object)
