"""The baseline of a group: learned from its first observations, then frozen.

Learning takes the first observations that suffice: at least 300 effective ones (their number
divided by the autocorrelation time) over at least one day, so that the variation from hour to hour
is in the mean. How many are used depends only on the observations, not on how they arrived, because
sizes are tried on a fixed grid. `learn` returns a `Learning` with the reason while there are too
few.

The floor is the mean that a detector defends: the lower of the mean's lower confidence bound
(Wilson, for the effective number) and the mean minus a margin. Drops within the margin do not
matter to the user, or are the usual variation.

Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from .autocorrelation import autocorrelation_time
from .blocks import choose_block
from .budget import DAY_NS
from .detector import Floats, Ints, checked

__all__ = ["Baseline", "Learning", "LearningRules", "learn", "lower_bound"]

_GROWTH = 1.1


@dataclass(frozen=True, slots=True)
class LearningRules:
    """When a baseline has been learned, and how its floor follows.

    Attributes:
        effective: The least effective number of observations.
        span_ns: The least time they cover.
        margin: The distance of the floor below the mean, at least.
    """

    effective: int = 300
    span_ns: int = DAY_NS
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
        mean: Their mean.
        variance: Their variance.
        floor: The mean that detectors defend.
        autocorrelation_time: In observations, at least 1.
        block: The number of consecutive observations whose mean a detector takes at a time.
        block_reason: Why it is this number.
        start_ns: The time of the first observation.
        end_ns: The time of the last.
    """

    size: int
    effective_size: float
    mean: float
    variance: float
    floor: float
    autocorrelation_time: float
    block: int
    block_reason: str
    start_ns: int
    end_ns: int

    @property
    def interval_ns(self) -> float:
        """The mean time between two observations."""
        return max(1.0, (self.end_ns - self.start_ns) / max(1, self.size - 1))

    @property
    def dispersion(self) -> float:
        """The long-run variance of the values, relative to independent 0/1 values."""
        mean = min(max(self.mean, 0.5 / (self.size + 1)), 1 - 0.5 / (self.size + 1))
        return max(0.02, self.variance * self.autocorrelation_time / (mean * (1 - mean)))

    def to_dict(self) -> dict[str, Any]:
        """Return the baseline as plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Baseline:
        """Return the baseline that `to_dict` described."""
        return cls(**values)


def learn(
    values: npt.ArrayLike, times_ns: npt.ArrayLike, rules: LearningRules | None = None
) -> Baseline | Learning:
    """Learn a baseline from the first observations that suffice.

    Args:
        values: All observations of the group so far, in order; `Baseline.size` says how many of
            them were used, and a detector gets the rest.
        times_ns: Their times.
        rules: When to stop.
    """
    found, times = checked(values, times_ns)
    rules = rules or LearningRules()
    latest = Learning(0, 0.0, 0, "no observations")
    for size in takewhile(lambda size: size <= len(found), _sizes(rules.effective)):
        progress = _progress(found[:size], times[:size], rules)
        if isinstance(progress, Baseline):
            return progress
        latest = progress
    if latest.size == 0 and len(found):
        return _short(len(found), float(len(found)), _span(times), rules)
    return latest


def lower_bound(mean: float, size: float, *, deviations: float = 1.96) -> float:
    """Return Wilson's lower bound of a mean of values in [0, 1]."""
    squared = deviations**2
    centre = mean + squared / (2 * size)
    width = deviations * float(np.sqrt(mean * (1 - mean) / size + squared / (4 * size**2)))
    return max(0.0, (centre - width) / (1 + squared / size))


def _sizes(least: int) -> list[int]:
    sizes = [least]
    while sizes[-1] < 10_000_000:
        sizes.append(int(sizes[-1] * _GROWTH) + 1)
    return sizes


def _span(times: Ints) -> int:
    return int(times.max() - times.min()) if len(times) else 0


def _short(size: int, effective: float, span: int, rules: LearningRules) -> Learning:
    if effective < rules.effective:
        reason = f"{effective:.0f} of {rules.effective} effective observations"
    else:
        reason = f"{span / 3.6e12:.1f} of {rules.span_ns / 3.6e12:.0f} hours"
    return Learning(size, effective, span, reason)


def _progress(values: Floats, times: Ints, rules: LearningRules) -> Baseline | Learning:
    time = autocorrelation_time(values)
    effective = len(values) / time
    if effective < rules.effective or _span(times) < rules.span_ns:
        return _short(len(values), effective, _span(times), rules)
    mean = float(values.mean())
    floor = min(lower_bound(mean, effective), mean - rules.margin)
    block, reason = choose_block(values, time=time)
    return Baseline(
        size=len(values),
        effective_size=effective,
        mean=mean,
        variance=float(values.var()),
        floor=max(0.0, floor),
        autocorrelation_time=time,
        block=block,
        block_reason=reason,
        start_ns=int(times[0]),
        end_ns=int(times.max()),
    )
