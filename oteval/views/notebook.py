"""Objects in notebooks: the report's templates and style, in one piece of HTML.

A piece needs no script and requests nothing. It contains the rules of the report's style that it
uses, each limited to the element around the piece, so that the notebook keeps its own look. Texts
are escaped and cut by the same functions as in reports, and the number of rows and messages is
limited.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, singledispatch
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..base.errors import ConfigError, InputError, NothingEvaluated
from ..base.files import write_private
from ..base.jsontext import dumps, encodable
from ..base.text import counted
from ..evaluators import ReturnedResult, Verdict
from ..model import Trajectory
from ..scoring import Comparison, ExperimentResults, with_common_examples
from .experiments import comparison_table
from .pages.shown_messages import shown_messages
from .report.build import ReportOptions, build
from .report.charts import bar_chart
from .report.details import details
from .report.histograms import SortedNumbers, histogram, plain, seconds_text, short
from .report.model import Bars, Histogram, MatrixCell, Report, ReportRun
from .report.page import asset, report_environment
from .report.sources import experiment_runs
from .run_changes import compared_runs
from .run_texts import run_title, unique
from .text import clean, one_line, shorten

__all__ = ["Plot", "frame_html", "html_of", "plot_of", "plot_runs"]

_CLASS = "oteval"
_MOST_MESSAGES, _MOST_GAPS, _MOST_ROWS, _MOST_GROUPS = 100, 20, 20, 6
_LONGEST, _LONGEST_CELL = 2000, 200  # characters
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_BLOCK = re.compile(r"@[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
# Light, as notebooks are, except in those that name a dark theme.
_OWN_STYLE = f"""
.{_CLASS} {{ color-scheme: light; padding: .8rem 1rem; border-radius: 10px; max-width: 1100px; }}
body[data-jp-theme-light="false"] .{_CLASS}, body.vscode-dark .{_CLASS} {{ color-scheme: dark; }}
.{_CLASS} figure {{ max-width: 560px; }}
.{_CLASS} .frame td {{ max-width: 20rem; overflow: hidden; text-overflow: ellipsis; }}
.{_CLASS} .frame td {{ white-space: nowrap; }}
"""


@dataclass(frozen=True)
class Plot:
    """A chart of the report, which notebooks show.

    Attributes:
        chart: Its values.
    """

    chart: Bars | Histogram

    @property
    def svg(self) -> str:
        """The chart as an SVG document."""
        drawing = encodable(_macro("drawing")(bar_chart(self.chart))).strip()
        style = scoped_style(drawing).replace(f".{_CLASS}", "svg")
        head = '<svg xmlns="http://www.w3.org/2000/svg" '
        return drawing.replace("<svg ", head, 1).replace(">", f"><style>{style}</style>", 1)

    def save(self, path: str | Path) -> None:
        """Write the chart to an SVG file.

        Raises:
            InputError: The file cannot be written.
        """
        try:
            write_private(Path(path), self.svg)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error

    def _repr_html_(self) -> str:
        """The chart with its title and its legend, for notebooks."""
        return _piece("plot", self.chart, bar_chart(self.chart))


@singledispatch
def html_of(value: Any) -> str:
    """An object as a piece of HTML that is safe in a notebook."""
    raise TypeError(f"{type(value).__name__} has no view for notebooks")


@singledispatch
def plot_of(value: Any) -> Plot:
    """The chart of an object."""
    raise TypeError(f"{type(value).__name__} has no chart")


@html_of.register
def _(run: Trajectory) -> str:
    item = ReportRun(
        run.id, "", "", run_title(run), trajectory=run, start_ns=run.start_ns, end_ns=run.end_ns
    )
    fields = details(item, _LONGEST, has_messages=False)
    own = run.own_messages
    fields["messages"] = shown_messages(own[:_MOST_MESSAGES], run.new_from)[0]
    fields["gaps"] = fields["gaps"][:_MOST_GAPS]
    left_out = len(own) - _MOST_MESSAGES
    remark = f"{counted(left_out, 'more message')}: oteval show {run.id}" if left_out > 0 else ""
    return _piece("trajectory", fields, remark)


@html_of.register
def _(result: ReturnedResult) -> str:
    score, metadata = result["score"], result["metadata"] or {}
    state = "pass" if score is True else "fail" if score is False else "score"
    if score is None:
        state = "error" if metadata.get("status") == "error" else "none"
    return _verdict(state, result["key"], score, result["comment"] or "", metadata)


@html_of.register
def _(verdict: Verdict) -> str:
    state = "pass" if verdict.passed else "fail"
    return _verdict(state, "match", None, verdict.comment or "", verdict.metadata())


def _verdict(state: str, name: str, score: Any, comment: str, metadata: Mapping[str, Any]) -> str:
    is_number = isinstance(score, (int, float)) and not isinstance(score, bool)
    rows = [
        (clean(str(key)), shorten(value if isinstance(value, str) else dumps(value), _LONGEST_CELL))
        for key, value in list(metadata.items())[:_MOST_ROWS]
    ]
    figure = plain(score) if is_number else ""
    return _piece("verdict", state, clean(name), figure, shorten(comment, _LONGEST), rows)


@dataclass(frozen=True)
class _Case:
    """An evaluator's verdict on the runs of a case.

    Attributes:
        label: The case.
        evaluator: The evaluator.
        cell: The verdict.
        why: The reason.
    """

    label: str
    evaluator: str
    cell: MatrixCell
    why: str


@html_of.register
def _(results: ExperimentResults) -> str:
    report = _report([results])
    cases = [
        _Case(row.label, column.evaluator, cell, shorten(cell.note, _LONGEST_CELL))
        for row in report.rows
        for column, cell in zip(report.columns, row.cells, strict=True)
        if cell.state in ("fail", "mixed", "error")
    ]
    left_out = len(cases) - _MOST_ROWS
    more = f"and {left_out:,} more: oteval report lists all" if left_out > 0 else ""
    remark = f"{counted(len(results), 'run')}, {results.errors} failed"
    title = clean(results.name)
    return _piece("results", title, remark, cases[:_MOST_ROWS], more, *_evaluators(report))


@html_of.register
def _(comparison: Comparison) -> str:
    report = _report([comparison.a, comparison.b])
    columns, rows = comparison_table(comparison).whole()
    texts = [[text.plain for text in row] for row in rows[:_MOST_ROWS]]
    heads = [column.name for column in columns]
    changes = compared_runs(comparison, _MOST_ROWS)
    return _piece("comparison", changes, *_evaluators(report), heads, texts)


def _evaluators(report: Report) -> tuple[list[Any], bool, Sequence[str]]:
    """The arguments of the macro that draws the table of evaluators."""
    summaries: dict[str, list[Any]] = {}
    for summary in report.evaluators:
        summaries.setdefault(summary.name, []).append(summary)
    return list(summaries.items())[:_MOST_ROWS], report.is_comparison, report.groups


def _report(experiments: Sequence[ExperimentResults]) -> Report:
    """The report on some experiments; it has no details of runs."""
    compared = with_common_examples(experiments)
    is_grouped = len(experiments) > 1
    groups = unique(results.name for results in experiments) if is_grouped else [""]
    items = [
        replace(item, group=group)
        for group, results in zip(groups, compared, strict=True)
        for item in experiment_runs(results, {})
    ]
    return build(items, ReportOptions(is_grouped=is_grouped, most_bytes=0, static=0))


@plot_of.register
def _(results: ExperimentResults) -> Plot:
    return _rates([results], f"Pass rates of {results.name}")


@plot_of.register
def _(comparison: Comparison) -> Plot:
    title = f"Pass rates: {comparison.a.name} and {comparison.b.name}"
    return _rates([comparison.a, comparison.b], title)


def _rates(experiments: Sequence[ExperimentResults], title: str) -> Plot:
    """The pass rates of evaluators as bars, a series for each experiment."""
    report = _report(experiments)
    rates = {
        (summary.name, summary.group): (
            summary.pass_rate,
            summary.low,
            summary.high,
            summary.passed + summary.failed + summary.errors,
        )
        for summary in report.evaluators
        if summary.pass_rate is not None
    }
    names = tuple(dict.fromkeys(name for name, _ in rates))
    if not names:
        raise NothingEvaluated("nothing to plot: no run passed or failed")
    series = tuple(
        (group, tuple(rates.get((name, group)) for name in names)) for group in report.groups
    )
    return Plot(Bars(clean(title), names, series))


def plot_runs(column: str, unit: str, values: Mapping[str, Sequence[float]]) -> Plot:
    """A histogram of a column of runs.

    Args:
        column: Its name.
        unit: Its unit.
        values: Its values by group.

    Raises:
        ConfigError: All values are missing, or there are too many groups.
    """
    if not values:
        raise ConfigError(f"plot: no run has a value in {column!r}")
    if len(values) > _MOST_GROUPS:
        raise ConfigError(f"plot: {len(values)} groups, at most {_MOST_GROUPS} can be compared")
    by_group = {group: SortedNumbers(array("d", numbers)) for group, numbers in values.items()}
    form = seconds_text if unit == "s" else short if unit == "tokens" else plain
    is_logarithmic = unit in ("s", "tokens")
    return Plot(histogram(column, by_group, form, is_logarithmic=is_logarithmic))


def frame_html(title: str, names: Sequence[str], rows: Sequence[Sequence[Any]], count: int) -> str:
    """The first rows of a table.

    Args:
        title: The table's name.
        names: The names of its columns.
        rows: The cells of the first rows.
        count: The number of all rows.
    """
    remark = counted(count, "row")
    if count > len(rows):
        remark = f"the first {len(rows)} of {remark}"
    numbers = [
        at for at in range(len(names)) if any(isinstance(row[at], (int, float)) for row in rows)
    ]
    texts = [[_cell_text(value) for value in row] for row in rows]
    return _piece("frame", title, names, texts, numbers, remark)


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return plain(value, 6)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return shorten(one_line(text[: 8 * _LONGEST_CELL]), _LONGEST_CELL)


def _macro(name: str) -> Any:
    return getattr(report_environment().get_template("notebook.html.j2").module, name)


def _piece(macro: str, *values: Any) -> str:
    """The piece that a macro renders, with its style."""
    markup = encodable(_macro(macro)(*values))
    style = Markup(scoped_style(markup) + _OWN_STYLE)  # noqa: S704  # our own
    return f'<div class="{_CLASS}"><style>{style}</style>{markup}</div>'


def scoped_style(markup: str) -> str:
    """The rules of the report's style for the classes of a piece, limited to the piece."""
    names = " ".join(re.findall(r'class="([^"]*)"', markup)).split()
    return _style_of(frozenset(names))


@cache
def _rules() -> tuple[tuple[str, str], ...]:
    """The selectors and the declarations of the report's style, without those for paper."""
    text = _BLOCK.sub("", _COMMENT.sub("", asset("style.css")))
    return tuple((rule[1].strip(), rule[2].strip()) for rule in _RULE.finditer(text))


@cache
def _style_of(classes: frozenset[str]) -> str:
    lines = []
    for selectors, declarations in _rules():
        scoped = [
            _scoped(selector.strip())
            for selector in selectors.split(",")
            if set(re.findall(r"\.([\w-]+)", selector)) <= classes
            and not re.search(r"html|#|\[hidden\]|data-theme", selector)
        ]
        if scoped:
            lines.append(f"{', '.join(scoped)} {{ {declarations} }}")
    return "\n".join(lines)


def _scoped(selector: str) -> str:
    if selector in (":root", "body"):
        return f".{_CLASS}"
    return f".{_CLASS} {selector}"
