"""Histograms and quantiles of many numbers, and numbers as short texts."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..text import clean, clock, duration
from .model import Histogram

__all__ = [
    "SortedNumbers",
    "extend_numbers",
    "histogram",
    "plain",
    "seconds_text",
    "short",
    "time_labels",
]

_BINS = 12
# Writes a value with a number of figures, three unless given.
Form = Callable[..., str]


def extend_numbers(numbers: array[float], values: pa.DoubleArray) -> None:
    """Append the values of a column that are not NULL."""
    numbers_known = values.drop_null()
    if len(numbers_known):
        start = 8 * numbers_known.offset
        numbers.frombytes(
            memoryview(numbers_known.buffers()[1])[start : start + 8 * len(numbers_known)]
        )


class SortedNumbers(Sequence[float]):
    """Numbers in order, in 8 bytes each.

    Args:
        values: The numbers.
    """

    def __init__(self, values: array[float]) -> None:
        found = pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)])
        self._values = found.take(pc.array_sort_indices(found))

    @classmethod
    def merged(cls, parts: Iterable[SortedNumbers]) -> SortedNumbers:
        """All numbers of some sequences."""
        merged = array("d")
        for part in parts:
            extend_numbers(merged, part._values)
        return cls(merged)

    def __len__(self) -> int:
        """How many numbers there are."""
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        """A number by its index."""
        return self._values[at].as_py()

    def below(self, value: float) -> int:
        """How many numbers are less than a value."""
        return bisect_left(self, value)

    def quantile(self, share: float) -> float:
        """The number that a share of the numbers does not exceed."""
        value: float = self[min(len(self) - 1, math.ceil(share * len(self)) - 1)]
        return value

    @property
    def median(self) -> float:
        """The median; for an even number of values, the mean of the two in the middle."""
        middle = len(self) // 2
        low = middle if len(self) % 2 else middle - 1
        value: float = (self[low] + self[middle]) / 2
        return value


def plain(value: float, digits: int = 3) -> str:
    """A number as text."""
    return f"{value:.{digits}g}"


def short(value: float, digits: int = 3) -> str:
    """A number in short form: ``12.3k``, ``4.56M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.{digits}g}{unit}"
    return f"{value:.{digits}g}"


def seconds_text(value: float, digits: int = 3) -> str:
    """A number of seconds as text."""
    return duration(round(value * 1e9), digits)


def time_labels(times: Sequence[float]) -> tuple[str, ...]:
    """Return times in the shortest form that keeps them distinct.

    Times of one day leave out the date; times less than a second apart have milliseconds.
    """
    texts = [f"{clock(int(time))}.{int(time) // 1_000_000 % 1000:03d}" for time in times]
    first = 5 if len({text[:10] for text in texts}) > 1 else 11
    for last in (10, 16, 19, 23):
        labels = tuple(text[first:last] for text in texts)
        if len(set(labels)) == len(labels):
            break
    return labels


def histogram(
    title: str,
    by_group: Mapping[str, SortedNumbers],
    form: Form,
    *,
    is_logarithmic: bool = False,
) -> Histogram:
    """A histogram with bins of equal width, or of equal ratio.

    Args:
        title: A name for the values.
        by_group: The values by group.
        form: Formats an edge with a number of digits.
        is_logarithmic: Whether bins grow geometrically if the values span more than a factor of 10.
    """
    values = SortedNumbers.merged(by_group.values())
    low, high = values[0], values[-1]
    growing = is_logarithmic and low > 0 and high / low > 10
    if low == high:
        edges = [low, low]
    elif growing:
        edges = [low * (high / low) ** (at / _BINS) for at in range(_BINS + 1)]
    else:
        edges = [low + (high - low) * at / _BINS for at in range(_BINS + 1)]
    series = []
    for group, members in by_group.items():
        below = [0, *map(members.below, edges[1:-1]), len(members)]
        series.append((clean(group), tuple(b - a for a, b in pairwise(below))))
    labels = tuple(f"{a} – {b}" for a, b in pairwise(_edge_labels(edges, form)))
    note = f"median {form(values.quantile(0.5))}, 95% below {form(values.quantile(0.95))}"
    return Histogram(title, labels, tuple(series), note)


def _edge_labels(edges: Sequence[float], form: Form) -> list[str]:
    """Return edges with enough digits to keep them distinct."""
    labels: list[str] = []
    for digits in range(3, 18):
        labels = [form(edge, digits) for edge in edges]
        if len(set(labels)) == len(set(edges)):
            break
    return labels
