"""Results of an experiment: a row for each run, and a figure for each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.notebook import ShownPlot, html_of, plot_of
from ...evaluators import Interval, clopper_pearson, mean, mean_interval, pass_at_k, pass_hat_k
from ...model import Dataset, Example, Experiment, Feedback, Run
from ...store import Store
from .outputs import trajectory_of_run

__all__ = ["ExperimentResults", "Figure", "ResultRow", "load_experiment", "values_of"]


@dataclass(frozen=True)
class ResultRow:
    """A run, its example and its feedback.

    They are also available by key (``row["run"]``, ``row["example"]``,
    ``row["evaluation_results"]["results"]``), as in LangSmith's rows.

    Attributes:
        run: The run.
        example: The example.
        feedback: The results of its evaluators.
    """

    run: Run
    example: Example
    feedback: tuple[Feedback, ...] = ()

    def __getitem__(self, key: str) -> Any:
        """A part of the row."""
        if key == "evaluation_results":
            return {"results": list(self.feedback)}
        if key not in ("run", "example", "feedback"):
            raise KeyError(key)
        return getattr(self, key)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "run_id": self.run.id,
            "example_id": self.example.id,
            "repetition": self.run.repetition,
            "trajectory_id": self.run.trajectory_id or None,
            "inputs": self.example.inputs,
            "outputs": self.run.outputs,
            "reference_outputs": self.example.reference_outputs,
            "error": self.run.error or None,
            "seconds": (self.run.end_ns - self.run.start_ns) / 1e9,
            "feedback": [entry.as_dict() for entry in self.feedback],
        }


@dataclass(frozen=True)
class Figure:
    """The results of one key over all runs.

    Attributes:
        key: The key.
        evaluated: How many runs have a verdict.
        passed: How many runs passed; None if the key has no passes and fails.
        errors: On how many runs the evaluator failed.
        not_evaluated: How many runs could not be evaluated.
        mean: The mean of the examples' means; None if no run has a number.
        interval: The 95% confidence interval of the mean.
        pass_at: The probability that one of k repetitions passes, by k; for passes and fails only.
        pass_hat: The probability that all of k repetitions pass, by k; for passes and fails only.
        labels: How often each label occurs, for keys without numbers.
    """

    key: str
    evaluated: int = 0
    passed: int | None = None
    errors: int = 0
    not_evaluated: int = 0
    mean: float | None = None
    interval: Interval | None = None
    pass_at: Mapping[int, float] = field(default_factory=dict)
    pass_hat: Mapping[int, float] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "key": self.key,
            "evaluated": self.evaluated,
            "passed": self.passed,
            "errors": self.errors,
            "not_evaluated": self.not_evaluated,
            "mean": self.mean,
            "interval": list(self.interval) if self.interval else None,
            "pass_at": {str(k): value for k, value in self.pass_at.items()},
            "pass_hat": {str(k): value for k, value in self.pass_hat.items()},
            "labels": dict(self.labels),
        }


@dataclass(frozen=True)
class ExperimentResults:
    """An experiment with its runs and their feedback.

    Attributes:
        experiment: The experiment's description.
        dataset: The examples.
        rows: A row for each run, in the order of the examples.
        overall: The results of summary evaluators.
    """

    experiment: Experiment
    dataset: Dataset
    rows: tuple[ResultRow, ...] = ()
    overall: tuple[Feedback, ...] = ()

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    def __iter__(self) -> Iterator[ResultRow]:
        """Iterate over the rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.rows)

    @property
    def errors(self) -> int:
        """How many runs failed."""
        return sum(bool(row.run.error) for row in self.rows)

    def _repr_html_(self) -> str:
        """The figures, and the runs that did not pass first, for notebooks."""
        return html_of(self)

    def plot(self) -> ShownPlot:
        """The pass rate of each evaluator, with its 95% interval.

        Raises:
            NothingEvaluated: Nothing passed or failed.
        """
        return plot_of(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as JSON values."""
        return [row.as_dict() for row in self.rows]

    def feedback(self) -> dict[str, list[tuple[ResultRow, Feedback]]]:
        """The feedback of all runs by key, in the order of each key's first occurrence.

        If an evaluator fails, the failure belongs to all keys of its results on other runs.
        """
        keys: dict[str, dict[str, None]] = {}
        for row in self.rows:
            for entry in row.feedback:
                if entry.status != "error":
                    keys.setdefault(entry.evaluator, {})[entry.key] = None
        by_key: dict[str, list[tuple[ResultRow, Feedback]]] = {}
        for row in self.rows:
            for entry in row.feedback:
                names = [entry.key]
                keys_of_evaluator = keys.get(entry.evaluator, {})
                if (
                    entry.status == "error"
                    and entry.key not in keys_of_evaluator
                    and keys_of_evaluator
                ):
                    names = list(keys_of_evaluator)
                for name in names:
                    by_key.setdefault(name, []).append((row, entry))
        return by_key

    def summary(self) -> list[Figure]:
        """The figure of each key."""
        return [_figure(key, members) for key, members in self.feedback().items()]


def values_of(
    members: Sequence[tuple[ResultRow, Feedback]],
) -> tuple[dict[str, list[float]], bool]:
    """A key's numbers by example, and whether all numbers are passes or fails."""
    values: dict[str, list[float]] = {}
    passes = True
    for row, feedback in members:
        if feedback.status == "ok" and feedback.score is not None:
            values.setdefault(row.example.id, []).append(feedback.score)
            passes = passes and feedback.passed is not None and feedback.score in (0, 1)
    return values, passes and bool(values)


def _figure(key: str, members: Sequence[tuple[ResultRow, Feedback]]) -> Figure:
    feedback = [entry for _, entry in members]
    evaluated = [entry for entry in feedback if entry.status == "ok"]
    values, passes = values_of(members)
    verdicts = [entry.passed for entry in evaluated if entry.passed is not None]
    figure = Figure(
        key,
        evaluated=len(evaluated),
        passed=sum(verdicts) if verdicts else None,
        errors=sum(entry.status == "error" for entry in feedback),
        not_evaluated=sum(entry.status == "not_evaluated" for entry in feedback),
        labels=_labels(evaluated),
    )
    if not values:
        return figure
    means = [mean(repetitions) for repetitions in values.values()]
    total = len(means)
    interval = clopper_pearson(sum(means), total) if passes else mean_interval(means)
    figure = replace(figure, mean=mean(means), interval=interval)
    return _with_k(figure, list(values.values())) if passes else figure


def _labels(evaluated: Sequence[Feedback]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for feedback in evaluated:
        if feedback.score is None and feedback.label:
            counts[feedback.label] = counts.get(feedback.label, 0) + 1
    return counts


def _with_k(figure: Figure, values: Sequence[Sequence[float]]) -> Figure:
    """A figure with pass@k and pass^k, for every k up to the repetitions of every example."""
    fewest = min(map(len, values))
    if fewest < 2:
        return figure
    counts = [(len(repetitions), sum(map(int, repetitions))) for repetitions in values]
    ks = range(1, fewest + 1)
    return replace(
        figure,
        pass_at={k: mean(pass_at_k(n, c, k) for n, c in counts) for k in ks},
        pass_hat={k: mean(pass_hat_k(n, c, k) for n, c in counts) for k in ks},
    )


def load_experiment(name: str, store: Store) -> ExperimentResults:
    """The results of a stored experiment.

    Args:
        name: Its name or id, or a prefix; a prefix selects the newest experiment with it.
        store: The store.

    Raises:
        NotFound: The store has no such experiment.
    """
    experiment = store.experiments.get(name)
    examples = store.datasets.examples(experiment.dataset_version)
    dataset = Dataset(experiment.dataset, examples)
    runs = store.experiments.runs(experiment.id)
    feedback = store.experiments.feedback(experiment.id)
    return results_of(experiment, dataset, runs, feedback)


def results_of(
    experiment: Experiment,
    dataset: Dataset,
    runs: Sequence[Run],
    feedback: Sequence[Feedback],
) -> ExperimentResults:
    """Return results with rows in the order of the examples."""
    by_run: dict[str, list[Feedback]] = {}
    for entry in feedback:
        by_run.setdefault(entry.run_id, []).append(entry)
    examples = {example.id: (at, example) for at, example in enumerate(dataset.examples)}
    matched = [run for run in runs if run.example_id in examples]
    matched.sort(key=lambda run: (examples[run.example_id][0], run.repetition))
    rows = []
    for run in matched:
        if run.trajectory is None:
            run = replace(run, trajectory=trajectory_of_run(run))
        rows.append(ResultRow(run, examples[run.example_id][1], tuple(by_run.get(run.id, ()))))
    return ExperimentResults(experiment, dataset, tuple(rows), tuple(by_run.get("", ())))
