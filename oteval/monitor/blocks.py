"""The length of blocks: how many consecutive observations a detector takes the mean of.

The guarantee of the e-detector needs independent values. The means of blocks that are longer than
the autocorrelation time nearly are; longer blocks find a drop later. So blocks have the length 1
where no dependence is seen, and else a length of about two autocorrelation times.

A baseline with too few failures cannot show dependence. It gets blocks of 10, which cost little
there, because a baseline without failures makes every drop easy to see.
"""

from __future__ import annotations

import math

import numpy as np

from .detector import Floats

__all__ = ["choose_block"]

_TIMES = 2.0
"""Blocks in autocorrelation times."""

_FEW = 8.0
"""Failures, or their equivalent, below which a baseline says nothing of dependence."""

_CAUTIOUS = 10


def choose_block(values: Floats, *, time: float) -> tuple[int, str]:
    """Return the length of blocks for observations like these, and the reason.

    Args:
        values: The observations of a baseline.
        time: Their autocorrelation time.
    """
    variation = float(np.sum(np.abs(values - values.mean()))) / 2
    if variation < _FEW:
        return _CAUTIOUS, f"too few failures to see dependence, so blocks of {_CAUTIOUS}"
    if time < 1.1:
        return 1, "no dependence between neighbours"
    size = max(2, math.ceil(_TIMES * time))
    return size, f"two autocorrelation times of {time:.1f} observations"
