"""The comparison of an experiment with a baseline: examples better, worse and the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...base.errors import ConfigError, NothingEvaluated
from ...scoring import Comparison, Difference, ExperimentResults, compare, load_experiment
from ...store import Store
from ..experiments import changed_lines, difference_cells, interval_title, needed_lines, number
from ..text import one_line, shorten
from .experiment_matrix import run_links

__all__ = ["ChangedExample", "ComparedFigure", "ExperimentComparison", "comparison_page"]

_STATES = {"regressed": "fail", "improved": "pass", "inconclusive": "none", "no evidence": "same"}
_MOST_CHANGED = 20  # examples of a figure, worse and better each
_TITLE, _NAME, _REASON = 160, 80, 300  # characters


@dataclass(frozen=True, slots=True)
class ChangedExample:
    """An example on which a figure differs.

    Attributes:
        title: Its name.
        before: The figure in the baseline.
        now: The figure in the experiment.
        before_link: The path of the baseline's run, "" if its trace is not in the store.
        now_link: The path of the experiment's run.
        reason: The comment on the experiment's run, or on the baseline's run.
    """

    title: str
    before: str
    now: str
    before_link: str
    now_link: str
    reason: str


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """How a figure differs between an experiment and its baseline.

    Attributes:
        key: The figure.
        verdict: ``improved``, ``regressed``, ``no evidence`` or ``inconclusive``.
        state: The state whose style the verdict has.
        before: The mean in the baseline.
        now: The mean in the experiment.
        delta: The difference.
        interval: Its interval.
        p_value: The p-value.
        p_adjusted: The p-value, adjusted for all figures.
        detectable: The smallest difference that the test would find.
        pairs: The number of examples in common.
        lost: The numbers of runs without the figure on either side, or "".
        better: The number of examples that got better.
        worse: The number of examples that got worse.
        same: The number of examples that stayed.
        worst: Examples that got worse, the worst first.
        best: Examples that got better, the best first.
    """

    key: str
    verdict: str
    state: str
    before: str
    now: str
    delta: str
    interval: str
    p_value: str
    p_adjusted: str
    detectable: str
    pairs: int
    lost: str
    better: int
    worse: int
    same: int
    worst: tuple[ChangedExample, ...]
    best: tuple[ChangedExample, ...]


@dataclass(frozen=True, slots=True)
class ExperimentComparison:
    """Everything that a comparison shows.

    Attributes:
        baseline: The name of the baseline.
        baseline_id: Its id.
        figures: The figures, regressions first.
        changed: Which examples changed, figure by figure.
        notes: Remarks on figures with too few examples.
        only_before: Figures of the baseline alone.
        only_now: Figures of the experiment alone.
        alpha: The false discovery rate.
        interval_title: The title of the intervals, with their confidence.
    """

    baseline: str
    baseline_id: str
    figures: tuple[ComparedFigure, ...]
    notes: tuple[str, ...]
    changed: tuple[str, ...] = ()
    only_before: tuple[str, ...] = ()
    only_now: tuple[str, ...] = ()
    alpha: float = 0.05
    interval_title: str = ""


def comparison_page(store: Store, name: str, baseline: str) -> ExperimentComparison:
    """The comparison of an experiment with a baseline.

    Args:
        store: The store.
        name: The experiment.
        baseline: The name or id of the baseline, or a prefix of its name.

    Raises:
        ConfigError: Both experiments are the same.
        NotFound: The store lacks one of them.
    """
    before, now = load_experiment(baseline, store), load_experiment(name, store)
    if before.experiment.id == now.experiment.id:
        raise ConfigError("an experiment cannot be compared with itself: choose another baseline")
    try:
        comparison = compare(before, now)
    except NothingEvaluated as error:
        return ExperimentComparison(
            before.name, before.experiment.id, figures=(), notes=(one_line(str(error)),)
        )
    sides = _Rows(store, comparison.a), _Rows(store, comparison.b)
    return ExperimentComparison(
        baseline=before.name,
        baseline_id=before.experiment.id,
        figures=tuple(_figure(difference, sides) for difference in comparison.regressed_first),
        notes=tuple(needed_lines(comparison)),
        changed=tuple(changed_lines(comparison)),
        only_before=_names(comparison, is_before=True),
        only_now=_names(comparison, is_before=False),
        alpha=comparison.alpha,
        interval_title=interval_title(comparison.differences),
    )


def _names(comparison: Comparison, is_before: bool) -> tuple[str, ...]:
    keys = comparison.only_a if is_before else comparison.only_b
    return tuple(shorten(one_line(key), _NAME) for key in keys)


class _Rows:
    """The runs of one of the two experiments, by example."""

    def __init__(self, store: Store, results: ExperimentResults) -> None:
        self.rows = {row.example.id: row for row in reversed(results.rows)}
        self.links: Mapping[str, str] = run_links(store, results.rows)

    def title(self, example: str) -> str:
        """The name of an example."""
        row = self.rows.get(example)
        return shorten(one_line(row.example.title if row else example), _TITLE) or "(no name)"

    def link(self, example: str) -> str:
        """The path of the page of its first run, or ""."""
        row = self.rows.get(example)
        return self.links.get(row.run.trajectory_id, "") if row else ""

    def reason(self, example: str, key: str) -> str:
        """Why its first run has this figure, or ""."""
        row = self.rows.get(example)
        if row is None:
            return ""
        comment = next((feedback.comment for feedback in row.feedback if feedback.key == key), "")
        return shorten(one_line(comment or row.run.error), _REASON)


def _figure(difference: Difference, sides: tuple[_Rows, _Rows]) -> ComparedFigure:
    before, now, delta, interval, p_value, p_adjusted, detectable, *_ = difference_cells(difference)
    lost = (
        f"{difference.lost_a} and {difference.lost_b}"
        if difference.lost_a or difference.lost_b
        else ""
    )
    return ComparedFigure(
        key=shorten(one_line(difference.key), _NAME) or "(no name)",
        verdict=difference.verdict,
        state=_STATES[difference.verdict],
        before=before,
        now=now,
        delta=delta,
        interval=interval,
        p_value=p_value,
        p_adjusted=p_adjusted,
        detectable=detectable,
        pairs=difference.pairs,
        lost=lost,
        better=len(difference.better),
        worse=len(difference.worse),
        same=difference.pairs - len(difference.changed),
        worst=tuple(
            _example(row, difference.key, sides) for row in difference.worse[:_MOST_CHANGED]
        ),
        best=tuple(
            _example(row, difference.key, sides) for row in difference.better[:_MOST_CHANGED]
        ),
    )


def _example(row: tuple[str, float, float], key: str, sides: tuple[_Rows, _Rows]) -> ChangedExample:
    example, before, now = row
    first, second = sides
    return ChangedExample(
        title=second.title(example),
        before=number(before),
        now=number(now),
        before_link=first.link(example),
        now_link=second.link(example),
        reason=second.reason(example, key) or first.reason(example, key),
    )
