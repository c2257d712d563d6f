"""Samples of paired differences with a known mean, for the benchmark of comparisons.

Neither the conditions nor the seeds are those that the rules were chosen with, except for the rare
losses that made comparisons wrong before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["BOUNDED_NULLS", "BOUNDED_SHIFTS", "UNBOUNDED_NULLS", "UNBOUNDED_SHIFTS", "Condition"]


class Condition(NamedTuple):
    """How differences are drawn.

    Attributes:
        name: What they are like.
        mean: Their true mean.
        draw: Draws one.
    """

    name: str
    mean: float
    draw: Callable[[random.Random], float]

    def sample(self, chance: random.Random, size: int) -> Sequence[float]:
        """Draw a sample."""
        return [self.draw(chance) for _ in range(size)]


def _either(share: float, first: float, second: float) -> Callable[[random.Random], float]:
    return lambda chance: first if chance.random() < share else second


def _passes(before: float, after: float) -> Callable[[random.Random], float]:
    return lambda chance: float((chance.random() < after) - (chance.random() < before))


def _repeated(before: float, after: float) -> Callable[[random.Random], float]:
    once = _passes(before, after)
    return lambda chance: sum(once(chance) for _ in range(3)) / 3


def _failing(chance: random.Random) -> float:
    return 0.0 if chance.random() < 0.08 else chance.betavariate(30, 6)


def _within(value: float) -> float:
    return max(-1.0, min(1.0, value))


BOUNDED_NULLS = (
    Condition("gains of .02 in 95%, losses of .38 in 5%", 0.0, _either(0.95, 0.02, -0.38)),
    Condition("losses of .02 in 95%, gains of .38 in 5%", 0.0, _either(0.95, -0.02, 0.38)),
    Condition("gains of .03 in 97%, losses of .97 in 3%", 0.0, _either(0.97, 0.03, -0.97)),
    Condition(
        "gains of about .1 in 90%, losses of .9 in 10%",
        0.0,
        lambda chance: chance.betavariate(2, 18) if chance.random() < 0.9 else -0.9,
    ),
    Condition(
        "losses of about .06 in 94%, gains of .94 in 6%",
        0.0,
        lambda chance: 0.94 if chance.random() < 0.06 else chance.uniform(-0.12, 0.0),
    ),
    Condition(
        "two judges of equal systems",
        0.0,
        lambda chance: chance.betavariate(5, 2) - chance.betavariate(5, 2),
    ),
    Condition("8% of each fail outright", 0.0, lambda chance: _failing(chance) - _failing(chance)),
    Condition("skewed", 0.0, lambda chance: 0.6 * (chance.random() ** 2 - 1 / 3)),
    Condition("three repetitions, .7", 0.0, _repeated(0.7, 0.7)),
    Condition("three repetitions, .97", 0.0, _repeated(0.97, 0.97)),
    Condition("passes, .1", 0.0, _passes(0.1, 0.1)),
    Condition("passes, .5", 0.0, _passes(0.5, 0.5)),
    Condition(
        "passes that rarely change",
        0.0,
        lambda chance: (chance.random() < 0.1) * chance.choice([-1.0, 1.0]),
    ),
)

BOUNDED_SHIFTS = (
    Condition("passes, .6 to .8", 0.2, _passes(0.6, 0.8)),
    Condition("three repetitions, .6 to .75", 0.15, _repeated(0.6, 0.75)),
    Condition("scores, .1 of a spread of .2", 0.1, lambda chance: _within(chance.gauss(0.1, 0.2))),
    Condition(
        "scores, .05 of a spread of .08", 0.05, lambda chance: _within(chance.gauss(0.05, 0.08))
    ),
)


def _seconds(chance: random.Random) -> float:
    return chance.lognormvariate(1.5, 0.6)


def _faster(chance: random.Random, factor: float) -> float:
    example = _seconds(chance)
    after, before = chance.lognormvariate(0, 0.35), chance.lognormvariate(0, 0.35)
    return example * (factor * after - before)


UNBOUNDED_NULLS = (
    Condition("seconds of equal systems", 0.0, lambda chance: _faster(chance, 1.0)),
    Condition("seconds, unpaired", 0.0, lambda chance: _seconds(chance) - _seconds(chance)),
    Condition("exponential", 0.0, lambda chance: chance.expovariate(0.5) - 2),
    Condition("heavy tails", 0.0, lambda chance: chance.gauss(0, 1) / chance.gammavariate(2, 0.5)),
    Condition(
        "stars, 1 to 5",
        0.0,
        lambda chance: float(chance.choice((1, 3, 4, 4, 5)) - chance.choice((1, 3, 4, 4, 5))),
    ),
    Condition(
        "1 s faster in 95%, 19 s slower in 5%",
        0.0,
        lambda chance: (19 if chance.random() < 0.05 else -1) + chance.uniform(-0.25, 0.25),
    ),
    Condition(
        "2 s slower in 92%, 23 s faster in 8%",
        0.0,
        lambda chance: (-23 if chance.random() < 0.08 else 2) + chance.gauss(0, 0.5),
    ),
)

UNBOUNDED_SHIFTS = (
    Condition(
        "seconds, a fifth faster",
        -0.2 * 2.718281828 ** (1.5 + 0.18 + 0.06125),
        lambda chance: _faster(chance, 0.8),
    ),
)
