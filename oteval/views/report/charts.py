"""Bar charts as SVG.

This module computes where everything goes; the macro in ``templates/chart.svg.j2`` draws it.
Colours come from the page's own stylesheet, so that charts follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...base.text import counted
from .model import Bars, Histogram

__all__ = ["Bar", "BarChart", "axis_labels", "bar_chart"]

WIDTH, HEIGHT = 520, 250
_LEFT, _RIGHT, _TOP = 44, 8, 10
_BOTTOM, _BOTTOM_ROTATED = 26, 78
_PLOT_WIDTH = WIDTH - _LEFT - _RIGHT
# The share of a place's width on the x axis that its bars fill.
_FILL = 0.78
_LONGEST_LABEL = 18  # characters
_LONGEST_LABEL_ROW = 64  # characters: longer rows of labels are rotated
_COLOURS = 6


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, with the interval of its value if it has one.

    Attributes:
        x: Its left edge, in SVG units.
        y: Its upper edge.
        width: Its width.
        height: Its height.
        colour: The number of its colour in the stylesheet.
        note: The tooltip.
        interval: The y coordinates of the interval's ends, the upper end first.
    """

    x: float
    y: float
    width: float
    height: float
    colour: int
    note: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class BarChart:
    """Everything that the template draws.

    Attributes:
        title: The accessible name.
        bars: The bars of all series.
        x_ticks: The labels below the plot, each with its place; "" leaves the place without one.
        y_ticks: The labels to its left, each with its place.
        is_rotated: Whether the labels below are rotated because they are long.
        bottom: The y coordinate of the x axis.
    """

    title: str
    bars: tuple[Bar, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    is_rotated: bool
    bottom: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT


# The value, its interval if there is one, and the tooltip; None for a missing value.
_Value = tuple[float, tuple[float, float] | None, str] | None


def bar_chart(chart: Bars | Histogram) -> BarChart:
    """The geometry of a chart.

    Args:
        chart: Rates with intervals, or counts by range.
    """
    if isinstance(chart, Bars):
        # When there are many labels, only every other one fits.
        step = 2 if sum(map(len, chart.labels)) > 80 else 1
        labels = [text if at % step == 0 else "" for at, text in enumerate(chart.labels)]
        rates = [[_rate(name, value) for value in values] for name, values in chart.series]
        return _laid_out(chart.title, labels, rates, (0, 0.25, 0.5, 0.75, 1), "{:.0%}".format)
    # Only the beginning of every third bin fits.
    labels = ["" if at % 3 else text.partition(" – ")[0] for at, text in enumerate(chart.labels)]
    counts = [
        [_count(name, count, label) for count, label in zip(values, chart.labels, strict=True)]
        for name, values in chart.series
    ]
    most = max(count for _, values in chart.series for count in values)
    step = max(1, math.ceil(most / 5))
    return _laid_out(chart.title, labels, counts, range(0, most + step, step), "{:,.0f}".format)


def axis_labels(labels: Sequence[str]) -> list[str]:
    """Return labels short enough for an axis; different labels stay different.

    Long names such as versions often begin alike: then their ends are shown.
    """
    for shorten in (_beginning, _ending):
        texts = [shorten(label) for label in labels]
        if len(set(texts)) == len(set(labels)):
            return texts
    numbers = {label: f" {at}" for at, label in enumerate(dict.fromkeys(labels), start=1)}
    return [
        f"{label[: _LONGEST_LABEL - len(numbers[label]) - 1]}…{numbers[label]}" for label in labels
    ]


def _beginning(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def _ending(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"…{label[1 - _LONGEST_LABEL :]}"


def _rate(name: str, value: tuple[float, float, float, int] | None) -> _Value:
    if value is None:
        return None
    rate, low, high, count = value
    return rate, (low, high), f"{name}: {rate:.1%} of {count:,} ({low:.1%} to {high:.1%})"


def _count(name: str, count: int, label: str) -> _Value:
    prefix = f"{name}: " if name else ""
    return count, None, f"{prefix}{counted(count, 'run')}, {label}"


def _laid_out(
    title: str,
    labels: Sequence[str],
    series: Sequence[Sequence[_Value]],
    levels: Sequence[float],
    text_of: Callable[[float], str],
) -> BarChart:
    is_rotated = sum(map(len, labels)) >= _LONGEST_LABEL_ROW
    bottom = HEIGHT - (_BOTTOM_ROTATED if is_rotated else _BOTTOM)
    highest = levels[-1]

    def y(value: float) -> float:
        return round(bottom - (bottom - _TOP) * value / highest, 1)

    slot = _PLOT_WIDTH / len(labels)
    return BarChart(
        title=title,
        bars=tuple(_bars(series, slot, bottom, y)),
        x_ticks=tuple(
            (round(_LEFT + (at + 0.5) * slot, 1), text)
            for at, text in enumerate(axis_labels(labels))
        ),
        y_ticks=tuple((y(level), text_of(level)) for level in levels),
        is_rotated=is_rotated,
        bottom=bottom,
    )


def _bars(
    series: Sequence[Sequence[_Value]], slot: float, bottom: float, y: Callable[[float], float]
) -> Iterator[Bar]:
    width = slot * _FILL / len(series)
    for number, values in enumerate(series):
        for at, value in enumerate(values):
            if value is None:
                continue
            size, interval, note = value
            top = y(size)
            yield Bar(
                x=round(_LEFT + (at + (1 - _FILL) / 2) * slot + number * width, 1),
                y=top,
                width=round(width * 0.94, 1),
                height=round(bottom - top, 1),
                colour=number % _COLOURS,
                note=note,
                interval=None if interval is None else (y(interval[1]), y(interval[0])),
            )
