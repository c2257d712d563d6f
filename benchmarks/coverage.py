"""How often the intervals of oteval's statistics hold the truth that they were made for.

Each row is the worst over the rates 0, .02, .5, .98 and 1 (and judges of several kinds), for 5 to
100 labels or examples: the share of simulated samples whose 95% interval holds the true value.
At least .93 is wanted, less two standard errors of the simulation. Beside it stands the method
that is not used there, and why: the normal interval of PPI++, Wilson's interval, the bootstrap.
No clock is involved, and no peer.

    python -m benchmarks.coverage
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from oteval.evaluators.stats import (
    ExampleVotes,
    Interval,
    bootstrap,
    clopper_pearson,
    difference_interval,
    mean_interval,
    minimal_detectable_difference,
    paired_permutation,
    ppi_mean,
    rank,
)
from oteval.evaluators.stats.ppi import normal_interval
from oteval.evaluators.stats.rates import mean
from oteval.monitor.baselines import lower_bound

from . import parts
from .checks import check
from .report import Row

WANTED = 0.93
RATES = (0.0, 0.02, 0.5, 0.98, 1.0)
# How often the judge agrees on passes, and on fails.
JUDGES = ((0.9, 0.8), (0.99, 0.99), (1.0, 1.0), (0.7, 0.95), (0.5, 0.5))

FULL = {"samples": 600, "sizes": [5, 10, 20, 40, 100]}
QUICK = {"samples": 100, "sizes": [5, 20, 40]}

_UNLABELLED = 1000
_EPSILON = 1e-9


def measure(*, samples: int, sizes: Sequence[int], seed: int = 1) -> dict[str, Any]:
    """Simulate samples and count how often their intervals hold the truth.

    Args:
        samples: How many for each size and rate.
        sizes: How many labels or examples a sample has.
        seed: Makes the simulation repeatable.

    Returns:
        ``rows``: for each figure and size the worst share, of the method used and of the one that
        is not; ``power``: how often a difference of the detectable size was found; the sizes.
    """
    chance = random.Random(seed)
    rows = []
    for name, other, worst, fewer in (
        ("pass rate: exact", "Wilson", _rates, 1),
        ("corrected pass rate", "normal (PPI++)", _corrected, 1),
        ("mean score", "bootstrap (BCa)", _scores, 2),
        ("difference of passes", "bootstrap (BCa)", _differences, 1),
        ("difference of scores", "bootstrap (BCa)", _score_differences, 2),
        ("strength of a system", "", _strengths, 3),
    ):
        for size in sizes:
            count = max(20, samples // fewer)
            ours, theirs = worst(size, count, chance)
            rows.append(
                {
                    "name": name,
                    "size": size,
                    "ours": ours,
                    "other": other,
                    "their": theirs,
                    "samples": count,
                }
            )
    power = [[size, _power(size, samples, chance)] for size in (6, 8, 10, 20, 39)]
    return {"rows": rows, "power": power, "samples": samples, "sizes": list(sizes)}


def _worst(
    cases: Iterator[tuple[float, Callable[[], Sequence[Any]]]],
    methods: Sequence[Callable[[Sequence[Any]], Interval | None]],
    samples: int,
) -> tuple[float, float]:
    """Return the least share of samples whose interval holds the truth, by method.

    A missing interval claims nothing and does not count.
    """
    worst, counts, widest = [1.0, 1.0], [0], 0.0
    for truth, draw in cases:
        hits, intervals = [0, 0], [0, 0]
        for number in range(samples):
            drawn = draw()
            # The other strategies only need to be distinguished, which takes fewer samples.
            for at, method in enumerate(methods[: 1 + (number % 10 == 0)]):
                interval = method(drawn)
                if interval is not None:
                    intervals[at] += 1
                    hits[at] += interval[0] - _EPSILON <= truth <= interval[1] + _EPSILON
                    widest = max(widest, interval[1] - interval[0] if at == 0 else 0.0)
        for at in range(len(methods)):
            if intervals[at]:
                worst[at] = min(worst[at], hits[at] / intervals[at])
        counts[0] += intervals[0]
    check(counts[0], "some samples have an interval")
    check(math.isfinite(widest), "the intervals are finite", widest)
    return worst[0], worst[1]


def _rates(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    def cases() -> Iterator[tuple[float, Callable[[], Sequence[Any]]]]:
        for rate in (*RATES, 0.1, 0.9):
            yield rate, lambda rate=rate: [chance.random() < rate for _ in range(size)]

    return _worst(
        cases(),
        [lambda passes: clopper_pearson(sum(passes), size), _wilson],
        samples,
    )


def _wilson(passes: Sequence[Any]) -> Interval:
    share = sum(passes) / len(passes)
    return Interval(lower_bound(share, len(passes)), 1 - lower_bound(1 - share, len(passes)))


def _corrected(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    def draw(rate: float, judge: tuple[float, float]) -> Sequence[Any]:
        labels = [float(chance.random() < rate) for _ in range(size)]
        verdicts = [float(chance.random() < (judge[0] if y else 1 - judge[1])) for y in labels]
        passing = rate * judge[0] + (1 - rate) * (1 - judge[1])
        passed = sum(chance.random() < passing for _ in range(_UNLABELLED))
        return labels, verdicts, _verdicts(passed)

    def cases() -> Iterator[tuple[float, Callable[[], Sequence[Any]]]]:
        for rate in RATES:
            for judge in JUDGES:
                yield rate, lambda rate=rate, judge=judge: draw(rate, judge)

    return _worst(
        cases(),
        [lambda sample: ppi_mean(*sample).interval, lambda s: normal_interval(*s)],
        samples,
    )


@cache
def _verdicts(passed: int) -> tuple[float, ...]:
    return (1.0,) * passed + (0.0,) * (_UNLABELLED - passed)


def _score_cases(
    size: int, chance: random.Random
) -> Iterator[tuple[float, Callable[[], list[float]]]]:
    for rate in RATES:  # the mean of three repetitions
        yield rate, lambda rate=rate: [_passes(chance, rate, 3) / 3 for _ in range(size)]
    yield 0.8, lambda: [chance.betavariate(8, 2) for _ in range(size)]
    yield 5 / 5.3, lambda: [chance.betavariate(5, 0.3) for _ in range(size)]
    yield (
        0.72,
        lambda: [0.0 if chance.random() < 0.1 else chance.betavariate(40, 10) for _ in range(size)],
    )


def _passes(chance: random.Random, rate: float, of: int) -> int:
    return sum(chance.random() < rate for _ in range(of))


def _bootstrap(values: Sequence[float]) -> Interval:
    return bootstrap(values, lambda drawn: sum(drawn) / len(drawn), resamples=200)


def _scores(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    return _worst(
        _score_cases(size, chance),
        [lambda scores: mean_interval(scores, resamples=400), _bootstrap],
        samples,
    )


def _differences(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    def cases() -> Iterator[tuple[float, Callable[[], list[float]]]]:
        for before in RATES:
            for after in RATES:
                yield (
                    after - before,
                    lambda before=before, after=after: [
                        float((chance.random() < after) - (chance.random() < before))
                        for _ in range(size)
                    ],
                )

    return _worst(cases(), [lambda d: difference_interval(d, bounded=True), _bootstrap], samples)


def _score_differences(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    def cases() -> Iterator[tuple[float, Callable[[], list[float]]]]:
        firsts = list(_score_cases(size, chance))
        for (before, first), (after, second) in zip(firsts, [*firsts[1:], firsts[0]], strict=True):
            yield (
                after - before,
                lambda first=first, second=second: [
                    b - a for a, b in zip(first(), second(), strict=True)
                ],
            )

    return _worst(
        cases(),
        [lambda d: difference_interval(d, bounded=True, resamples=400), _bootstrap],
        samples,
    )


def _strengths(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    """Two systems: the first wins with a rate of .5 to .98, mostly always in a small sample."""
    none = [[0.0, 0.0], [0.0, 0.0]]
    won, lost = (
        ExampleVotes([[0.0, 1.0], [0.0, 0.0]], none),
        ExampleVotes([[0.0, 0.0], [1.0, 0.0]], none),
    )

    def cases() -> Iterator[tuple[float, Callable[[], list[ExampleVotes]]]]:
        for rate in (0.5, 0.8, 0.95, 0.98):
            yield (
                math.log(rate / (1 - rate)) / 2,
                lambda rate=rate: [won if chance.random() < rate else lost for _ in range(size)],
            )

    ours = _worst(cases(), [lambda votes: rank(votes, resamples=200)[1][0]], samples)[0]
    return ours, math.nan


def _power(size: int, samples: int, chance: random.Random) -> float:
    """Return how often a sign-flip test finds a difference of the smallest detectable size."""
    least = minimal_detectable_difference(1.0, size)
    p_values = [
        paired_permutation([chance.gauss(least, 1) for _ in range(size)], resamples=500).p_value
        for _ in range(samples)
    ]
    return mean(float(p <= 0.05) for p in p_values)


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    table = []
    for row in figures["rows"]:
        has_other = row["other"] and not math.isnan(row["their"])
        table.append(
            Row(
                f"{row['name']}, n = {row['size']}",
                f"{row['ours']:.3f}",
                f"{row['their']:.3f} ({row['other']})" if has_other else "",
                target=f"at least {WANTED}",
                held=row["ours"] >= WANTED - 2 * math.sqrt(WANTED * (1 - WANTED) / row["samples"]),
            )
        )
    for size, power in figures["power"]:
        figure = f"detectable difference is found, n = {size}"
        table.append(Row(figure, f"{power:.3f}", target="at least 0.75", held=power >= 0.75))
    return table


if __name__ == "__main__":
    parts.main("coverage")
