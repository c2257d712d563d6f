"""The slices of runs that got worse most, such as one tool sequence or one model.

A slice is one value of a dimension, unless all runs after have it. Its mean after a change is
compared with its own mean before; a new slice is compared with the mean of all runs. Where values
are 0 or 1, the test is Fisher's exact test, because slices are small; else it is the normal test.
The p-values of all slices are adjusted together (Benjamini-Hochberg). Of the slices with at most
5%, the slices that cost most are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..evaluators import benjamini_hochberg
from .detector import Floats
from .windowed_rules import fisher

__all__ = ["ALPHA", "Slice", "p_value", "worst_slices"]

ALPHA = 0.05
_FEWEST = 5
_MOST = 3

Texts = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice that got worse.

    Attributes:
        dimension: ``tools``, ``model``, ``version`` or an attribute.
        value: Its value.
        before: The mean before, of values where lower is worse.
        after: The mean after.
        observations: The number of observations after.
        p: The adjusted p-value.
    """

    dimension: str
    value: str
    before: float
    after: float
    observations: int
    p: float


def p_value(before: Floats, after: Floats, *, before_size: float, after_size: float) -> float:
    """The two-sided p-value of a difference of means, by the normal test.

    Args:
        before: Values in [0, 1].
        after: Values in [0, 1].
        before_size: The effective number of values before.
        after_size: The effective number of values after.
    """
    variance = float(np.concatenate([before, after]).var())
    difference = float(after.mean() - before.mean())
    error = math.sqrt(variance * (1 / before_size + 1 / after_size))
    return math.erfc(abs(difference) / error / math.sqrt(2)) if error > 0 else 1.0


def worst_slices(
    before: Floats,
    after: Floats,
    dimensions: Mapping[str, tuple[Texts, Texts]],
    *,
    time: float,
) -> Sequence[Slice]:
    """The slices that got worse most.

    Args:
        before: The values before, lower is worse.
        after: The values after.
        dimensions: The values of each dimension for the observations before and after.
        time: The autocorrelation time of the observations.
    """
    candidates = [
        candidate
        for name, (old, new) in dimensions.items()
        for value in sorted(set(new))
        if not (new == value).all()  # it would show no more than the figure
        if (
            candidate := _slice(
                name, value, before[old == value], after[new == value], before, time
            )
        )
    ]
    adjusted = benjamini_hochberg([candidate.p for candidate in candidates])
    significant = [
        Slice(
            candidate.dimension,
            candidate.value,
            candidate.before,
            candidate.after,
            candidate.observations,
            p,
        )
        for candidate, p in zip(candidates, adjusted, strict=True)
        if p <= ALPHA and candidate.after < candidate.before
    ]
    return sorted(
        significant,
        key=lambda candidate: (candidate.after - candidate.before) * candidate.observations,
    )[:_MOST]


def _slice(
    dimension: str, value: str, old: Floats, new: Floats, before: Floats, time: float
) -> Slice | None:
    if len(new) < _FEWEST:
        return None
    reference = old if len(old) >= _FEWEST else before
    return Slice(
        dimension,
        value,
        float(reference.mean()),
        float(new.mean()),
        len(new),
        _p(reference, new, time),
    )


def _p(reference: Floats, new: Floats, time: float) -> float:
    if not np.isin(reference, (0.0, 1.0)).all() or not np.isin(new, (0.0, 1.0)).all():
        return p_value(
            reference, new, before_size=len(reference) / time, after_size=len(new) / time
        )
    sizes = [max(1, int(len(sample) / time)) for sample in (new, reference)]
    failures = [
        round(size * (1.0 - float(sample.mean())))
        for size, sample in zip(sizes, (new, reference), strict=True)
    ]
    return float(fisher(failures[0], sizes[0], failures[1], sizes[1])[0])
