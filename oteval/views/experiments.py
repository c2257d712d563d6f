"""Experiments and comparisons as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..base.text import counted
from ..scoring import (
    ComparativeResults,
    Comparison,
    Difference,
    ExperimentResults,
    Figure,
    Pair,
    Standing,
)
from .columns import Column, Columns, one_row
from .run_changes import changes_view
from .text import ago, one_line, shorten

__all__ = [
    "comparative_table",
    "comparative_view",
    "comparison_table",
    "comparison_view",
    "datasets_table",
    "experiments_table",
    "failed_targets",
    "figures_table",
    "interval_title",
    "ranking_table",
    "run_errors_table",
]

VERDICT_STYLES = {
    "improved": "green",
    "regressed": "bold red",
    "no evidence": "",
    "inconclusive": "yellow",
}


_MOST_FAILURES = 20


def number(value: float | None, sign: bool = False) -> str:
    """A figure with three decimals, or "-" where there is none."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞"
    return f"{value:+.3f}" if sign else f"{value:.3f}"


def p_text(value: float | None) -> str:
    """A p-value; values below 0.001 as "<0.001", and "-" where there is none."""
    if value is None:
        return "-"
    return "<0.001" if value < 0.0005 else f"{value:.3f}"


def interval_text(interval: Sequence[float] | None, sign: bool = False) -> str:
    """An interval, or "-" where there is none."""
    return "-" if interval is None else f"[{', '.join(number(end, sign=sign) for end in interval)}]"


def k_text(values: Mapping[int, float]) -> str:
    """Return pass@k or pass^k of the greatest k, with that k."""
    return f"{values[max(values)]:.3f} (k={max(values)})" if values else "-"


def figures_table(results: ExperimentResults) -> Columns:
    """The figures of an experiment by score key."""
    figures = results.summary()
    repeated = any(figure.pass_hat for figure in figures)
    table = Columns(
        Column("score", least=12, most=40),
        Column("evaluated", rank=4, right=True),
        Column("passed", rank=1, right=True),
        Column("errors", rank=1, right=True),
        Column("not evaluated", rank=1, right=True),
        Column("mean", least=6, most=20, right=True),
        Column("95% interval", rank=2, right=True),
        Column("pass@k", rank=3, right=True, optional=True),
        Column("pass^k", rank=3, right=True, optional=True),
    )
    for figure in figures:
        cells = [k_text(figure.pass_at), k_text(figure.pass_hat)] if repeated else []
        table.add_row(*_figure_cells(figure), *cells)
    for feedback in results.overall:
        bad = Text("1", style="red") if feedback.status == "error" else Text("0")
        value = one_row(feedback.label) if feedback.score is None else number(feedback.score)
        table.add_row(one_row(f"{feedback.key} (all runs)"), "-", "-", bad, "-", value, "-")
    return table


def _figure_cells(figure: Figure) -> list[Text | str]:
    labels = ", ".join(f"{label} {count}" for label, count in figure.labels.items())
    return [
        one_row(figure.key, "bold"),
        str(figure.evaluated),
        "-" if figure.passed is None else Text(str(figure.passed)),
        Text(str(figure.errors), style="red" if figure.errors else ""),
        Text(str(figure.not_evaluated), style="yellow" if figure.not_evaluated else ""),
        one_row(labels) if labels and figure.mean is None else number(figure.mean),
        interval_text(figure.interval),
    ]


def failed_targets(results: ExperimentResults) -> str:
    """Return on how many runs the target failed, or "" if on none."""
    return f"targets failed: {results.errors} of {len(results)}" if results.errors else ""


def run_errors_table(results: ExperimentResults) -> Columns | None:
    """The failures, one per line; None if there are none."""
    table = Columns(
        Column("example", least=8, most=20),
        Column("failed part", least=10, most=20),
        Column("why", rank=1, least=20, wraps=True),
    )
    for row in results:
        if row.run.error:
            why = one_row(shorten(row.run.error, 300))
            table.add_row(one_row(row.example.id), "the target", why)
        for feedback in row.feedback:
            if feedback.status == "error":
                why = one_row(shorten(feedback.comment, 300))
                table.add_row(one_row(row.example.id), one_row(feedback.evaluator), why)
        if table.row_count >= _MOST_FAILURES:
            break
    return table if table.row_count else None


def comparison_view(comparison: Comparison) -> RenderableType:
    """How two experiments differ: the runs that broke, other changes, then the statistics."""
    parts: list[RenderableType] = [*changes_view(comparison), Text(), *_sides(comparison)]
    parts += [comparison_table(comparison)]
    parts += [Text(line, style="yellow") for line in needed_lines(comparison)]
    return Group(*parts)


def needed_lines(comparison: Comparison) -> Iterator[str]:
    """Yield why figures have no statistics, one line for each reason."""
    few: dict[str, dict[int, list[str]]] = {}
    similar: list[str] = []
    for difference in comparison.differences:
        if difference.needed:
            pairs = counted(difference.pairs, "example")
            keys = few.setdefault(pairs, {}).setdefault(difference.needed, [])
            keys.append(one_line(difference.key))
        elif difference.interval is None:
            similar.append(one_line(difference.key))
    for pairs, by_needed in few.items():
        needed = ", ".join(f"{more} ({', '.join(keys)})" for more, keys in by_needed.items())
        yield f"too few for statistics: {pairs}; more examples needed: {needed}"
    if similar:
        yield f"too similar for statistics; more examples needed ({', '.join(similar)})"


def interval_title(compared: Sequence[Difference] | Sequence[Pair]) -> str:
    """The title of the intervals of a comparison, which have one confidence."""
    confidence = compared[0].confidence if compared else 0.95
    return f"{100 * confidence:.3g}% interval"


def comparison_table(comparison: Comparison) -> Columns:
    """How each figure differs between two experiments, regressions first."""
    table = Columns(
        Column("score", least=12, most=40),
        Column("first", right=True),
        Column("second", right=True),
        Column("delta", rank=2, right=True),
        Column(interval_title(comparison.differences), rank=3, right=True),
        Column("p", rank=6, right=True),
        Column("p adj.", rank=4, right=True),
        Column("could see", rank=8, right=True),
        Column("pairs", rank=5, right=True),
        Column("lost", rank=7, optional=True),
        Column("verdict"),
    )
    for difference in comparison.regressed_first:
        verdict = Text(difference.verdict, style=VERDICT_STYLES[difference.verdict])
        table.add_row(one_row(difference.key, "bold"), *difference_cells(difference), verdict)
        for k, (first, second) in difference.pass_hat.items():
            if k > 1:
                cells = number(first), number(second), number(second - first, sign=True)
                table.add_row(Text(f"  pass^{k}", style="dim"), *cells)
    return table


def _sides(comparison: Comparison) -> list[RenderableType]:
    """Which experiment is the first, and which the second."""
    return [
        Text(f"{word:<8}", style="dim").append_text(one_row(side.name))
        for word, side in (("first", comparison.a), ("second", comparison.b))
    ]


def difference_cells(difference: Difference) -> list[str]:
    """A difference's figures as texts."""
    lost = (
        f"{difference.lost_a} / {difference.lost_b}"
        if difference.lost_a or difference.lost_b
        else ""
    )
    return [
        number(difference.mean_a),
        number(difference.mean_b),
        number(difference.delta, sign=True),
        interval_text(difference.interval, sign=True),
        p_text(difference.p_value),
        p_text(difference.p_adjusted),
        number(difference.detectable if math.isfinite(difference.detectable) else None),
        str(difference.pairs),
        lost,
    ]


def comparative_view(results: ComparativeResults) -> RenderableType:
    """Return who is preferred, and for three or more the ranking."""
    table, ranking = comparative_table(results), results.ranking()
    return Group(table, Text(), ranking_table(ranking)) if ranking else table


def comparative_table(results: ComparativeResults) -> Columns:
    """Return who is preferred, a line for each pair and question."""
    table = Columns(
        Column("question", rank=2, least=8, most=24),
        Column("first", least=8, most=24),
        Column("second", least=8, most=24),
        Column("wins", rank=3, right=True),
        Column("losses", rank=3, right=True),
        Column("ties", rank=6, right=True),
        Column("errors", rank=5, right=True),
        Column("win rate", rank=1, right=True),
        Column(interval_title(results.pairs()), rank=4, right=True),
        Column("p", rank=8, right=True),
        Column("p adj.", rank=7, right=True),
        Column("flips", rank=9, right=True),
        Column("first shown", rank=10, right=True),
        Column("verdict", least=11, most=36),
    )
    for pair in results.pairs():
        who = {"a": pair.a, "b": pair.b}.get(pair.verdict())
        table.add_row(
            *(one_row(each) for each in (pair.key, pair.a, pair.b)),
            *(f"{value:g}" for value in (pair.wins_a, pair.wins_b, pair.ties, pair.errors)),
            *(number(pair.win_rate), interval_text(pair.interval)),
            *(p_text(pair.p_value), p_text(pair.p_adjusted)),
            *(_percent(pair.flip_rate), _percent(pair.first_rate)),
            one_row(f"{who} is better", "bold") if who else "no evidence",
        )
    return table


def ranking_table(ranking: Iterable[Standing]) -> Columns:
    """The strengths of experiments by question."""
    table = Columns(
        Column("question", rank=1, least=8, most=24),
        Column("experiment", least=12, most=40),
        Column("strength", right=True),
        Column("95% interval", rank=2),
    )
    for standing in ranking:
        names = one_row(standing.key), one_row(standing.name, "bold")
        table.add_row(
            *names, number(standing.strength, sign=True), interval_text(standing.interval)
        )
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def experiments_table(rows: Iterable[Mapping[str, Any]], now_ns: int) -> Columns:
    """Return experiments, one a line.

    Args:
        rows: The experiments.
        now_ns: The current time.
    """
    table = Columns(
        Column("name", least=20, most=48),
        Column("made", rank=1),
        Column("dataset", rank=4, least=8, most=24, optional=True),
        Column("version", rank=5, optional=True),
        Column("runs", rank=2, right=True),
        Column("errors", rank=2, right=True),
        Column("description", rank=3, least=16, most=60, optional=True),
    )
    for row in rows:
        done = f"{row['runs']}/{row['expected']}"
        if row["kind"] == "comparison":
            done = counted(row["votes"], "vote")
        about = row["description"] or " vs ".join(row["compared"] or ())
        table.add_row(
            one_row(row["name"], "bold"),
            ago(row["created_ns"], now_ns),
            one_row(row["dataset"] or ""),
            one_row((row["dataset_version"] or "")[:8]),
            done,
            Text(str(row["errors"]), style="red" if row["errors"] else ""),
            one_row(shorten(about, 200)),
        )
    return table


def datasets_table(rows: Iterable[Mapping[str, Any]], now_ns: int) -> Columns:
    """Return versions of datasets, one a line.

    Args:
        rows: The versions.
        now_ns: The current time.
    """
    table = Columns(
        Column("name", least=16, most=40),
        Column("version"),
        Column("examples", rank=1, right=True),
        Column("source", rank=3, least=16, most=40, optional=True),
        Column("added", rank=2),
    )
    for row in rows:
        table.add_row(
            one_row(row["name"]),
            one_row(row["version"] or "")[:8],
            str(row["examples"]),
            one_row(row["source"] or ""),
            ago(row["created_ns"], now_ns),
        )
    return table
