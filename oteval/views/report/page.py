"""The HTML page: a template that escapes everything, with its style and script inline.

The Content-Security-Policy names the hashes of that style and script, so that nothing else runs,
and forbids requests: trace content always stays text.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...base.jsontext import dumps, encodable, restore
from ..text import clock, duration
from .charts import bar_chart
from .graph_layout import draw_graph
from .model import EvaluatorSummary, MatrixRow, Report

__all__ = ["asset", "render", "report_environment", "safe_json", "template_environment"]

# Characters that could end a script element, or be read as markup or a line end inside it.
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
    """A report as one HTML document that requests nothing else."""
    style, script = asset("style.css"), asset("script.js")
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
        report_environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            policy=policy,
            style=Markup(style),  # noqa: S704  # our own
            script=Markup(script),  # noqa: S704
            charts=[(chart, bar_chart(chart)) for chart in report.charts],
            graph=draw_graph(report.tools) if report.tools else None,
            runs=[restore(report.details[name]) for name in report.static],
            counts=_counts(report),
            evaluators=_by_name(report.evaluators),
        )
    )
    return encodable(page)


def safe_json(text: str) -> Markup:
    """JSON text that is safe inside a script element, whatever its strings contain."""
    return Markup(text.translate(_UNSAFE))  # noqa: S704


def asset(name: str) -> str:
    """A file of the report, such as its style."""
    return resources.files(__package__ or "").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def template_environment(loader: BaseLoader) -> Environment:
    """An environment of templates that escapes every value.

    Args:
        loader: Loads the templates.
    """
    environment = Environment(
        loader=loader,
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
    )
    return environment


@cache
def report_environment() -> Environment:
    """The environment of the report's templates."""
    environment = template_environment(PackageLoader("oteval.views.report"))
    environment.filters["diffs"] = _diffs
    return environment


def _diffs(row: MatrixRow) -> list[dict[str, Any]]:
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
    """The number of rows that each filter shows."""
    rows = report.rows
    states = [{cell.state for cell in row.cells} for row in rows]
    return {
        "all": len(rows),
        "changed": sum(row.change not in ("", "same") for row in rows),
        "regressed": sum(row.change == "regressed" for row in rows),
        "improved": sum(any(c.change == "improved" for c in row.cells) for row in rows),
        "bad": sum(row.badness < 2 for row in rows),
        "error": sum("error" in case_states for case_states in states),
        "none": sum("none" in case_states for case_states in states),
        "failures": sum(row.failures > 0 for row in rows),
    }


def _by_name(summaries: tuple[EvaluatorSummary, ...]) -> list[tuple[str, list[EvaluatorSummary]]]:
    names: dict[str, list[EvaluatorSummary]] = {}
    for summary in summaries:
        names.setdefault(summary.name, []).append(summary)
    return list(names.items())
