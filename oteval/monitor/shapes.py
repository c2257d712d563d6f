"""Measures of the shape of runs, which need no reference: the tools that were called, in order.

A *variant* is the sequence of tool names of a run, by a hash. Two measures compare the variants of
new runs with those of the baseline:

- ``new_variants``: whether a variant was seen before. Variants that the baseline has only once
  count as unseen, so that the share of unseen variants in the baseline itself estimates that of
  later runs (Good 1953, "The population frequencies of species").
- ``variant_shift``: how common a variant is, as the share of baseline runs with rarer ones. Its
  mean is 1/2 while the distribution stays as it is. It falls when rare or unseen variants become
  common, and rises when common ones displace the others.

The other measures of shape (tool errors, loops, length) are numbers that the store computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .detector import Floats, Ints
from .observations import Observations

__all__ = ["KnownVariants"]

# Rarer variants beyond this number count as unseen.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class KnownVariants:
    """The variants of a baseline.

    Attributes:
        variants: Those that it has more than once, sorted.
        ranks: How common each is: the share of runs with rarer variants, plus half of the runs
            with equally common ones.
        unseen: The rank of all other variants.
        runs: The number of runs in the baseline.
    """

    variants: Ints
    ranks: Floats
    unseen: float
    runs: int

    @classmethod
    def of(cls, variants: Ints) -> KnownVariants:
        """Return the known variants of the runs of a baseline."""
        found, counts = np.unique(variants, return_counts=True)
        often = np.flatnonzero(counts > 1)
        if len(often) > _MOST:
            often = np.sort(often[np.argsort(-counts[often], kind="stable")[:_MOST]])
        runs = max(1, len(variants))
        shares = counts[often] / runs
        rest = max(0.0, 1.0 - float(shares.sum()))
        levels, places = np.unique(counts[often], return_inverse=True)
        weights = np.bincount(places, weights=shares, minlength=len(levels))
        below = rest + np.concatenate([[0.0], np.cumsum(weights)[:-1]]) if len(levels) else shares
        ranks = (below + weights / 2)[places] if len(levels) else shares
        return cls(found[often].astype(np.int64), ranks, rest / 2, runs)

    def seen(self, observations: Observations) -> Floats:
        """Return the share of each observation's runs whose variant was seen before."""
        places = np.searchsorted(self.variants, observations.variants)
        return _means(self._is_known(observations.variants, places).astype(float), observations)

    def common(self, observations: Observations) -> Floats:
        """Return how common the variants of each observation's runs are, on average."""
        places = np.searchsorted(self.variants, observations.variants)
        known = self._is_known(observations.variants, places)
        ranks = np.full(len(known), self.unseen)
        ranks[known] = self.ranks[places[known]]
        return _means(np.clip(ranks, 0.0, 1.0), observations)

    def _is_known(self, variants: Ints, places: Ints) -> Any:
        inside = places < len(self.variants)
        known = np.zeros(len(variants), bool)
        known[inside] = self.variants[places[inside]] == variants[inside]
        return known

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
        """Return the variants that `to_dict` described."""
        variants = np.array(values["variants"], np.int64)
        return cls(variants, np.array(values["ranks"]), values["unseen"], values["runs"])


def _means(values: Floats, observations: Observations) -> Floats:
    """Return the mean of the runs' values for each observation."""
    sizes = np.maximum(observations.sizes, 1)
    owner = np.repeat(np.arange(len(observations)), observations.sizes)
    means: Floats = np.bincount(owner, weights=values, minlength=len(observations)) / sizes
    return np.clip(means, 0.0, 1.0)
