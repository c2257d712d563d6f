"""Distributions drawn as SVG by pygal, without its script, its style and its links.

pygal puts a script and a style into every chart, which the page's Content-Security-Policy would
refuse; colours come from the page's own style instead, so that charts follow light and dark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from xml.etree import ElementTree

import pygal
from pygal.style import Style

from ...plural import counted
from .data import Bars, Histogram

__all__ = ["draw"]

# pygal puts a finder for its plugins into every import of the process, one without `find_spec`,
# over which Python 3.11 warns at each module that is not there.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]

_SVG = "http://www.w3.org/2000/svg"
_WIDTH, _HEIGHT = 520, 250
_LABEL = 18  # characters
# pygal measures texts by the sizes of its style.
_STYLE = Style(
    font_family="inherit",
    label_font_size=11,
    major_label_font_size=11,
    legend_font_size=11,
    title_font_size=12,
    value_font_size=11,
)
_KEPT = frozenset(
    {
        *("class", "d", "height", "rx", "ry", "transform", "viewBox", "width"),
        *("x", "y", "cx", "cy", "r", "x1", "x2", "y1", "y2", "points"),
    }
)


def draw(chart: Bars | Histogram) -> str:
    """Return a chart as an SVG element, to be put into a page as it is."""
    drawn = _bars(chart) if isinstance(chart, Bars) else _histogram(chart)
    root = ElementTree.fromstring(drawn)  # noqa: S314  # it is pygal's own
    _strip(root)
    root.set("role", "img")
    root.set("aria-label", chart.title)
    root.set("class", "chart")
    return ElementTree.tostring(root, "unicode", short_empty_elements=False)


def axis_labels(labels: Sequence[str]) -> list[str]:
    """Return labels short enough for an axis; those that differ still do.

    The beginnings of long names are often the same (versions, models): then the ends are shown.
    """
    for short in (_beginning, _ending):
        found = [short(label) for label in labels]
        if len(set(found)) == len(set(labels)):
            return found
    numbers = {label: f" {at}" for at, label in enumerate(dict.fromkeys(labels), start=1)}
    return [f"{label[: _LABEL - len(numbers[label]) - 1]}…{numbers[label]}" for label in labels]


def _beginning(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"


def _ending(label: str) -> str:
    return label if len(label) <= _LABEL else f"…{label[1 - _LABEL :]}"


def _config(labels: Sequence[str], form: Callable[[float], str]) -> dict[str, object]:
    return {
        "js": (),
        "css": (),
        "width": _WIDTH,
        "height": _HEIGHT,
        "margin": 8,
        "spacing": 8,
        "show_legend": False,
        "x_labels": axis_labels(labels),
        "truncate_label": _LABEL + 2,
        "x_label_rotation": 0 if sum(map(len, labels)) < 64 else 30,
        "value_formatter": form,
        "disable_xml_declaration": True,
        "no_prefix": True,
        "style": _STYLE,
        "max_scale": 6,
        "min_scale": 3,
    }


def _bars(chart: Bars) -> str:
    # Where there are many, every other label has room.
    many = sum(map(len, chart.labels)) > 80
    labels = ["" if many and at % 2 else text for at, text in enumerate(chart.labels)]
    drawn = pygal.Bar(**_config(labels, lambda value: f"{value:.0%}"), range=(0, 1), zero=0)
    drawn.y_labels = [0, 0.25, 0.5, 0.75, 1]
    for name, places in chart.series:
        drawn.add(name, [_place(name, place) for place in places])
    return str(drawn.render(is_unicode=True))


def _place(name: str, place: tuple[float, float, float, int] | None) -> object:
    if place is None:
        return None
    rate, low, high, count = place
    note = f"{name}: {rate:.1%} of {count:,} ({low:.1%} to {high:.1%})"
    return {"value": rate, "ci": {"low": low, "high": high}, "label": note}


def _histogram(chart: Histogram) -> str:
    # Only every third bin's beginning has room.
    labels = ["" if at % 3 else text.partition(" – ")[0] for at, text in enumerate(chart.labels)]
    drawn = pygal.Bar(**_config(labels, lambda value: f"{value:,.0f}"))
    most = max(count for _, counts in chart.series for count in counts)
    step = max(1, -(-most // 5))
    drawn.y_labels = list(range(0, most + step, step))
    for name, counts in chart.series:
        prefix = f"{name}: " if name else ""
        drawn.add(
            name,
            [
                {"value": count, "label": f"{prefix}{counted(count, 'run')}, {label}"}
                for count, label in zip(counts, chart.labels, strict=True)
            ],
        )
    return str(drawn.render(is_unicode=True))


def _strip(node: ElementTree.Element) -> None:
    """Leave shapes, texts and classes; what pygal says in a description becomes a title."""
    node.tag = node.tag.rpartition("}")[2]
    for name in [name for name in node.attrib if name not in _KEPT]:
        del node.attrib[name]
    notes = [child for child in node if child.get("class") == "label"]
    for child in list(node):
        if child.tag.rpartition("}")[2] not in (
            "svg",
            "g",
            "path",
            "rect",
            "text",
            "circle",
            "line",
        ):
            node.remove(child)
        else:
            _strip(child)
    if notes and notes[0].text:
        title = ElementTree.Element("title")
        title.text = notes[0].text
        node.insert(0, title)
