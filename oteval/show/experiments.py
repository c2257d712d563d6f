"""Experiments and comparisons as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..experiments import ComparativeResults, Comparison, Difference, ExperimentResults, Figure
from .tables import _table
from .text import clean, clock, one_line, shorten

__all__ = [
    "comparative_view",
    "comparison_view",
    "datasets_table",
    "experiments_table",
    "figures_table",
    "run_errors_table",
]

VERDICT_STYLES = {
    "improved": "green",
    "regressed": "bold red",
    "no evidence": "",
    "inconclusive": "yellow",
}


_VERDICT_ORDER = ("regressed", "inconclusive", "improved", "no evidence")
# How many examples are listed of each figure: this many that got worse and as many others.
_MOST_CHANGED = 5
_LONGEST_TITLE = 100


def number(value: float | None, sign: bool = False) -> str:
    """Return a figure with three decimals, or "-" where there is none."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞"
    return f"{value:+.3f}" if sign else f"{value:.3f}"


def p_text(value: float) -> str:
    """Return a p-value; one that rounds to 0 as what it is below."""
    return "<0.001" if value < 0.0005 else f"{value:.3f}"


def interval_text(interval: Sequence[float] | None, sign: bool = False) -> str:
    """Return an interval, or "-" where there is none."""
    return "-" if interval is None else f"[{', '.join(number(end, sign) for end in interval)}]"


def k_text(values: Mapping[int, float]) -> str:
    """Return pass@k or pass^k of the greatest k, with that k."""
    return f"{values[max(values)]:.3f} (k={max(values)})" if values else "-"


def figures_table(results: ExperimentResults) -> Table:
    """Return what each key of an experiment came to."""
    figures = results.summary()
    repeated = any(figure.pass_hat for figure in figures)
    right = ("evaluated", "passed", "errors", "not evaluated", "mean", "95% interval")
    more = ("pass@k", "pass^k") if repeated else ()
    table = _table("score", *right, *more, right=(*right, *more))
    for figure in figures:
        cells = [k_text(figure.pass_at), k_text(figure.pass_hat)] if repeated else []
        table.add_row(*_figure_cells(figure), *cells)
    for one in results.overall:
        name, value = Text(clean(f"{one.key} (all runs)")), number(one.score)
        bad = Text("1", style="red") if one.status == "error" else Text("0")
        table.add_row(name, "-", "-", bad, "-", one.label if one.score is None else value, "-")
    return table


def _figure_cells(figure: Figure) -> list[RenderableType]:
    labels = ", ".join(f"{clean(label)} {count}" for label, count in figure.labels.items())
    return [
        Text(clean(figure.key), style="bold"),
        str(figure.evaluated),
        "-" if figure.passed is None else Text(str(figure.passed)),
        Text(str(figure.errors), style="red" if figure.errors else ""),
        Text(str(figure.not_evaluated), style="yellow" if figure.not_evaluated else ""),
        Text(labels) if labels and figure.mean is None else number(figure.mean),
        interval_text(figure.interval),
    ]


def run_errors_table(results: ExperimentResults, limit: int = 20) -> Table | None:
    """Return what failed, one a line; None where nothing did."""
    table = _table("example", "what failed", "why")
    for row in results:
        if row.run.error:
            name = Text(clean(row.example.id))
            table.add_row(name, "the target", Text(shorten(row.run.error, 300)))
        for one in row.feedback:
            if one.status == "error":
                name, who = Text(clean(row.example.id)), Text(clean(one.evaluator))
                table.add_row(name, who, Text(shorten(one.comment, 300)))
        if table.row_count >= limit:
            break
    return table if table.row_count else None


def comparison_view(comparison: Comparison) -> RenderableType:
    """Return how two experiments differ: a table of figures, then the examples that changed."""
    parts: list[RenderableType] = [comparison_table(comparison)]
    for one in _regressed_first(comparison.differences):
        if one.changed:
            parts += [Text(), _changed_examples(comparison, one)]
    return Group(*parts)


def _regressed_first(differences: Iterable[Difference]) -> list[Difference]:
    return sorted(differences, key=lambda one: list(_VERDICT_ORDER).index(one.verdict))


def _changed_examples(comparison: Comparison, one: Difference) -> RenderableType:
    """Return the examples on which one figure differs, regressions first, with both values."""
    worse = [row for row in one.changed if (row[2] < row[1]) != one.lower_is_better]
    better = [*reversed(one.changed[len(worse) :])]
    counts = f"{len(worse)} worse, {len(better)} better"
    head = Text.assemble((clean(one.key), "bold"), f": {counts}")
    table = _table(head, "first", "second", right=("first", "second"))
    for rows, style in ((worse, "red"), (better, "green")):
        for example, first, second in rows[:_MOST_CHANGED]:
            title = shorten(one_line(comparison.title_of(example)), _LONGEST_TITLE)
            table.add_row(Text(title), number(first), Text(number(second), style))
    hidden = len(one.changed) - table.row_count
    more = Text(f"and {hidden} more (--json lists all)", style="dim")
    return Group(table, more) if hidden else table


def comparison_table(comparison: Comparison) -> Table:
    """Return how each figure differs between two experiments, regressions first."""
    right = ("first", "second", "delta", "95% interval", "p", "p adj.", "could see", "pairs")
    table = _table("score", *right, "lost", "verdict", right=right)
    for one in _regressed_first(comparison.differences):
        verdict = Text(one.verdict, style=VERDICT_STYLES[one.verdict])
        table.add_row(Text(clean(one.key), style="bold"), *difference_cells(one), verdict)
        for k, (first, second) in one.pass_hat.items():
            if k > 1:
                cells = number(first), number(second), number(second - first, True)
                table.add_row(Text(f"  pass^{k}", style="dim"), *cells)
    return table


def difference_cells(one: Difference) -> list[str]:
    """Return a difference's figures as texts."""
    lost = f"{one.lost_a} / {one.lost_b}" if one.lost_a or one.lost_b else ""
    return [
        number(one.mean_a),
        number(one.mean_b),
        number(one.delta, True),
        interval_text(one.interval, True),
        p_text(one.p_value),
        p_text(one.p_adjusted),
        number(one.detectable),
        str(one.pairs),
        lost,
    ]


def comparative_view(results: ComparativeResults) -> RenderableType:
    """Return who is preferred, and for three or more the ranking."""
    right = ("wins", "losses", "ties", "errors", "win rate", "95% interval", "p", "p adj.")
    more = ("flips", "first shown")
    table = _table("question", "first", "second", *right, *more, "verdict", right=(*right, *more))
    for pair in results.pairs():
        who = {"a": pair.a, "b": pair.b}.get(pair.verdict())
        table.add_row(
            *(Text(clean(each)) for each in (pair.key, pair.a, pair.b)),
            *(f"{value:g}" for value in (pair.wins_a, pair.wins_b, pair.ties, pair.errors)),
            *(number(pair.win_rate), interval_text(pair.interval)),
            *(p_text(pair.p_value), p_text(pair.p_adjusted)),
            *(_percent(pair.flip_rate), _percent(pair.first_rate)),
            Text(f"{clean(who)} is better", style="bold") if who else "no evidence",
        )
    ranking = results.ranking()
    if not ranking:
        return table
    ranks = _table("question", "experiment", "strength", "95% interval", right=("strength",))
    for standing in ranking:
        names = Text(clean(standing.key)), Text(clean(standing.name), style="bold")
        ranks.add_row(*names, number(standing.strength, True), interval_text(standing.interval))
    return Group(table, Text(), ranks)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def experiments_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return experiments, one a line."""
    right = ("runs", "errors")
    table = _table("name", "made", "dataset", "version", *right, "description", right=right)
    for row in rows:
        done = f"{row['runs']}/{row['expected']}"
        if row["kind"] == "comparison":
            done = f"{row['votes']} votes"
        about = row["description"] or " vs ".join(row["compared"] or ())
        table.add_row(
            Text(clean(row["name"]), style="bold"),
            clock(row["created_ns"]),
            *(Text(clean(row[name] or "")) for name in ("dataset", "dataset_version")),
            done,
            Text(str(row["errors"]), style="red" if row["errors"] else ""),
            Text(shorten(about, 60)),
        )
    return table


def datasets_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return versions of datasets, one a line."""
    table = _table("name", "version", "examples", "source", "added", right=("examples",))
    for row in rows:
        cells = (Text(clean(row[name] or "")) for name in ("name", "version"))
        table.add_row(
            *cells,
            str(row["examples"]),
            Text(clean(row["source"] or "")),
            clock(row["created_ns"]),
        )
    return table
