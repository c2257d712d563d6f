"""Compare two experiments by their scores, with statistics only.

Runs are paired by example. An example's repetitions are averaged, because they are not independent.
One procedure, `oteval.evaluators.stats.differences`, computes the interval of each figure's mean
difference and its p-value. For passes and fails, the test is the exact McNemar test. The
intervals of a comparison have one confidence, 1 - alpha for a single figure, adjusted for all
figures together (Benjamini-Hochberg, Benjamini-Yekutieli).

The verdict on a figure is ``improved`` or ``regressed`` if its interval excludes 0. Otherwise it
depends on the minimal detectable difference, which is found with 80% power. The margin is the
smallest difference that matters. If the detectable difference is at most the margin, the verdict is
``no evidence``. If it is larger, the verdict is ``inconclusive``, and more examples are needed.

Failed runs and evaluations have no score and are in no pair; they are counted beside each figure.
If a target failed on any run, the figure ``completed`` compares how often it did not fail.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ...base.errors import ConfigError, NothingEvaluated
from ...base.notebook import ShownPlot, html_of, plot_of
from ...evaluators import (
    FEWEST,
    Interval,
    benjamini_hochberg,
    detectable_difference,
    difference_interval,
    difference_p_value,
    mean,
    minimal_detectable_share,
    more_pairs_needed,
    selected_confidence,
)
from .experiment_store import StoreLike, open_store
from .paired_examples import RunGroup, run_groups, with_common_examples
from .results import ExperimentResults, Figure, load_experiment, values_of
from .run_changes import COMPLETED, RunChanges, run_changes

__all__ = ["VERDICTS", "Comparison", "Difference", "compare", "compare_experiments"]

Verdict = Literal["improved", "regressed", "no evidence", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("regressed", "inconclusive", "improved", "no evidence")
"""The verdicts in the order in which figures are listed."""

MARGIN = 0.05

# An example that differs: its id, the figure in the first experiment, and in the second.
ChangedScore = tuple[str, float, float]


@dataclass(frozen=True)
class Difference:
    """The difference of a figure between two experiments.

    Attributes:
        key: The figure.
        mean_a: Its mean over the paired examples in the first experiment.
        mean_b: Its mean over the paired examples in the second.
        delta: ``mean_b - mean_a``.
        interval: The interval of `delta`; None if the examples are too few or too similar.
        confidence: The confidence of the interval, the same for all figures of the comparison.
        pairs: How many examples have the figure in both experiments.
        lost_a: Runs of the first without the figure, because a run or its evaluation failed.
        lost_b: Runs of the second without the figure.
        test: ``mcnemar`` for passes and fails, otherwise ``gaffke``; both agree on passes and
            fails.
        only_a: For passes and fails, the examples that only the first passed; None with
            repetitions.
        only_b: The examples that only the second passed.
        p_value: The p-value that the mean difference is 0; None without an interval.
        p_adjusted: The p-value, adjusted for all figures of the comparison.
        detectable: The minimal detectable difference.
        needed: How many more examples are needed before any difference can be found; mostly 0.
        margin: The smallest difference that matters.
        verdict: ``improved``, ``regressed``, ``no evidence`` or ``inconclusive``.
        lower_is_better: Whether a smaller figure is an improvement.
        pass_hat: For passes and fails with repetitions, pass^k of both experiments, by k.
        pass_at: The same for pass@k.
        changed: The examples that differ (id, first, second), the worst regression first.
    """

    key: str
    mean_a: float
    mean_b: float
    delta: float
    interval: Interval | None
    confidence: float
    pairs: int
    lost_a: int
    lost_b: int
    test: Literal["mcnemar", "gaffke"]
    only_a: int | None
    only_b: int | None
    p_value: float | None
    p_adjusted: float | None
    detectable: float
    margin: float
    verdict: Verdict
    lower_is_better: bool = False
    needed: int = 0
    pass_hat: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    pass_at: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    changed: tuple[ChangedScore, ...] = ()

    @property
    def worse(self) -> Sequence[ChangedScore]:
        """The examples that got worse, the worst first."""
        return [row for row in self.changed if (row[2] < row[1]) != self.lower_is_better]

    @property
    def better(self) -> Sequence[ChangedScore]:
        """The examples that got better, the best first."""
        return [*reversed(self.changed[len(self.worse) :])]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; an infinite `detectable` is None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["worse"], values["better"] = len(self.worse), len(self.better)
        values["interval"] = list(self.interval) if self.interval else None
        values["detectable"] = self.detectable if math.isfinite(self.detectable) else None
        for name in ("pass_hat", "pass_at"):
            values[name] = {str(k): list(pair) for k, pair in values[name].items()}
        values["changed"] = [
            {"example_id": example_id, "a": score_a, "b": score_b}
            for example_id, score_a, score_b in self.changed
        ]
        return values


@dataclass(frozen=True)
class Comparison:
    """The comparison of two experiments.

    Attributes:
        a: The first experiment, the baseline.
        b: The second. Its examples have the ids of the examples of the first with the same
            question.
        differences: A difference for each figure that both experiments have.
        only_a: Figures that only the first has.
        only_b: Figures that only the second has.
        alpha: The false discovery rate.
        groups: The runs of both by example.
    """

    a: ExperimentResults
    b: ExperimentResults
    differences: tuple[Difference, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    alpha: float = 0.05
    groups: Sequence[RunGroup] = ()

    @cached_property
    def changes(self) -> RunChanges:
        """The runs that broke, got better or could not be compared, one by one."""
        return run_changes((self.a, self.b), self.groups, self.differences)

    @property
    def regressed_first(self) -> list[Difference]:
        """The figures: regressions first, then figures with too few examples."""
        return sorted(self.differences, key=lambda difference: VERDICTS.index(difference.verdict))

    @property
    def regressed(self) -> list[Difference]:
        """The figures that got worse."""
        return [difference for difference in self.differences if difference.verdict == "regressed"]

    @property
    def unverified(self) -> list[str]:
        """The figures of the first without a verdict in the second, though it was evaluated."""
        evaluated = self.b.feedback()
        return [key for key in self.only_a if key in evaluated]

    def _repr_html_(self) -> str:
        """The runs that got worse, and how each figure differs, for notebooks."""
        return html_of(self)

    def plot(self) -> ShownPlot:
        """The pass rates of both experiments, with their 95% intervals.

        Raises:
            NothingEvaluated: Nothing passed or failed.
        """
        return plot_of(self)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "a": self.a.name,
            "b": self.b.name,
            "alpha": self.alpha,
            "differences": [difference.as_dict() for difference in self.differences],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "unverified": self.unverified,
            "changes": self.changes.as_dicts(),
        }


def compare(
    a: str | ExperimentResults,
    b: str | ExperimentResults,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    margin: float | Mapping[str, float] | None = None,
    lower_is_better: Collection[str] = (),
    store: StoreLike = None,
) -> Comparison:
    """Compare two experiments by their scores; in `oteval` it is ``compare_experiments``.

    Args:
        a: The results of the baseline, or the name of a stored experiment.
        b: The results to compare with the baseline, or a name.
        alpha: The false discovery rate.
        power: The power for the minimal detectable difference.
        margin: The smallest difference that matters, for all figures or by key; by default 0.05
            for figures from 0 to 1, and 5% of the baseline's mean for all others.
        lower_is_better: The figures that improve when they get smaller.
        store: The store that has experiments by name.

    Raises:
        ConfigError: An argument is wrong.
        NotFound: The store has no such experiment.
        NothingEvaluated: No figure has an example in common.
    """
    if not 0 < alpha < 1 or not 0 < power < 1:
        raise ConfigError(f"alpha {alpha} and power {power} must be between 0 and 1")
    loaded = _load(a, b, store)
    first, second = with_common_examples(loaded)
    options = _ComparisonOptions(alpha, power, margin, frozenset(lower_is_better))
    figures_a, figures_b = _figures(first), _figures(second)
    shared = [key for key in figures_a if key in figures_b]
    paired = [_paired(key, figures_a[key], figures_b[key]) for key in shared]
    differences = _differences([figure for figure in paired if figure is not None], options)
    groups = run_groups(loaded, (first, second))
    if not differences:
        missing = run_changes((first, second), groups, ()).unevaluated
        why = "".join(f": {row.key or row.experiment}: {row.reason}" for row in missing[:1])
        raise NothingEvaluated(
            f"{first.name} and {second.name} have no scores of the same example in common{why}"
        )
    return Comparison(
        a=first,
        b=second,
        differences=tuple(differences),
        only_a=tuple(key for key in figures_a if key not in figures_b),
        only_b=tuple(key for key in figures_b if key not in figures_a),
        alpha=alpha,
        groups=groups,
    )


# Its name in `oteval`, where `compare` matches two trajectories.
compare_experiments = compare


def _load(
    a: str | ExperimentResults, b: str | ExperimentResults, store: StoreLike
) -> tuple[ExperimentResults, ExperimentResults]:
    if isinstance(a, ExperimentResults) and isinstance(b, ExperimentResults):
        return a, b
    with open_store(store) as opened:
        first = load_experiment(a, opened) if isinstance(a, str) else a
        second = load_experiment(b, opened) if isinstance(b, str) else b
    return first, second


@dataclass(frozen=True)
class _ComparisonOptions:
    alpha: float
    power: float
    margin: float | Mapping[str, float] | None
    lower_is_better: frozenset[str]

    def margin_of(self, key: str, values: Sequence[float], baseline: float) -> float:
        if isinstance(self.margin, Mapping):
            if key in self.margin:
                return self.margin[key]
        elif self.margin is not None:
            return self.margin
        return MARGIN if _are_scores(values) else MARGIN * abs(baseline)


def _are_scores(values: Sequence[float]) -> bool:
    """Whether all values are in 0 to 1."""
    return min(values) >= 0 and max(values) <= 1


@dataclass(frozen=True)
class _FigureValues:
    """A figure's numbers by example."""

    by_example: Mapping[str, Sequence[float]]
    passes: bool
    lost: int
    figure: Figure | None = None


def _figures(results: ExperimentResults) -> dict[str, _FigureValues]:
    summaries = {figure.key: figure for figure in results.summary()}
    figures = {}
    for key, members in results.feedback().items():
        values, passes = values_of(members)
        if values:
            scored = sum(map(len, values.values()))
            figures[key] = _FigureValues(
                by_example=values,
                passes=passes,
                lost=len(results) - scored,
                figure=summaries[key],
            )
    completed: dict[str, list[float]] = {}
    for row in results:
        if row.run.was_made:
            completed.setdefault(row.example.id, []).append(float(not row.run.error))
    if completed:
        figures.setdefault(COMPLETED, _FigureValues(completed, passes=True, lost=0))
    return figures


@dataclass(frozen=True)
class _PairedFigure:
    """A figure of the examples that both experiments have."""

    key: str
    a: _FigureValues
    b: _FigureValues
    examples: Sequence[str]
    means_a: Sequence[float]
    means_b: Sequence[float]

    @cached_property
    def deltas(self) -> Sequence[float]:
        return [after - before for before, after in zip(self.means_a, self.means_b, strict=True)]

    @cached_property
    def are_scores(self) -> bool:
        return _are_scores([*self.means_a, *self.means_b])

    @cached_property
    def are_verdicts(self) -> bool:
        """Whether each example passes or fails, and no repetitions of it differ."""
        means = (*self.means_a, *self.means_b)
        return self.a.passes and self.b.passes and all(value in (0, 1) for value in means)

    @cached_property
    def p_value(self) -> float | None:
        return difference_p_value(self.deltas, bounded=self.are_scores)

    def detectable(self, alpha: float, power: float) -> float:
        """The minimal detectable difference."""
        if self.are_verdicts and len(self.deltas) < FEWEST:
            differing = sum(map(bool, self.deltas)) / len(self.deltas)
            return minimal_detectable_share(len(self.deltas), differing, alpha=alpha, power=power)
        detectable = detectable_difference(
            self.deltas, bounded=self.are_scores, alpha=alpha, power=power
        )
        if min(self.deltas) < max(self.deltas):
            return detectable
        # Without any spread in the sample, the estimate would be too optimistic.
        least = minimal_detectable_share(len(self.deltas), alpha=alpha, power=power)
        return max(detectable, least)


def _paired(key: str, a: _FigureValues, b: _FigureValues) -> _PairedFigure | None:
    examples = [name for name in a.by_example if name in b.by_example]
    if not examples:
        return None
    means_a = [mean(a.by_example[name]) for name in examples]
    means_b = [mean(b.by_example[name]) for name in examples]
    if key == COMPLETED and a.figure is None and set(means_a) == set(means_b) == {1.0}:
        return None  # no run failed
    return _PairedFigure(key, a, b, examples, means_a, means_b)


def _differences(figures: Sequence[_PairedFigure], options: _ComparisonOptions) -> list[Difference]:
    p_values = [figure.p_value for figure in figures if figure.p_value is not None]
    confidence = selected_confidence(p_values, options.alpha)
    adjusted = iter(benjamini_hochberg(p_values))
    return [
        _difference(
            figure,
            p_adjusted=None if figure.p_value is None else next(adjusted),
            confidence=confidence,
            options=options,
        )
        for figure in figures
    ]


def _difference(
    figure: _PairedFigure,
    *,
    p_adjusted: float | None,
    confidence: float,
    options: _ComparisonOptions,
) -> Difference:
    deltas, pairs = figure.deltas, len(figure.deltas)
    interval = difference_interval(deltas, bounded=figure.are_scores, confidence=confidence)
    detectable = figure.detectable(1 - confidence, options.power)
    mean_a = mean(figure.means_a)
    margin = options.margin_of(figure.key, [*figure.means_a, *figure.means_b], mean_a)
    lower = figure.key in options.lower_is_better
    verdict: Verdict = "no evidence" if detectable <= margin else "inconclusive"
    if interval is not None and not interval.low <= 0 <= interval.high:
        verdict = "improved" if (interval.low > 0) != lower else "regressed"
    return Difference(
        figure.key,
        mean_a=mean_a,
        mean_b=mean(figure.means_b),
        delta=mean(deltas),
        interval=interval,
        confidence=confidence,
        pairs=pairs,
        lost_a=figure.a.lost,
        lost_b=figure.b.lost,
        test="mcnemar" if figure.are_verdicts else "gaffke",
        only_a=deltas.count(-1) if figure.are_verdicts else None,
        only_b=deltas.count(1) if figure.are_verdicts else None,
        p_value=figure.p_value,
        p_adjusted=p_adjusted,
        detectable=detectable,
        margin=margin,
        verdict=verdict,
        lower_is_better=lower,
        needed=more_pairs_needed(pairs, bounded=figure.are_scores, alpha=options.alpha),
        pass_hat=_by_k(figure.a, figure.b, "pass_hat"),
        pass_at=_by_k(figure.a, figure.b, "pass_at"),
        changed=_changed(figure.examples, figure.means_a, figure.means_b, lower),
    )


def _by_k(a: _FigureValues, b: _FigureValues, name: str) -> dict[int, tuple[float, float]]:
    by_k_a = getattr(a.figure, name) if a.figure else {}
    by_k_b = getattr(b.figure, name) if b.figure else {}
    return {k: (by_k_a[k], by_k_b[k]) for k in by_k_a if k in by_k_b}


def _changed(
    examples: Sequence[str], a: Sequence[float], b: Sequence[float], lower: bool
) -> tuple[ChangedScore, ...]:
    rows = [row for row in zip(examples, a, b, strict=True) if row[1] != row[2]]
    sign = -1 if lower else 1
    return tuple(sorted(rows, key=lambda row: sign * (row[2] - row[1])))
