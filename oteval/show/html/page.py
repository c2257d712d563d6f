"""The page: a template that escapes everything, with its own style and script inside.

The Content-Security-Policy names the hashes of that one style and script, so that nothing else
runs or is styled, and allows no request: whatever a trace says, it stays text.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...jsontext import dumps, encodable, restore
from ..text import clock, duration
from .charts import bar_chart
from .data import Evaluator, Report, Row

__all__ = ["render", "safe_json"]

# What could end a script element, or be taken for markup or the end of a line in it.
_UNSAFE = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


def render(report: Report) -> str:
    """Return a report as one HTML document that asks for nothing else."""
    style, script = _asset("style.css"), _asset("script.js")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            policy=policy,
            style=Markup(style),  # noqa: S704  # our own
            script=Markup(script),  # noqa: S704
            charts=[(chart, bar_chart(chart)) for chart in report.charts],
            runs=[restore(report.details[name]) for name in report.static],
            counts=_counts(report),
            evaluators=_by_name(report.evaluators),
        )
    )
    return encodable(page)


def safe_json(text: str) -> Markup:
    """Return a JSON text that can stand in a script element, whatever its strings say."""
    return Markup(text.translate(_UNSAFE))  # noqa: S704


def _asset(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("oteval.show.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        json=lambda value: safe_json(dumps(value)),
        ready_json=safe_json,
        clock=clock,
        duration=duration,
        percent=lambda value: f"{value:.1%}",
        diffs=_diffs,
    )
    return environment


def _diffs(row: Row) -> list[dict[str, Any]]:
    return [
        {
            "left": diff.left,
            "right": diff.right,
            "group": diff.group,
            "pairs": diff.pairs,
            "first": diff.first,
        }
        for diff in row.diffs
    ]


def _counts(report: Report) -> dict[str, int]:
    """Return how many rows each filter leaves."""
    rows = report.rows
    states = [{cell.state for cell in row.cells} for row in rows]
    return {
        "all": len(rows),
        "changed": sum(row.change not in ("", "same") for row in rows),
        "regressed": sum(row.change == "regressed" for row in rows),
        "improved": sum(any(c.change == "improved" for c in row.cells) for row in rows),
        "bad": sum(row.badness < 2 for row in rows),
        "error": sum("error" in found for found in states),
        "none": sum("none" in found for found in states),
        "failures": sum(row.failures > 0 for row in rows),
    }


def _by_name(found: tuple[Evaluator, ...]) -> list[tuple[str, list[Evaluator]]]:
    names: dict[str, list[Evaluator]] = {}
    for one in found:
        names.setdefault(one.name, []).append(one)
    return list(names.items())
