"""Agreement of two raters: the confusion matrix, Cohen's kappa and the base rates."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from .rates import Interval

__all__ = ["Confusion", "Kappa", "cohen_kappa", "confusion_matrix"]

_DRAWS = 2_000


@dataclass(frozen=True)
class Confusion:
    """The counts of each pair of labels by two raters.

    Attributes:
        labels: The labels that either rater gave, sorted.
        counts: A row for each label of the first rater, a column for each of the second.
    """

    labels: tuple[Any, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """The number of rated items."""
        return sum(map(sum, self.counts))

    @property
    def agreed(self) -> int:
        """The number of items on which the raters agree."""
        return sum(row[at] for at, row in enumerate(self.counts))

    def rate(self, label: Any, *, by: int) -> float:
        """The share of a label among a rater's labels: the base rate.

        Args:
            label: The label.
            by: 0 for the first rater, 1 for the second.
        """
        at = self.labels.index(label)
        count = sum(self.counts[at]) if by == 0 else sum(row[at] for row in self.counts)
        return count / self.total


def confusion_matrix(first: Sequence[Hashable], second: Sequence[Hashable]) -> Confusion:
    """The counts of each pair of labels by two raters.

    Args:
        first: The first rater's labels.
        second: The second's, in the same order.

    Raises:
        ValueError: They rated different numbers of things, or none.
    """
    if len(first) != len(second):
        raise ValueError(
            f"{len(first)} labels and {len(second)}: both raters must rate the same items"
        )
    if not first:
        raise ValueError("no items were rated")
    counts = Counter(zip(first, second, strict=True))
    labels = tuple(sorted({*first, *second}, key=lambda label: (str(type(label)), str(label))))
    return Confusion(labels, tuple(tuple(counts[a, b] for b in labels) for a in labels))


@dataclass(frozen=True)
class Kappa:
    """Cohen's kappa.

    Attributes:
        kappa: The agreement beyond chance, at most 1; 0 is chance.
        interval: Its interval.
        agreement: The share on which the raters agree.
        by_chance: The share on which raters of these base rates agree by chance.
        confusion: The counts of their labels.
    """

    kappa: float
    interval: Interval
    agreement: float
    by_chance: float
    confusion: Confusion

    def base_rates(self, label: Any) -> tuple[float, float]:
        """Return both raters' base rates of a label; kappa is low if they are near 0 or 1."""
        return self.confusion.rate(label, by=0), self.confusion.rate(label, by=1)


def cohen_kappa(
    first: Sequence[Hashable], second: Sequence[Hashable], confidence: float = 0.95
) -> Kappa:
    """Cohen's kappa of two raters with its interval.

    Source: J. Cohen, "A coefficient of agreement for nominal scales" (1960). If one rater gave only
    one label, kappa is 0 and the interval is the whole range.

    Args:
        first: The first rater's labels.
        second: The second's, in the same order.
        confidence: The interval's confidence.

    Raises:
        ValueError: They rated different numbers of things, or none.
    """
    confusion = confusion_matrix(first, second)
    total = confusion.total
    rows = [sum(row) / total for row in confusion.counts]
    columns = [sum(column) / total for column in zip(*confusion.counts, strict=True)]
    agreement = confusion.agreed / total
    by_chance = math.fsum(row * column for row, column in zip(rows, columns, strict=True))
    # If one rater used one label, agreement may be chance alone.
    if 1.0 in rows or 1.0 in columns:
        kappa, interval = 0.0, Interval(low=-1.0, high=1.0)
    else:
        kappa = (agreement - by_chance) / (1 - by_chance)
        low, high = _interval(confusion, confidence)
        interval = Interval(min(low, kappa), max(high, kappa))
    return Kappa(kappa, interval, agreement, by_chance, confusion)


def _interval(confusion: Confusion, confidence: float) -> Interval:
    """The interval of kappa under random weights of the items and of one more.

    It uses the idea of `differences`: the weights of the items are from a Dirichlet distribution.
    One item that was not rated is placed where it changes kappa most, at either end. The normal
    interval (Fleiss, Cohen and Everitt 1969) rests on the few items of a rare label, and is too
    narrow.
    """
    draw = random.Random(0)  # noqa: S311
    size = len(confusion.labels)
    cells = [(row, column) for row in range(size) for column in range(size)]
    kappas: dict[tuple[int, int], list[float]] = {cell: [] for cell in cells}
    for _ in range(_DRAWS):
        weights = [
            [draw.gammavariate(count, 1) if count else 0.0 for count in row]
            for row in confusion.counts
        ]
        rows, columns = [*map(sum, weights)], [*map(sum, zip(*weights, strict=True))]
        total, agreed = sum(rows), sum(weights[at][at] for at in range(size))
        chance = sum(row * column for row, column in zip(rows, columns, strict=True))
        unseen = draw.expovariate(1)
        grand_total = total + unseen
        for row, column in cells:
            together = chance + unseen * (columns[row] + rows[column])
            agreement = agreed
            if row == column:
                together += unseen * unseen
                agreement += unseen
            kappas[row, column].append(
                (agreement * grand_total - together) / (grand_total * grand_total - together)
            )
    tail = int((1 - confidence) / 2 * _DRAWS)
    ordered = [sorted(values) for values in kappas.values()]
    low, high = (
        min(values[tail] for values in ordered),
        max(values[-1 - tail] for values in ordered),
    )
    return Interval(max(-1.0, low), min(1.0, high))
