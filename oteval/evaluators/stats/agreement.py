"""Agreement of two raters: the confusion matrix, Cohen's kappa and the base rates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from .rates import Interval, clopper_pearson, quantile_of_normal

__all__ = ["Confusion", "Kappa", "cohen_kappa", "confusion_matrix"]


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
        """Return the share of a label among a rater's labels: the base rate.

        Args:
            label: The label.
            by: 0 for the first rater, 1 for the second.
        """
        at = self.labels.index(label)
        count = sum(self.counts[at]) if by == 0 else sum(row[at] for row in self.counts)
        return count / self.total


def confusion_matrix(first: Sequence[Hashable], second: Sequence[Hashable]) -> Confusion:
    """Return the counts of each pair of labels by two raters.

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
    """Return Cohen's kappa of two raters with its interval.

    Source: J. Cohen, "A coefficient of agreement for nominal scales" (1960); the standard error
    is that of J. L. Fleiss, J. Cohen and B. S. Everitt, "Large sample standard errors of kappa
    and weighted kappa", Psychological Bulletin 72 (1969), equation 13. Where the raters agree on
    everything that error is 0, and the interval is that of the agreement, on kappa's scale.
    If one rater gave only one label, kappa is 0 and the interval is the whole range.

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
        return Kappa(
            kappa=0.0,
            interval=Interval(low=-1.0, high=1.0),
            agreement=agreement,
            by_chance=by_chance,
            confusion=confusion,
        )
    kappa = (agreement - by_chance) / (1 - by_chance)
    if agreement == 1:  # the standard error is 0, however few were rated
        low = clopper_pearson(total, total, confidence).low
        return Kappa(
            kappa=1.0,
            interval=Interval(low=(low - by_chance) / (1 - by_chance), high=1.0),
            agreement=1.0,
            by_chance=by_chance,
            confusion=confusion,
        )
    spread = _deviation(confusion, rows, columns, kappa, by_chance)
    z = quantile_of_normal(0.5 + confidence / 2)
    interval = Interval(max(-1.0, kappa - z * spread), min(1.0, kappa + z * spread))
    return Kappa(kappa, interval, agreement, by_chance, confusion)


def _deviation(
    confusion: Confusion,
    rows: Sequence[float],
    columns: Sequence[float],
    kappa: float,
    by_chance: float,
) -> float:
    """Return kappa's standard error."""
    total = confusion.total
    on = off = 0.0
    for i, counts in enumerate(confusion.counts):
        for j, count in enumerate(counts):
            share = count / total
            if i == j:
                on += share * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2
            else:
                off += share * (columns[i] + rows[j]) ** 2
    rest = (kappa - by_chance * (1 - kappa)) ** 2
    variance = on + (1 - kappa) ** 2 * off - rest
    return math.sqrt(max(0.0, variance) / total) / (1 - by_chance)
