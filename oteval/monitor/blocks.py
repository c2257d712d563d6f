"""The length of blocks: how many consecutive observations a detector takes the mean of.

The guarantee of the e-detector needs values whose mean, given the past, is at least the floor. The
means of blocks nearly have it when blocks are longer than the autocorrelation time; longer blocks
find a drop later. So a block is

- one observation, if the baseline has 60 failures or more and shows no dependence;
- at least 3, if it has fewer failures, because dependence would be missed too often;
- 10, if it has fewer than 8 failures, which show nothing (a drop is easy to see there);
- about two autocorrelation times, if it shows dependence.

Then the baseline is resampled in stretches longer than its dependence, and bets on block means
(`bets.py`) run over the result. If more runs raise an alarm than a budget allows, blocks become
longer by half, until the runs are within the budget.

Source: moving blocks bootstrap, Künsch 1989, "The jackknife and the bootstrap for general
stationary observations".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .bets import bet_sizes, highest_wealth
from .detector import Floats

__all__ = ["ABOVE_BUDGET", "alarm_share", "choose_block", "resampled"]

ABOVE_BUDGET = "false alarms are above the budget even so"
"""In the reason for a length of blocks that is not long enough."""

_TIMES = 2.0
"""The length of blocks in autocorrelation times."""

_FEW, _MANY = 8.0, 60.0
"""The failures that show nothing about dependence, and the failures that suffice to exclude it."""

_CAUTIOUS, _CAREFUL = 10, 3
_LONGEST = 512

_RUNS = 50
_LENGTH = 1000
_LEVEL = 5000
"""The check: of 50 runs of 1,000 observations with an alarm level of 5,000, a fifth may alarm."""

_ALLOWED = _LENGTH / _LEVEL + 2 * math.sqrt(_LENGTH / _LEVEL * (1 - _LENGTH / _LEVEL) / _RUNS)


def choose_block(values: Floats, *, time: float, floor: float) -> tuple[int, str]:
    """The length of blocks for observations like these, and the reason.

    Args:
        values: The observations of a baseline.
        time: Their autocorrelation time.
        floor: The floor that a detector will defend.
    """
    size, reason = _first_choice(values, time)
    longest = min(_LONGEST, max(1, len(values) // 20))
    chosen = size
    while (share := alarm_share(values, size=chosen, time=time, floor=floor)) > _ALLOWED:
        if chosen >= longest:
            return chosen, f"{reason}; {ABOVE_BUDGET} ({share:.0%})"
        chosen = min(longest, max(chosen + 1, chosen * 3 // 2))
    if chosen > size:
        reason = f"{reason}; raised from {size} because the resampled baseline raised alarms"
    return chosen, reason


def alarm_share(values: Floats, *, size: int, time: float, floor: float) -> float:
    """The share of runs over the resampled baseline that raise a false alarm.

    Args:
        values: The observations of a baseline.
        size: The length of blocks.
        time: The autocorrelation time of the observations.
        floor: The floor that the bets defend.
    """
    if not len(values):
        return 0.0
    rng = np.random.default_rng(len(values))
    stretch = max(20, math.ceil(5 * time))
    blocks = max(1, _LENGTH // size)
    drawn = resampled(values, stretch=stretch, size=_RUNS * blocks * size, rng=rng)
    # This takes a third of the time of `mean` if blocks are short.
    means = (drawn.reshape(-1, size) @ np.full(size, 1 / size)).reshape(_RUNS, blocks).T
    sizes = bet_sizes(floor, reach=max(0.0, float(values.max()) - 1.0))
    highest = highest_wealth(floor - means, sizes, allowance=size / _LEVEL)
    return float(np.mean(highest >= 1.0))


def resampled(values: Floats, *, stretch: int, size: int, rng: np.random.Generator) -> Floats:
    """A sequence of the given size, joined from random stretches of the values."""
    stretch = min(stretch, len(values))
    count = -(-size // stretch)
    starts = rng.integers(0, len(values) - stretch + 1, count)
    drawn: Floats = sliding_window_view(values, stretch)[starts].ravel()[:size]
    return drawn


def _first_choice(values: Floats, time: float) -> tuple[int, str]:
    mean = float(values.mean())
    failures = len(values) * min(mean, 1 - mean)
    dependent = math.ceil(_TIMES * time) if time >= 1.1 else 1
    if failures < _FEW and dependent < _CAUTIOUS:
        return _CAUTIOUS, f"{failures:.0f} failures are too few to see dependence"
    if failures < _MANY and dependent < _CAREFUL:
        return _CAREFUL, f"{failures:.0f} failures are too few to exclude dependence"
    if dependent > 1:
        return min(dependent, _LONGEST), f"two autocorrelation times of {time:.1f} observations"
    return 1, "neighbours do not depend on each other"
