"""The e-detector, the default: bets against a floor, within a budget of false alarms.

In the state ok it bets that the mean of the observations, or of blocks of them, is below the floor
(`bets.py`), and alarms when the mean wealth reaches 1. The expected number of false alarms is at
most the budget while the mean of each observation (or block), given those before it, is at least
the floor. More traffic does not raise it, and no window has to be tuned. Observations that depend
on their neighbours break that condition, so the length of blocks is chosen from the baseline
(`choose_block`). A level that wanders by more than its margin breaks it as well, as do weekends
that were not seen yet; the baseline and its reviews name these doubts. A daily cycle of the
baseline is subtracted from all values, so that the floor follows the time of day.

In the state alert it bets that the mean is above the point halfway from the floor to the mean since
the change (one standard error above its estimate). Its allowance is one wrong recovery in 5,000
observations while the mean stays below that point. When the wealth reaches 1, the group has
recovered, and the detector starts over. It takes longer to find the end of a small
drop than its start.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from .baselines import Baseline, lower_bound
from .bets import DROPS, bet_sizes, wealth
from .change_point import ChangePoint, History, UsualMean, estimate
from .detector import Alarm, Floats, Ints, checked

__all__ = ["EDetector"]

_SEGMENT = 4096  # blocks: an alarm makes the rest of a segment be computed again
_RISES = (0.025, 0.05, 0.1, 0.2)
_RECOVERY = 5_000.0  # observations
_LARGEST_ALLOWANCE = 1e-4
"""At most one false alarm in 10,000 observations, even if the budget would allow more because
there are few: a smaller allowance costs little delay."""

_LONGEST_GAP = 10.0
"""A silence earns the allowance of at most this many usual intervals between observations, so that
the first failures after a quiet night are not enough for an alarm."""


class EDetector:
    """Alarms when observations are below a baseline's floor, within a budget of false alarms.

    Attributes:
        baseline: The learned behaviour, with the floor; may be replaced between updates by one
            with another length of blocks.
        spending: The budget of false alarms per nanosecond; may be changed between updates, as
            groups come and go.
    """

    def __init__(self, baseline: Baseline, *, spending: float) -> None:
        self.baseline = baseline
        self.spending = spending
        self._history = History()
        self._index = 0
        self._last_ns = baseline.end_ns
        self._partial: tuple[Floats, Ints, Floats] = _nothing()
        self._since: float | None = None  # the mean since the change, while alerting
        self._change: ChangePoint | None = None
        self._wealth: Floats = np.zeros(len(DROPS))

    @property
    def alerting(self) -> bool:
        """Whether the last alarm has not been followed by a recovery."""
        return self._since is not None

    @property
    def change(self) -> ChangePoint | None:
        """The change that raised the last alarm, while alerting."""
        return self._change

    @property
    def evidence(self) -> float:
        """The logarithm of the wealth, from 0 at one usual allowance to 1 at the alarm."""
        if self.alerting:
            return 1.0
        usual = self.spending * self.baseline.interval_ns * self.baseline.block
        usual = min(max(usual, 1e-12), 0.5)
        mean_wealth = float(np.mean(self._wealth))
        return 0.0 if mean_wealth <= usual else min(1.0, 1.0 - np.log(mean_wealth) / np.log(usual))

    def update(self, values: npt.ArrayLike, times_ns: npt.ArrayLike) -> list[Alarm]:
        """Add observations and bet on every block that they complete."""
        observations, times = checked(values, times_ns)
        new = self.baseline.cycle.removed(observations, times)
        earned = self._allowances(times)
        joined = (
            np.concatenate([self._partial[0], new]),
            np.concatenate([self._partial[1], times]),
            np.concatenate([self._partial[2], earned]),
        )
        size = self.baseline.block
        complete = len(joined[0]) // size * size
        first = self._index - len(self._partial[0])
        self._index += len(new)
        self._partial = (joined[0][complete:], joined[1][complete:], joined[2][complete:])
        blocks = _Blocks(
            sums=joined[0][:complete].reshape(-1, size).sum(axis=1),
            allowances=joined[2][:complete].reshape(-1, size).sum(axis=1),
            firsts=joined[1][:complete:size],
            lasts=joined[1][size - 1 : complete : size],
            size=size,
            start=first,
        )
        return self._consume(blocks)

    def state(self) -> dict[str, Any]:
        """The wealth, the open block and the history."""
        return {
            "index": self._index,
            "last_ns": self._last_ns,
            "partial": [part.tolist() for part in self._partial],
            "since": self._since,
            "change": asdict(self._change) if self._change else None,
            "wealth": self._wealth.tolist(),
            "history": self._history.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        self._index = state["index"]
        self._last_ns = state["last_ns"]
        values, times, earned = state["partial"]
        self._partial = (
            np.array(values, np.float64),
            np.array(times, np.int64),
            np.array(earned, np.float64),
        )
        self._since = state["since"]
        # Alerts that older releases raised have no estimate.
        self._change = ChangePoint(**change) if (change := state.get("change")) else None
        self._wealth = np.array(state["wealth"])
        self._history.restore(state["history"])

    def _start_over(self) -> None:
        self._since = self._change = None
        self._wealth = np.zeros(len(DROPS))
        self._history.clear()

    def _allowances(self, times: Ints) -> Floats:
        """The allowance of each observation, for the time since the observation before."""
        if not len(times):
            return np.empty(0)
        reached = np.maximum.accumulate(np.concatenate([[self._last_ns], times]))
        self._last_ns = int(reached[-1])
        longest = _LONGEST_GAP * self.baseline.interval_ns
        earned: Floats = np.minimum(np.diff(reached), longest) * self.spending
        return np.minimum(earned, _LARGEST_ALLOWANCE)

    def _consume(self, blocks: _Blocks) -> list[Alarm]:
        alarms = []
        position = 0
        while position < len(blocks.sums):
            part = slice(position, position + _SEGMENT)
            wealth_by_block = self._wealth_after(blocks, part)
            reached = np.flatnonzero(wealth_by_block.mean(axis=1) >= 1.0)
            count = int(reached[0]) + 1 if reached.size else len(wealth_by_block)
            self._wealth = wealth_by_block[count - 1]
            consumed = slice(position, position + count)
            self._history.add(
                np.full(count, blocks.size),
                blocks.sums[consumed],
                blocks.firsts[consumed],
                blocks.lasts[consumed],
            )
            position += count
            if reached.size:
                alarms.append(self._turn(blocks.start + position * blocks.size - 1))
        return alarms

    def _wealth_after(self, blocks: _Blocks, part: slice) -> Floats:
        means = blocks.sums[part] / blocks.size
        floor, since = self.baseline.floor, self._since
        reach = self.baseline.cycle.reach
        if since is None:
            sizes = bet_sizes(floor, reach=reach)
            factors = 1.0 + np.multiply.outer(floor - means, sizes)
            return wealth(self._wealth, factors, blocks.allowances[part])
        ceiling = _ceiling(floor, since)
        sizes = bet_sizes(1.0 - ceiling, _RISES, reach=reach)
        factors = 1.0 + np.multiply.outer(means - ceiling, sizes)
        return wealth(self._wealth, factors, np.full(len(means), blocks.size / _RECOVERY))

    def _turn(self, index: int) -> Alarm:
        """Change the state after the last block, and return the alarm or recovery."""
        worse = self._since is None
        usual = self._usual()
        change = estimate(self._history.cells(), usual, worse=worse)
        last_ns = int(self._history.cells().lasts[-1])
        # Runs that came late are out of order: their times may lie outside of the interval.
        times = (change.time_ns, change.from_ns, change.to_ns)
        if worse:
            self._history.clear()
            self._since, self._change = self._level_since(change), change
            self._wealth = np.zeros(len(_RISES))
        else:
            self._start_over()
        return Alarm(
            kind="alert" if worse else "recovered",
            index=index,
            time_ns=max(last_ns, change.time_ns),
            change_ns=change.time_ns,
            change_from_ns=min(times),
            change_to_ns=max(change.time_ns, change.to_ns),
            before=usual.value,
            after=change.mean,
            observations=change.observations,
        )

    def _usual(self) -> UsualMean:
        """The mean before the next change."""
        usual = self.baseline.usual
        if self._since is None:
            return usual
        observations = self._change.observations if self._change else self.baseline.size
        return UsualMean(self._since, float(observations), usual.dispersion_of)

    def _level_since(self, change: ChangePoint) -> float:
        """The mean since the change plus its standard error, at most the floor."""
        size = change.observations / max(1.0, self.baseline.dispersion)
        return min(1.0 - lower_bound(1.0 - change.mean, size, deviations=1.0), self.baseline.floor)


class _Blocks:
    """Whole blocks of observations."""

    def __init__(
        self, *, sums: Floats, allowances: Floats, firsts: Ints, lasts: Ints, size: int, start: int
    ) -> None:
        self.sums = sums
        self.allowances = allowances
        self.firsts = firsts
        self.lasts = lasts
        self.size = size
        self.start = start


def _nothing() -> tuple[Floats, Ints, Floats]:
    return np.empty(0), np.empty(0, np.int64), np.empty(0)


def _ceiling(floor: float, since: float) -> float:
    """The mean that a group must be above to have recovered."""
    return floor - (floor - since) / 2
