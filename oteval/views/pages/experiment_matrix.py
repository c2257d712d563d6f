"""The matrix of an experiment: its examples by evaluators, with the reasons of failures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model import has_unknown_cost
from ...scoring import (
    ExperimentResults,
    Feedback,
    Figure,
    Pair,
    ResultRow,
    load_experiment,
    paired_rows,
    pairs_of,
    with_common_examples,
)
from ...store import Store
from ..experiments import interval_text, k_text, number
from ..text import SIGNS, one_line, shorten
from .responses import named_link

__all__ = [
    "ExperimentCell",
    "ExperimentFigureRow",
    "ExperimentRow",
    "experiment_page",
    "run_links",
]

_PER_PART, _MOST_KEYS = 100, 40
_TITLE, _REASON, _ERROR = 160, 300, 400  # characters


@dataclass(frozen=True, slots=True)
class ExperimentCell:
    """A verdict in the matrix.

    Attributes:
        state: ``pass``, ``fail``, ``score``, ``error``, ``none`` (not evaluated) or ``absent``.
        sign: The mark of the state.
        text: The score or the label.
        reason: Why, for all but passes.
    """

    state: str
    sign: str = ""
    text: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """A run in the matrix.

    Attributes:
        title: The name of its example, with the number of the repetition.
        link: The path of the run's page, "" if its trace is not in the store.
        error: Why the target failed, or "".
        took_ns: How long it took (ns).
        cells: A cell for each key.
    """

    title: str
    link: str
    error: str
    took_ns: int
    cells: tuple[ExperimentCell, ...]


@dataclass(frozen=True, slots=True)
class ExperimentFigureRow:
    """The figure of a key, as `ExperimentResults.summary` has it.

    Attributes:
        key: The key.
        figure: The figure.
        mean: The mean, or the counts of labels.
        interval: The 95% interval of the mean.
        pass_at: The probability that one of k repetitions passes, or "-".
        pass_hat: The probability that all of k repetitions pass, or "-".
    """

    key: str
    figure: Figure
    mean: str
    interval: str
    pass_at: str
    pass_hat: str


def experiment_page(store: Store, name: str, is_failing: bool, first: int) -> Mapping[str, Any]:
    """The page of an experiment.

    Args:
        store: The store.
        name: Its name, its id, or a prefix of its name.
        is_failing: Whether to show only runs with a failure.
        first: The number of the first row.

    Raises:
        NotFound: The store has no such experiment.
    """
    results = load_experiment(name, store)
    about = results.experiment
    failing = [row for row in results if _is_failing(row)]
    rows = failing if is_failing else list(results)
    figures = results.summary()
    keys = [figure.key for figure in figures]
    part = rows[first : first + _PER_PART]
    links = run_links(store, part)
    cost, unpriced = _cost(results)
    repeated, givers = about.repetitions > 1, _givers(results)
    is_comparison = about.kind == "comparison"
    return {
        "id": about.id,
        "name": about.name,
        "about": shorten(one_line(about.description or " vs ".join(about.compared)), _REASON),
        "dataset": shorten(one_line(about.dataset), 80),
        "version": one_line(about.dataset_version or "")[:8],
        "created_ns": about.created_ns,
        "runs": len(results),
        "expected": about.expected,
        "errors": results.errors,
        "cost": cost,
        "unpriced": unpriced,
        "figures": tuple(_figure_row(figure) for figure in figures),
        "overall": tuple(
            (_line(feedback.key, 80), _value(feedback)) for feedback in results.overall
        ),
        "columns": tuple(_line(key, 80) for key in keys[:_MOST_KEYS]),
        "more_keys": max(0, len(keys) - _MOST_KEYS),
        "rows": tuple(_row(row, keys[:_MOST_KEYS], repeated, givers, links) for row in part),
        "first": first,
        "rows_in_all": len(rows),
        "per_part": _PER_PART,
        "failing": len(failing),
        "pairs": _pairs(store, results) if is_comparison else (),
        "is_comparison": is_comparison,
    }


def run_links(store: Store, rows: Sequence[ResultRow]) -> Mapping[str, str]:
    """The paths of the pages of runs whose trace is in the store, by trajectory."""
    names = [row.run.trajectory_id for row in rows if row.run.trajectory_id]
    return {key.id: named_link("/runs", key.id) for key in store.label_queue.keys(names)}


def _is_failing(row: ResultRow) -> bool:
    return bool(row.run.error) or any(
        feedback.state in ("fail", "error") for feedback in row.feedback
    )


def _cost(results: ExperimentResults) -> tuple[float | None, int]:
    """The cost that feedback reports, each call once, and how many costs are unknown."""
    costs: dict[tuple[str, str], float] = {}
    unknown: set[tuple[str, str]] = set()
    for row in results:
        for feedback in row.feedback:
            key = row.run.id, feedback.evaluator
            if feedback.cost is not None:
                costs[key] = max(costs.get(key, 0.0), feedback.cost)
            elif has_unknown_cost(feedback.metadata):
                unknown.add(key)
    return sum(costs.values()) if costs else None, len(unknown)


def _line(text: str, most: int) -> str:
    return shorten(one_line(text), most) or "(no name)"


def _value(feedback: Feedback) -> str:
    if feedback.status != "ok":
        status = feedback.status.replace("_", " ")
        return f"{status}: {shorten(one_line(feedback.comment), _REASON)}"
    return (
        shorten(one_line(feedback.label), 80) if feedback.score is None else number(feedback.score)
    )


def _figure_row(figure: Figure) -> ExperimentFigureRow:
    labels = ", ".join(f"{one_line(label)} {count}" for label, count in figure.labels.items())
    has_labels = labels and figure.mean is None
    return ExperimentFigureRow(
        key=_line(figure.key, 80),
        figure=figure,
        mean=shorten(labels, 120) if has_labels else number(figure.mean),
        interval=interval_text(figure.interval),
        pass_at=k_text(figure.pass_at),
        pass_hat=k_text(figure.pass_hat),
    )


def _row(
    row: ResultRow,
    keys: Sequence[str],
    is_repeated: bool,
    givers: Mapping[str, Collection[str]],
    links: Mapping[str, str],
) -> ExperimentRow:
    repetition = f" #{row.run.repetition + 1}" if is_repeated else ""
    by_key = {feedback.key: feedback for feedback in row.feedback}
    failed = {
        feedback.evaluator: feedback for feedback in row.feedback if feedback.status == "error"
    }
    cells = []
    for key in keys:
        feedback = by_key.get(key)
        if feedback is None:
            # An evaluator that failed returns no keys: its failure is shown under each key.
            feedback = next((failed[name] for name in givers.get(key, ()) if name in failed), None)
        cells.append(_cell(feedback))
    return ExperimentRow(
        title=_line(row.example.title, _TITLE) + repetition,
        link=links.get(row.run.trajectory_id, ""),
        error=shorten(one_line(row.run.error), _ERROR),
        took_ns=max(0, row.run.end_ns - row.run.start_ns),
        cells=tuple(cells),
    )


def _givers(results: ExperimentResults) -> Mapping[str, Collection[str]]:
    """Return, for each key, the evaluators that gave the key to any run."""
    evaluators_by_key: dict[str, dict[str, None]] = {}
    for row in results:
        for feedback in row.feedback:
            evaluators_by_key.setdefault(feedback.key, {})[feedback.evaluator] = None
    return evaluators_by_key


def _cell(feedback: Feedback | None) -> ExperimentCell:
    if feedback is None:
        return ExperimentCell("absent")
    state = feedback.state
    text = shorten(one_line(feedback.label), 40)
    if feedback.score is not None and feedback.status == "ok":
        text = (
            ""
            if feedback.passed is not None and feedback.score in (0, 1)
            else f"{feedback.score:.3g}"
        )
    reason = "" if state == "pass" else shorten(one_line(feedback.comment), _REASON)
    return ExperimentCell(state=state, sign=SIGNS[state], text=text, reason=reason)


def _pairs(store: Store, results: ExperimentResults) -> tuple[Pair, ...]:
    """The preferences of a pairwise comparison; () if a compared experiment is missing."""
    names = results.experiment.compared
    if any(store.experiments.find(name) is None for name in names):
        return ()
    compared = with_common_examples([load_experiment(name, store) for name in names])
    runs = {key: [row.run for row in rows] for key, rows in paired_rows(compared).items()}
    votes = store.experiments.votes(results.experiment.id)
    return tuple(pairs_of(names, runs, votes))
