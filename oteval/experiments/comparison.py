"""Compare two experiments by their scores, with statistics only.

Runs are paired by example. An example's repetitions are averaged, because they are not independent.
A figure of passes and fails is tested with the exact McNemar test; any other figure, and passes
with repetitions, with a sign-flip permutation test. `oteval.evaluators.stats.means` computes
confidence intervals over examples. All p-values of a comparison are adjusted together
(Benjamini-Hochberg).

The verdict on a figure is ``improved`` or ``regressed`` if the adjusted p-value is at most alpha.
Otherwise it depends on the minimal detectable difference, which the test would find with 80% power.
If that is at most the margin (the smallest difference that matters), the verdict is ``no
evidence``; if it is larger, the verdict is ``inconclusive``, and more examples are needed.

Failed runs and evaluations have no score and are in no pair; they are counted beside each figure.
If a target failed on any run, the figure ``completed`` compares how often it did not fail.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import stdev
from typing import Any, Literal

from ..errors import ConfigError, NothingEvaluated
from ..evaluators.stats import (
    Interval,
    benjamini_hochberg,
    difference_interval,
    fewest_pairs,
    mcnemar,
    minimal_detectable_difference,
    minimal_detectable_share,
    paired_permutation,
)
from ..evaluators.stats.means import FEWEST
from ..evaluators.stats.rates import mean
from .experiment_store import StoreLike, open_store
from .paired_examples import with_common_examples
from .results import ExperimentResults, Figure, load_experiment, values_of

__all__ = ["Comparison", "Difference", "compare", "compare_experiments"]

Verdict = Literal["improved", "regressed", "no evidence", "inconclusive"]

COMPLETED = "completed"
MARGIN = 0.05


@dataclass(frozen=True)
class Difference:
    """The difference of a figure between two experiments.

    Attributes:
        key: The figure.
        mean_a: Its mean over the paired examples in the first experiment.
        mean_b: Its mean over the paired examples in the second.
        delta: ``mean_b - mean_a``.
        interval: The 95% confidence interval of `delta`; None if the examples are too few or too
            similar.
        pairs: How many examples have the figure in both experiments.
        lost_a: Runs of the first without it, because a run or its evaluation failed.
        lost_b: Runs of the second without it.
        test: ``mcnemar`` or ``permutation``.
        only_a: For passes and fails, the examples that only the first passed; None with
            repetitions.
        only_b: The examples that only the second passed.
        p_value: The p-value of the test.
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
    pairs: int
    lost_a: int
    lost_b: int
    test: Literal["mcnemar", "permutation"]
    only_a: int | None
    only_b: int | None
    p_value: float
    p_adjusted: float
    detectable: float
    margin: float
    verdict: Verdict
    lower_is_better: bool = False
    needed: int = 0
    pass_hat: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    pass_at: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    changed: tuple[tuple[str, float, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; an infinite `detectable` is None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
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
        b: The second; its examples have the ids of those of the first with the same question.
        differences: One for each figure that both have.
        only_a: Figures that only the first has.
        only_b: Figures that only the second has.
        alpha: The false discovery rate.
    """

    a: ExperimentResults
    b: ExperimentResults
    differences: tuple[Difference, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    alpha: float = 0.05

    @property
    def regressed(self) -> list[Difference]:
        """The figures that got worse."""
        return [difference for difference in self.differences if difference.verdict == "regressed"]

    @property
    def unverified(self) -> list[str]:
        """The figures of the first that the second has no verdict for, though it was evaluated."""
        evaluated = self.b.feedback()
        return [key for key in self.only_a if key in evaluated]

    def title_of(self, example_id: str) -> str:
        """Return the readable name of an example of both; its id if it is unknown."""
        rows = (row for row in self.b if row.example.id == example_id)
        row = next(rows, None)
        return example_id if row is None else row.example.title

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "a": self.a.name,
            "b": self.b.name,
            "alpha": self.alpha,
            "differences": [difference.as_dict() for difference in self.differences],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "unverified": self.unverified,
        }


def compare(
    a: str | ExperimentResults,
    b: str | ExperimentResults,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    margin: float | Mapping[str, float] | None = None,
    lower_is_better: Collection[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
    store: StoreLike = None,
) -> Comparison:
    """Compare two experiments by their scores; in `oteval` it is ``compare_experiments``.

    Args:
        a: The results of the baseline, or the name of a stored experiment.
        b: The results to compare with it, or a name.
        alpha: The false discovery rate.
        power: The power for the minimal detectable difference.
        margin: The smallest difference that matters, for all figures or by key; by default 0.05
            for figures from 0 to 1, and 5% of the baseline's mean for all others.
        lower_is_better: The figures where less is better.
        resamples: How many permutations to draw, if there are too many to count them all.
        seed: The random seed.
        store: The store that has experiments by name.

    Raises:
        ConfigError: An argument is wrong.
        NotFound: The store has no such experiment.
        NothingEvaluated: No figure has an example in common.
    """
    if not 0 < alpha < 1 or not 0 < power < 1:
        raise ConfigError(f"alpha {alpha} and power {power} must be between 0 and 1")
    first, second = with_common_examples(_load(a, b, store))
    options = _ComparisonOptions(alpha, power, margin, frozenset(lower_is_better), resamples, seed)
    figures_a, figures_b = _figures(first), _figures(second)
    shared = [key for key in figures_a if key in figures_b]
    differences = []
    for key in shared:
        difference = _difference(key, figures_a[key], figures_b[key], options)
        if difference is not None:
            differences.append(difference)
    if not differences:
        raise NothingEvaluated(
            f"{first.name} and {second.name} have no scores of the same example in common"
        )
    return Comparison(
        a=first,
        b=second,
        differences=tuple(_with_verdicts(differences, options)),
        only_a=tuple(key for key in figures_a if key not in figures_b),
        only_b=tuple(key for key in figures_b if key not in figures_a),
        alpha=alpha,
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
    resamples: int
    seed: int

    def margin_of(self, key: str, values: Sequence[float], baseline: float) -> float:
        if isinstance(self.margin, Mapping):
            if key in self.margin:
                return self.margin[key]
        elif self.margin is not None:
            return self.margin
        return MARGIN if _are_scores(values) else MARGIN * abs(baseline)


def _are_scores(values: Sequence[float]) -> bool:
    """Return whether all values are in 0 to 1."""
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
        completed.setdefault(row.example.id, []).append(float(not row.run.error))
    if completed:
        figures.setdefault(COMPLETED, _FigureValues(completed, passes=True, lost=0))
    return figures


def _difference(
    key: str, a: _FigureValues, b: _FigureValues, options: _ComparisonOptions
) -> Difference | None:
    examples = [name for name in a.by_example if name in b.by_example]
    if not examples:
        return None
    means_a = [mean(a.by_example[name]) for name in examples]
    means_b = [mean(b.by_example[name]) for name in examples]
    if key == COMPLETED and a.figure is None and set(means_a) == set(means_b) == {1.0}:
        return None  # no run failed
    deltas = [after - before for before, after in zip(means_a, means_b, strict=True)]
    passes = a.passes and b.passes
    single = all(value in (0, 1) for value in (*means_a, *means_b))
    if passes and single:
        test: Literal["mcnemar", "permutation"] = "mcnemar"
        only_a, only_b = deltas.count(-1), deltas.count(1)
        p_value = mcnemar(only_a, only_b)
    else:
        test, only_a, only_b = "permutation", None, None
        drawn = paired_permutation(deltas, resamples=options.resamples, seed=options.seed)
        p_value = drawn.p_value
    mean_a = mean(means_a)
    lower = key in options.lower_is_better
    return Difference(
        key,
        mean_a=mean_a,
        mean_b=mean(means_b),
        delta=mean(deltas),
        interval=difference_interval(
            deltas, bounded=_are_scores([*means_a, *means_b]), seed=options.seed
        ),
        pairs=len(examples),
        lost_a=a.lost,
        lost_b=b.lost,
        test=test,
        only_a=only_a,
        only_b=only_b,
        p_value=p_value,
        p_adjusted=p_value,
        detectable=_detectable(deltas, passes, options),
        margin=options.margin_of(key, [*means_a, *means_b], mean_a),
        verdict="inconclusive",
        lower_is_better=lower,
        needed=max(0, fewest_pairs(options.alpha) - len(examples)),
        pass_hat=_by_k(a, b, "pass_hat"),
        pass_at=_by_k(a, b, "pass_at"),
        changed=_changed(examples, means_a, means_b, lower),
    )


def _detectable(deltas: Sequence[float], passes: bool, options: _ComparisonOptions) -> float:
    """Return the minimal detectable difference."""
    count = len(deltas)
    if count < FEWEST and passes and all(delta in (-1, 0, 1) for delta in deltas):
        differing = sum(map(bool, deltas)) / count
        return minimal_detectable_share(count, differing, alpha=options.alpha, power=options.power)
    spread = stdev(deltas) if count > 1 else 0.0
    detectable = minimal_detectable_difference(
        spread, count, alpha=options.alpha, power=options.power
    )
    if passes or not spread:
        # Without any spread in the sample, the estimate would be too optimistic.
        least = minimal_detectable_share(count, alpha=options.alpha, power=options.power)
        detectable = max(detectable, least)
    return detectable


def _by_k(a: _FigureValues, b: _FigureValues, name: str) -> dict[int, tuple[float, float]]:
    by_k_a = getattr(a.figure, name) if a.figure else {}
    by_k_b = getattr(b.figure, name) if b.figure else {}
    return {k: (by_k_a[k], by_k_b[k]) for k in by_k_a if k in by_k_b}


def _changed(
    examples: Sequence[str], a: Sequence[float], b: Sequence[float], lower: bool
) -> tuple[tuple[str, float, float], ...]:
    rows = [row for row in zip(examples, a, b, strict=True) if row[1] != row[2]]
    sign = -1 if lower else 1
    return tuple(sorted(rows, key=lambda row: sign * (row[2] - row[1])))


def _with_verdicts(
    differences: Sequence[Difference], options: _ComparisonOptions
) -> list[Difference]:
    adjusted = benjamini_hochberg([difference.p_value for difference in differences])
    decided = []
    for difference, p in zip(differences, adjusted, strict=True):
        verdict: Verdict
        if p <= options.alpha:
            better = difference.delta < 0 if difference.lower_is_better else difference.delta > 0
            verdict = "improved" if better else "regressed"
        elif difference.detectable <= difference.margin:
            verdict = "no evidence"
        else:
            verdict = "inconclusive"
        decided.append(replace(difference, p_adjusted=p, verdict=verdict))
    return decided
