"""What an experiment came to: a row for each run, and the figures by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..evaluators.stats import Interval, clopper_pearson, mean_interval, pass_at_k, pass_hat_k
from ..evaluators.stats.rates import mean
from ..model import Dataset, Example, Experiment, Feedback, Run
from ..store import Store
from .plain import trajectory_in

__all__ = ["ExperimentResults", "Figure", "ResultRow", "load_experiment", "values_of"]


@dataclass(frozen=True)
class ResultRow:
    """A run, its example and what its evaluators said.

    The three are also there by key (``row["run"]``, ``row["example"]``,
    ``row["evaluation_results"]["results"]``), as LangSmith's rows have them.

    Attributes:
        run: The run.
        example: The example.
        feedback: What the evaluators said.
    """

    run: Run
    example: Example
    feedback: tuple[Feedback, ...] = ()

    def __getitem__(self, key: str) -> Any:
        """Return a part of the row."""
        if key == "evaluation_results":
            return {"results": list(self.feedback)}
        if key not in ("run", "example", "feedback"):
            raise KeyError(key)
        return getattr(self, key)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
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
            "feedback": [one.as_dict() for one in self.feedback],
        }


@dataclass(frozen=True)
class Figure:
    """What one key came to over all runs.

    Attributes:
        key: The key.
        evaluated: Runs with a verdict.
        passed: Runs that passed; None where there is no such notion.
        errors: Runs on which the evaluator failed.
        not_evaluated: Runs that could not be judged.
        mean: The mean over examples of their own means; None where no run has a number.
        interval: Its 95% interval.
        pass_at: The chance that one of k repetitions passes, by k; of passes only.
        pass_hat: The chance that all of k repetitions pass, by k; of passes only.
        labels: How often each label was given, where there are no numbers.
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
        """Return the JSON form."""
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
    """An experiment with all that is known of it.

    Attributes:
        experiment: Its description.
        dataset: The examples.
        rows: A row for each run, in the examples' order.
        overall: What summary evaluators said of it as a whole.
    """

    experiment: Experiment
    dataset: Dataset
    rows: tuple[ResultRow, ...] = ()
    overall: tuple[Feedback, ...] = ()

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    @property
    def experiment_name(self) -> str:
        """The experiment's name, by LangSmith's."""
        return self.experiment.name

    def __iter__(self) -> Iterator[ResultRow]:
        """Iterate over the rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.rows)

    @property
    def errors(self) -> int:
        """How many runs failed."""
        return sum(bool(row.run.error) for row in self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as JSON has them."""
        return [row.as_dict() for row in self.rows]

    def feedback(self) -> dict[str, list[tuple[ResultRow, Feedback]]]:
        """Return what was said by key, keys in the order in which they came.

        An evaluator's failure belongs to the keys that it gives when it does not fail.
        """
        keys: dict[str, dict[str, None]] = {}
        for row in self.rows:
            for one in row.feedback:
                if one.status != "error":
                    keys.setdefault(one.evaluator, {})[one.key] = None
        found: dict[str, list[tuple[ResultRow, Feedback]]] = {}
        for row in self.rows:
            for one in row.feedback:
                names = [one.key]
                known = keys.get(one.evaluator, {})
                if one.status == "error" and one.key not in known and known:
                    names = list(known)
                for name in names:
                    found.setdefault(name, []).append((row, one))
        return found

    def summary(self) -> list[Figure]:
        """Return what each key came to."""
        return [_figure(key, members) for key, members in self.feedback().items()]


def values_of(
    members: Sequence[tuple[ResultRow, Feedback]],
) -> tuple[dict[str, list[float]], bool]:
    """Return a key's numbers by example, and whether all of them are passes or fails."""
    values: dict[str, list[float]] = {}
    passes = True
    for row, one in members:
        if one.status == "ok" and one.score is not None:
            values.setdefault(row.example.id, []).append(one.score)
            passes = passes and one.passed is not None and one.score in (0, 1)
    return values, passes and bool(values)


def _figure(key: str, members: Sequence[tuple[ResultRow, Feedback]]) -> Figure:
    found = [one for _, one in members]
    judged = [one for one in found if one.status == "ok"]
    values, passes = values_of(members)
    verdicts = [one.passed for one in judged if one.passed is not None]
    figure = Figure(
        key,
        evaluated=len(judged),
        passed=sum(verdicts) if verdicts else None,
        errors=sum(one.status == "error" for one in found),
        not_evaluated=sum(one.status == "not_evaluated" for one in found),
        labels=_labels(judged),
    )
    if not values:
        return figure
    means = [mean(each) for each in values.values()]
    total = len(means)
    interval = clopper_pearson(sum(means), total) if passes else mean_interval(means)
    figure = replace(figure, mean=mean(means), interval=interval)
    return _with_k(figure, list(values.values())) if passes else figure


def _labels(judged: Sequence[Feedback]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in judged:
        if one.score is None and one.label:
            counts[one.label] = counts.get(one.label, 0) + 1
    return counts


def _with_k(figure: Figure, values: Sequence[Sequence[float]]) -> Figure:
    """Return a figure with pass@k and pass^k, as far as every example has the repetitions."""
    least = min(map(len, values))
    if least < 2:
        return figure
    counts = [(len(each), sum(map(int, each))) for each in values]
    ks = range(1, least + 1)
    return replace(
        figure,
        pass_at={k: mean(pass_at_k(n, c, k) for n, c in counts) for k in ks},
        pass_hat={k: mean(pass_hat_k(n, c, k) for n, c in counts) for k in ks},
    )


def load_experiment(name: str, store: Store) -> ExperimentResults:
    """Return a stored experiment.

    Args:
        name: Its name or id, or a prefix of which the newest is meant.
        store: Where it is.

    Raises:
        NotFound: There is none.
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
    """Return results whose rows are in the examples' order."""
    by_run: dict[str, list[Feedback]] = {}
    for one in feedback:
        by_run.setdefault(one.run_id, []).append(one)
    examples = {example.id: (at, example) for at, example in enumerate(dataset.examples)}
    known = [run for run in runs if run.example_id in examples]
    known.sort(key=lambda run: (examples[run.example_id][0], run.repetition))
    rows = []
    for run in known:
        if run.trajectory is None:
            run = replace(run, trajectory=trajectory_in(run.outputs, run.id))
        rows.append(ResultRow(run, examples[run.example_id][1], tuple(by_run.get(run.id, ()))))
    return ExperimentResults(experiment, dataset, tuple(rows), tuple(by_run.get("", ())))
