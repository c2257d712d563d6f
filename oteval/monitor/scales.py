"""Scales: raw values of a measure become values in [0, 1], where low values alert.

- Shares stay as they are, or are subtracted from 1 where more is worse.
- Unbounded values, such as seconds, become 1 up to a limit and 0 beyond. The limit is the
  baseline's 90% quantile, so that a tenth of its values are beyond. A very slow run then counts
  like any other slow run.
- Variants of runs are compared with the baseline's (`KnownVariants`).

A monitor has a scale for each side that it alerts on, ``worse`` or ``better``.

Measures of the shape of runs need no reference. A *variant* is the sequence of tool names of a run,
by a hash. Two measures compare the variants of new runs with the variants of the baseline:

- ``new_variants``: whether a variant was seen before.
- ``variant_shift``: how common a variant is, as the share of baseline runs with rarer variants,
  which is about 1/2 on average. It falls when rare or unseen variants become common, and rises when
  common variants displace the others.

The baseline contains the variants of its runs, but perhaps not the variants of later runs. So a
baseline is measured out of sample (`held_out`): each of 24 successive parts is compared with the
other parts. If runs are independent, the share of unseen variants is then the estimate of Good and
Turing (1953, "The population frequencies of species"): the share of runs whose variant occurs once.
If a variant comes in a burst, such as a batch of one customer, all of its runs count as unseen, as
they will later.

The other measures of shape (tool errors, loops, length) are numbers that the store computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..evaluators import CHECK_MEASURES
from ..model import MEASURES
from .detector import Floats, Ints
from .observations import Observations

__all__ = [
    "VARIANT_MEASURES",
    "KnownVariants",
    "Scale",
    "Side",
    "fit",
    "held_out",
    "threshold_scale",
]

# Rarer variants beyond this number count as unseen.
_MOST = 10_000
# How many parts of a baseline are each compared with the others.
_PARTS = 24


@dataclass(frozen=True, slots=True)
class KnownVariants:
    """The variants of a baseline.

    Attributes:
        variants: The variants, sorted.
        ranks: How common each is: the share of runs with rarer variants, plus half of the runs
            with equally common ones.
        unseen: The rank of all other variants: half of their expected share.
        runs: The number of runs in the baseline.
    """

    variants: Ints
    ranks: Floats
    unseen: float
    runs: int

    @classmethod
    def of(cls, variants: Ints) -> KnownVariants:
        """The known variants of the runs of a baseline."""
        names, counts = np.unique(variants, return_counts=True)
        return cls._of_counts(names.astype(np.int64), counts)

    @classmethod
    def _of_counts(cls, names: Ints, counts: Ints) -> KnownVariants:
        """The known variants of a baseline, from the number of runs of each variant."""
        runs = max(1, int(counts.sum()))
        once = float(np.sum(counts == 1)) / runs
        common_indices = np.flatnonzero(counts)
        if len(common_indices) > _MOST:
            common_indices = np.sort(
                common_indices[np.argsort(-counts[common_indices], kind="stable")[:_MOST]]
            )
        often = counts[common_indices]
        left_out = 1.0 - float(often.sum()) / runs
        unseen = min(1.0, left_out + once)
        levels, places = np.unique(often, return_inverse=True)
        weights = np.bincount(places, weights=often) / max(1, int(often.sum()))
        middles = np.cumsum(weights) - weights / 2
        ranks = unseen + (1.0 - unseen) * middles[places] if len(levels) else np.empty(0)
        return cls(names[common_indices], ranks, unseen / 2, runs)

    def seen(self, observations: Observations) -> Floats:
        """The share of each observation's runs whose variant was seen before."""
        places = np.searchsorted(self.variants, observations.variants)
        return _means(self._is_known(observations.variants, places).astype(float), observations)

    def common(self, observations: Observations) -> Floats:
        """How common the variants of each observation's runs are, on average."""
        places = np.searchsorted(self.variants, observations.variants)
        is_known = self._is_known(observations.variants, places)
        ranks = np.full(len(is_known), self.unseen)
        ranks[is_known] = self.ranks[places[is_known]]
        return _means(np.clip(ranks, 0.0, 1.0), observations)

    def values(self, observations: Observations, *, is_new: bool) -> Floats:
        """The values of ``new_variants`` or of ``variant_shift``."""
        return self.seen(observations) if is_new else self.common(observations)

    def _is_known(self, variants: Ints, places: Ints) -> Any:
        inside = places < len(self.variants)
        is_known = np.zeros(len(variants), bool)
        is_known[inside] = self.variants[places[inside]] == variants[inside]
        return is_known

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "variants": self.variants.tolist(),
            "ranks": self.ranks.tolist(),
            "unseen": self.unseen,
            "runs": self.runs,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> KnownVariants:
        """The variants that `to_dict` described."""
        variants = np.array(values["variants"], np.int64)
        return cls(variants, np.array(values["ranks"]), values["unseen"], values["runs"])


def held_out(baseline: Observations, *, is_new: bool) -> Floats:
    """The values of a baseline's observations, as if each part came after the others.

    Args:
        baseline: The observations of the baseline.
        is_new: Whether the measure is ``new_variants``; else it is ``variant_shift``.
    """
    names, codes = np.unique(baseline.variants, return_inverse=True)
    counts = np.bincount(codes, minlength=len(names))
    bounds = np.linspace(0, len(baseline), min(_PARTS, len(baseline)) + 1).astype(int)
    ends = np.concatenate([[0], np.cumsum(baseline.sizes)])[bounds]
    values = []
    for part in range(len(bounds) - 1):
        own = np.bincount(codes[ends[part] : ends[part + 1]], minlength=len(names))
        other_variants = KnownVariants._of_counts(names, counts - own)
        later = baseline.between(int(bounds[part]), int(bounds[part + 1]))
        values.append(other_variants.values(later, is_new=is_new))
    return np.concatenate(values) if values else np.empty(0)


def _means(values: Floats, observations: Observations) -> Floats:
    """The mean of the runs' values for each observation."""
    sizes = np.maximum(observations.sizes, 1)
    owner = np.repeat(np.arange(len(observations)), observations.sizes)
    means: Floats = np.bincount(owner, weights=values, minlength=len(observations)) / sizes
    return np.clip(means, 0.0, 1.0)


Side = Literal["worse", "better", "silent"]

_MORE_IS_BETTER = frozenset({"pass_rate", "score"})
_SHARES = frozenset(
    {
        *("pass_rate", "score", "error_rate", "not_evaluated_rate"),
        *(name for name, column in MEASURES.items() if column.is_share),
        *CHECK_MEASURES,
    }
)
VARIANT_MEASURES = frozenset({"new_variants", "variant_shift"})
"""The measures that compare the variants of runs with the variants of the baseline."""

_QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class Scale:
    """How the raw values of a measure are compared.

    Attributes:
        measure: The measure.
        side: The change that alerts.
        limit: Values up to it are 1, or from it on if `is_least`; None for shares and variants.
        is_least: Whether values must be at least the limit.
        known: The variants of the baseline, for measures of variants.
        most: For thresholds of unbounded values: raw values from 0 to this are spread over [0, 1],
            and higher values count as this value.
    """

    measure: str
    side: Side
    limit: float | None = None
    is_least: bool = False
    known: KnownVariants | None = None
    most: float | None = None

    def values(self, observations: Observations) -> Floats:
        """The values that a detector compares."""
        raw = observations.values
        if self.known is not None:
            scaled = self.known.values(observations, is_new=self._is_new)
            return scaled if self.side == "worse" else 1.0 - scaled
        if self.limit is not None:
            return (raw >= self.limit if self.is_least else raw <= self.limit).astype(np.float64)
        scaled = np.clip(raw / (self.most or 1.0), 0.0, 1.0)
        return scaled if self.is_good_high else 1.0 - scaled

    def baseline_values(self, baseline: Observations) -> Floats:
        """The values of the observations that the scale was fitted to, out of sample."""
        if self.known is None:
            return self.values(baseline)
        scaled = held_out(baseline, is_new=self._is_new)
        return scaled if self.side == "worse" else 1.0 - scaled

    @property
    def _is_new(self) -> bool:
        return self.measure == "new_variants"

    @property
    def is_fixed(self) -> bool:
        """Whether it depends on the measure only, and not on the baseline."""
        return self.limit is None and self.known is None

    @property
    def is_good_high(self) -> bool:
        """Whether low raw values alert."""
        return (self.measure in _MORE_IS_BETTER) == (self.side == "worse")

    def shown(self, value: float | None) -> float | None:
        """A value in the terms of `figure`."""
        if value is None:
            return None
        if self.known is not None:
            if self._is_new:
                return 1.0 - value if self.side == "worse" else value
            return value if self.side == "worse" else 1.0 - value
        if self.limit is not None:
            return 1.0 - value
        return (self.most or 1.0) * (value if self.is_good_high else 1.0 - value)

    @property
    def figure(self) -> str:
        """The name of the figure that `shown` returns."""
        if self.measure == "new_variants":
            return "share of runs with a new tool sequence"
        if self.measure == "variant_shift":
            return "commonness of tool sequences (about 0.5 in the baseline)"
        if self.limit is not None:
            relation = "below" if self.is_least else "above"
            return f"share of conversations with {self.measure} {relation} {self.limit:.4g}"
        if self.measure in CHECK_MEASURES:
            return CHECK_MEASURES[self.measure].figure
        return self.measure.replace("_", " ")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "measure": self.measure,
            "side": self.side,
            "limit": self.limit,
            "is_least": self.is_least,
            "known": self.known.to_dict() if self.known else None,
            "most": self.most,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Scale:
        """The scale that `to_dict` described."""
        stored = values["known"]
        known_variants = KnownVariants.from_dict(stored) if stored else None
        return cls(**{**values, "known": known_variants})


def threshold_scale(
    measure: str, side: Side, *, below: float | None, above: float | None
) -> tuple[Scale, float]:
    """The scale for a threshold, and the limit below which its values alert.

    Args:
        measure: The measure.
        side: The change that alerts.
        below: The limit in the measure's unit; None if `above` is set.
        above: The limit in the measure's unit.
    """
    limit = below if below is not None else above
    assert limit is not None
    is_share = measure in _SHARES and (measure not in _MORE_IS_BETTER or limit <= 1.0)
    most = None if is_share else max(2.0 * limit, 1e-9)
    scale = Scale(measure, side, most=most)
    share = limit / (most or 1.0)
    return scale, share if scale.is_good_high else 1.0 - share


def fit(measure: str, side: Side, baseline: Observations) -> Scale:
    """The scale of a measure for the observations of a baseline.

    Args:
        measure: The measure.
        side: The change that alerts.
        baseline: At least one observation, except for shares.
    """
    if measure in VARIANT_MEASURES:
        return Scale(measure, side, known=KnownVariants.of(baseline.variants))
    raw = baseline.values
    is_share = not len(raw) or (raw.min() >= 0.0 and raw.max() <= 1.0)
    if measure in _SHARES and (is_share or measure not in _MORE_IS_BETTER):
        return Scale(measure, side)
    is_least = (measure in _MORE_IS_BETTER) == (side == "worse")
    quantile = 1.0 - _QUANTILE if is_least else _QUANTILE
    method: Any = "lower" if is_least else "higher"
    return Scale(measure, side, float(np.quantile(raw, quantile, method=method)), is_least)
