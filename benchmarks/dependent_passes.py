"""Synthetic passes and failures that depend on their neighbours, for tests and benchmarks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["pass_fail"]


def pass_fail(
    means: npt.NDArray[np.float64], dependence: float, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return passes (1) and failures (0) with some means.

    With the probability ``dependence``, an observation keeps the value of the observation before;
    otherwise it is drawn anew.
    """
    count = len(means)
    is_repeated = rng.random(count) < dependence
    is_repeated[:1] = False
    drawn: npt.NDArray[np.float64] = (rng.random(count) < means).astype(np.float64)
    sources = np.maximum.accumulate(np.where(is_repeated, 0, np.arange(count)))
    return drawn[sources]
