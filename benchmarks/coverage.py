"""How often the intervals of oteval's statistics hold the truth that they were made for.

Each row is the worst over rates from 0 to 1 (and judges of several kinds), or over the conditions
of `difference_samples`, for 5 to 200 labels or examples: the share of simulated samples whose 95%
interval holds the true value. At least .93 is wanted, less two standard errors of the simulation.
Beside it stands a method that is not used there: the normal intervals of PPI++ and of kappa,
Wilson's interval, the bootstrap, Student's interval. A missing interval claims nothing.

Where two systems are equal, at most .06 of the comparisons may find a difference, plus two standard
errors; how often they find one that exists is listed beside the sign-flip test, which assumes
symmetry. No clock is involved, and no peer.

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
    Kappa,
    clopper_pearson,
    cohen_kappa,
    detectable_difference,
    difference_interval,
    difference_p_value,
    mean_interval,
    ppi_mean,
    rank,
)
from oteval.evaluators.stats.ppi import normal_interval
from oteval.evaluators.stats.rates import mean, t_quantile
from oteval.monitor.baselines import lower_bound

from . import parts
from .checks import check
from .difference_samples import (
    BOUNDED_NULLS,
    BOUNDED_SHIFTS,
    UNBOUNDED_NULLS,
    UNBOUNDED_SHIFTS,
    Condition,
)
from .report import Row
from .resampling import bootstrap, paired_permutation

WANTED, MOST_FALSE = 0.93, 0.06
RATES = (0.0, 0.02, 0.5, 0.98, 1.0)
# How often the judge agrees on passes, and on fails.
JUDGES = ((0.9, 0.8), (0.99, 0.99), (1.0, 1.0), (0.7, 0.95), (0.5, 0.5))

# The rates at which people pass runs, for kappa: some labels are rare.
BASE_RATES = (0.5, 0.9, 0.95, 0.97)

FULL = {"samples": 600, "sizes": [5, 10, 20, 40, 100], "larger": [60, 200]}
QUICK = {"samples": 60, "sizes": [5, 20, 40], "larger": []}

_UNLABELLED = 1000
_EPSILON = 1e-9


def measure(
    *, samples: int, sizes: Sequence[int], larger: Sequence[int] = (), seed: int = 1
) -> dict[str, Any]:
    """Simulate samples and count how often their intervals hold the truth.

    Args:
        samples: How many for each size and rate.
        sizes: How many labels or examples a sample has.
        larger: Further sizes, for kappa and for skewed or unbounded differences.
        seed: Makes the simulation repeatable.

    Returns:
        ``rows``: for each figure and size the worst share, of the method used and of the one that
        is not; ``found``: how often comparisons find a difference, likewise; ``power``: how often
        one of the detectable size is found; the sizes.
    """
    chance = random.Random(seed)
    rows = []
    for name, other, worst, fewer, has_larger in _FIGURES:
        for size in (*sizes, *(larger if has_larger else ())):
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
    differences = [
        row
        for size in sorted((*sizes, *larger))
        if size >= 10
        for row in _found_differences(size, samples // 2, chance)
    ]
    power = [[size, _power(size, samples // 3, chance)] for size in (10, 20, 40, 100)]
    return {
        "rows": rows,
        "found": differences,
        "power": power,
        "samples": samples,
        "sizes": list(sizes),
    }


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

    return _worst(cases(), [_passes_interval, _bootstrap], samples)


def _passes_interval(differences: Sequence[float]) -> Interval | None:
    counts = (differences.count(1.0), differences.count(-1.0), differences.count(0.0))
    return _counted_interval(*counts)


@cache
def _counted_interval(up: int, down: int, same: int) -> Interval | None:
    return difference_interval([1.0] * up + [-1.0] * down + [0.0] * same, bounded=True)


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
        [lambda d: difference_interval(d, bounded=True), _bootstrap],
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


def _skewed_differences(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    return _worst_condition((*BOUNDED_NULLS, *BOUNDED_SHIFTS), size, samples, chance, bounded=True)


def _unbounded_differences(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    conditions = (*UNBOUNDED_NULLS, *UNBOUNDED_SHIFTS)
    return _worst_condition(conditions, size, samples, chance, bounded=False)


def _worst_condition(
    conditions: Sequence[Condition],
    size: int,
    samples: int,
    chance: random.Random,
    *,
    bounded: bool,
) -> tuple[float, float]:
    """Return the least share of samples whose intervals hold the true mean of a condition.

    The interval holds what its p-value does not reject, which takes a tenth of the time.
    """
    ours = theirs = 1.0
    for condition in conditions:
        drawn = [condition.sample(chance, size) for _ in range(samples)]
        p_values = [difference_p_value(d, bounded=bounded, null=condition.mean) for d in drawn]
        ours = min(ours, mean(float(p is None or p > 0.05) for p in p_values))
        intervals = [_students(sample) for sample in drawn]
        theirs = min(
            theirs,
            mean(
                float(low - _EPSILON <= condition.mean <= high + _EPSILON)
                for low, high in intervals
            ),
        )
    return ours, theirs


def _students(values: Sequence[float]) -> Interval:
    centre = mean(values)
    square = math.fsum((value - centre) ** 2 for value in values)
    error = math.sqrt(square / (len(values) - 1) / len(values))
    reach = t_quantile(0.975, len(values) - 1) * error
    return Interval(centre - reach, centre + reach)


def _kappas(size: int, samples: int, chance: random.Random) -> tuple[float, float]:
    def draw(rate: float, judge: tuple[float, float]) -> Sequence[tuple[bool, bool]]:
        people = [chance.random() < rate for _ in range(size)]
        verdicts = [chance.random() < (judge[0] if y else 1 - judge[1]) for y in people]
        return tuple(sorted(zip(people, verdicts, strict=True)))

    def cases() -> Iterator[tuple[float, Callable[[], Sequence[Any]]]]:
        for rate in BASE_RATES:
            for judge in (*JUDGES[:2], *JUDGES[3:], (0.98, 0.2)):
                passing = rate * judge[0] + (1 - rate) * (1 - judge[1])
                agreement = rate * judge[0] + (1 - rate) * judge[1]
                by_chance = rate * passing + (1 - rate) * (1 - passing)
                truth = (agreement - by_chance) / (1 - by_chance)
                yield truth, lambda rate=rate, judge=judge: draw(rate, judge)

    # Few labels have few outcomes, whose intervals are remembered.
    samples *= 4 if size <= 20 else 1
    return _worst(cases(), [_kappa_interval, _normal_kappa_interval], samples)


@cache
def _kappa_interval(pairs: Sequence[tuple[bool, bool]]) -> Interval:
    return _kappa(pairs).interval


def _kappa(pairs: Sequence[tuple[bool, bool]]) -> Kappa:
    return cohen_kappa([people for people, _ in pairs], [judge for _, judge in pairs])


def _normal_kappa_interval(pairs: Sequence[tuple[bool, bool]]) -> Interval | None:
    """Return the interval of J. L. Fleiss, J. Cohen and B. S. Everitt (1969), equation 13."""
    estimate = _kappa(pairs)
    if estimate.agreement == 1 or estimate.by_chance == 1 or len(estimate.confusion.labels) < 2:
        return None
    both_pass, first, second, neither = (
        sum(pair == other for pair in pairs) / len(pairs)
        for other in ((True, True), (True, False), (False, True), (False, False))
    )
    row, column, rest = both_pass + first, both_pass + second, 1 - estimate.kappa
    on = (
        both_pass * (1 - (row + column) * rest) ** 2
        + neither * (1 - (2 - row - column) * rest) ** 2
    )
    off = rest**2 * (first * (column + 1 - row) ** 2 + second * (row + 1 - column) ** 2)
    variance = on + off - (estimate.kappa - estimate.by_chance * rest) ** 2
    error = math.sqrt(max(0.0, variance) / len(pairs)) / (1 - estimate.by_chance)
    return Interval(estimate.kappa - 1.96 * error, estimate.kappa + 1.96 * error)


def _found_differences(size: int, samples: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield how often a comparison finds a difference, and how often a sign-flip test does."""
    for title, conditions, bounded in (
        ("equal scores differ", BOUNDED_NULLS, True),
        ("equal values without bounds differ", UNBOUNDED_NULLS, False),
        *((condition.name, (condition,), True) for condition in BOUNDED_SHIFTS),
        *((condition.name, (condition,), False) for condition in UNBOUNDED_SHIFTS),
    ):
        ours = theirs = 0.0
        for condition in conditions:
            drawn = [condition.sample(chance, size) for _ in range(samples)]
            p_values = [difference_p_value(sample, bounded=bounded) for sample in drawn]
            ours = max(ours, mean(float(p is not None and p <= 0.05) for p in p_values))
            flipped = [paired_permutation(d, resamples=300).p_value for d in drawn[::5]]
            theirs = max(theirs, mean(float(p <= 0.05) for p in flipped))
        yield {
            "name": title,
            "size": size,
            "ours": ours,
            "their": theirs,
            "samples": samples,
            "is_null": all(condition.mean == 0 for condition in conditions),
        }


def _power(size: int, samples: int, chance: random.Random) -> float:
    """Return how often a difference is found that a sample of equal systems calls detectable."""
    detections = []
    for _ in range(samples):
        equal = [max(-1.0, min(1.0, chance.gauss(0, 0.3))) for _ in range(size)]
        least = detectable_difference(equal, bounded=True)
        if least < 1:
            sample = [max(-1.0, min(1.0, chance.gauss(least, 0.3))) for _ in range(size)]
            detections.append(float((difference_p_value(sample, bounded=True) or 0.0) <= 0.05))
    return mean(detections)


# The figures: the method that is not used, the measurement, by how much the samples are fewer, and
# whether larger sizes are measured as well.
_FIGURES: tuple[tuple[str, str, Callable[..., tuple[float, float]], int, bool], ...] = (
    ("pass rate: exact", "Wilson", _rates, 1, False),
    ("corrected pass rate", "normal (PPI++)", _corrected, 1, False),
    ("mean score", "bootstrap (BCa)", _scores, 2, False),
    ("difference of passes", "bootstrap (BCa)", _differences, 1, False),
    ("difference of scores", "bootstrap (BCa)", _score_differences, 4, False),
    ("difference of skewed scores", "Student's", _skewed_differences, 2, True),
    ("difference without bounds", "Student's", _unbounded_differences, 2, True),
    ("kappa", "normal", _kappas, 2, True),
    ("strength of a system", "", _strengths, 3, False),
)


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
    for row in figures["found"]:
        error = 2 * math.sqrt(MOST_FALSE * (1 - MOST_FALSE) / row["samples"])
        table.append(
            Row(
                f"{row['name']}, n = {row['size']}",
                f"{row['ours']:.3f}",
                f"{row['their']:.3f} (sign flips)",
                target=f"at most {MOST_FALSE}" if row["is_null"] else "",
                held=row["ours"] <= MOST_FALSE + error if row["is_null"] else None,
            )
        )
    for size, power in figures["power"]:
        figure = f"detectable difference is found, n = {size}"
        table.append(Row(figure, f"{power:.3f}", target="at least 0.7", held=power >= 0.7))
    return table


if __name__ == "__main__":
    parts.main("coverage")
