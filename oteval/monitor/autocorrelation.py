"""The integrated autocorrelation time of observations, and their effective number.

``n`` observations with the autocorrelation time ``t`` estimate a mean as well as ``n / t``
independent ones. For a pass/fail chain that keeps its last value with probability r, t is
(1 + r) / (1 - r).

The estimate sums autocorrelations from lag 1 up to the first pair of lags that is within the noise:
only the dependence between neighbours counts, not a slow variation from hour to hour, which blocks
of any reasonable length would not remove.

Source: the initial positive sequence of Geyer 1992, "Practical Markov chain Monte Carlo"; noise
limit: Bartlett 1946.
"""

from __future__ import annotations

import numpy as np

from .detector import Floats

__all__ = ["autocorrelation_time", "autocorrelations"]

_NOISE = 2.0
"""Standard errors above which an autocorrelation counts as real."""


def autocorrelations(values: Floats) -> Floats:
    """Return the autocorrelations of the lags 0, 1, 2, ...; zeros where all values are equal."""
    count = len(values)
    centred = values - values.mean() if count else values
    size = 1 << (2 * max(count, 1) - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    products = np.fft.irfft(spectrum * np.conj(spectrum), size)[:count]
    if not count or products[0] <= 1e-12 * count:
        return np.zeros(count)
    return np.asarray(products / products[0], np.float64)


def autocorrelation_time(values: Floats) -> float:
    """Return the autocorrelation time, at least 1; 1 where all values are equal."""
    found = autocorrelations(values)
    pairs = found[1 : 1 + (len(found) - 1) // 2 * 2].reshape(-1, 2).sum(axis=1)
    noise = _NOISE * np.sqrt(2.0 / max(len(values), 1))
    below = np.flatnonzero(pairs <= noise)
    real = pairs[: below[0]] if below.size else pairs
    return float(max(1.0, 1.0 + 2.0 * real.sum()))
