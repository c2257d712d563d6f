"""Measures of the shape of runs, which need no reference: the tools that were called, in order.

A *variant* is the sequence of tool names of a run, by a hash. Two measures compare the variants of
new runs with the variants of the baseline:

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
from typing import Any

import numpy as np

from .detector import Floats, Ints
from .observations import Observations

__all__ = ["KnownVariants", "held_out"]

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
