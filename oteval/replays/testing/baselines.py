"""Baselines: the results of marked tests, stored to detect regressions.

A baseline has the scores of each test's repetitions by feedback key; the key ``test`` has 1 for a
passed test and 0 for a failed one. A test regresses if a mean score falls by more than the
tolerance, if feedback loses its score, or if more of it could not be evaluated. The comparison uses
no statistics. From experiments with repetitions, `oteval compare` can determine whether a small
change may be chance; a single test cannot.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...base.errors import InputError, NotFound
from ...model import Dataset, Example, Experiment, Feedback, Run, example_id
from ...store import Store
from .rows import Row

__all__ = [
    "OUTCOME",
    "Baseline",
    "BaselineFigure",
    "Regression",
    "load_experiment",
    "make_baseline",
    "read_file",
    "regressions",
    "save_experiment",
    "write_file",
]

OUTCOME = "test"
_FORMAT = 1
_EXACT = 1e-9
_DATASET = "pytest"


@dataclass
class BaselineFigure:
    """The scores of one test for one feedback key.

    Attributes:
        scores: The scores, in the order of the repetitions.
        errors: The number of repetitions with a failed evaluation.
        lower_is_better: Whether a rise is a regression.
    """

    scores: list[float] = field(default_factory=list)
    errors: int = 0
    lower_is_better: bool = False

    @property
    def mean(self) -> float | None:
        """The mean of the scores, or None if there are none."""
        return sum(self.scores) / len(self.scores) if self.scores else None


# Figures by test and feedback key.
Baseline = dict[str, dict[str, BaselineFigure]]


@dataclass(frozen=True)
class Regression:
    """A score that is worse than in the baseline.

    Attributes:
        test: The test.
        key: The feedback key; ``test`` means the outcome of the test itself.
        reason: The change, with both values.
    """

    test: str
    key: str
    reason: str


def make_baseline(rows: Iterable[Row]) -> Baseline:
    """Make the baseline of a run of tests, without skipped tests."""
    baseline: Baseline = {}
    for row in rows:
        if row.outcome == "skipped":
            continue
        by_key = baseline.setdefault(row.test, {OUTCOME: BaselineFigure()})
        by_key[OUTCOME].scores.append(float(row.outcome == "passed"))
        for record in row.feedback:
            _add(by_key, record["key"], record)
    return baseline


def _add(by_key: dict[str, BaselineFigure], key: str, record: Mapping[str, Any]) -> None:
    # A user's feedback key "test" must not be mistaken for the outcome of the test.
    figure = by_key.setdefault(key if key != OUTCOME else f"{OUTCOME} (logged)", BaselineFigure())
    figure.lower_is_better = record["lower_is_better"]
    if record["status"] != "ok":
        figure.errors += 1
    elif record["score"] is not None:
        figure.scores.append(record["score"])


def regressions(
    before: Baseline, rows: Iterable[Row], tolerance: float = 0.0
) -> tuple[list[Regression], list[str]]:
    """Compare a run of tests with a baseline.

    Args:
        before: The baseline.
        rows: The results of the run.
        tolerance: How much a mean may fall; a test's mark can override it.

    Returns:
        The regressions, and the tests of the baseline that did not run.
    """
    rows = list(rows)
    now = make_baseline(rows)
    own = {row.test: row.tolerance for row in rows if row.tolerance is not None}
    worse = [
        Regression(test, key, reason)
        for test, by_key in before.items()
        if test in now
        for key, figure in by_key.items()
        if (reason := _worse(figure, now[test].get(key), own.get(test, tolerance)))
    ]
    return worse, [test for test in before if test not in now]


def _worse(before: BaselineFigure, now: BaselineFigure | None, tolerance: float) -> str:
    """The regression of scores as text, or ""."""
    if before.mean is None:
        return ""
    if now is None:
        return f"was {before.mean:g}, and is no longer logged"
    if now.mean is None:
        return f"was {before.mean:g}, and could not be evaluated"
    fall = now.mean - before.mean if before.lower_is_better else before.mean - now.mean
    if fall > tolerance + _EXACT:
        return f"{before.mean:g} -> {now.mean:g}"
    if now.errors > before.errors:
        return f"{now.errors} of {now.errors + len(now.scores)} could not be evaluated"
    return ""


def write_file(path: Path, baseline: Baseline) -> None:
    """Write a baseline as JSON with readable diffs.

    Raises:
        InputError: The file cannot be written.
    """
    tests = {
        test: {key: asdict(figure) for key, figure in sorted(by_key.items())}
        for test, by_key in sorted(baseline.items())
    }
    text = json.dumps({"oteval_baseline": _FORMAT, "tests": tests}, indent=1, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text + "\n", "utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_file(path: Path) -> Baseline:
    """Read a baseline from a file.

    Raises:
        NotFound: The file does not exist.
        InputError: The file cannot be read, or does not contain a baseline.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["oteval_baseline"] != _FORMAT:
            raise InputError(f"{path}: a newer oteval wrote it; upgrade (pip install -U oteval)")
        return {
            test: {key: BaselineFigure(**figure) for key, figure in by_key.items()}
            for test, by_key in content["tests"].items()
        }
    except FileNotFoundError:
        raise NotFound(f"{path}: no such baseline") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not an oteval baseline; save it again") from error


def save_experiment(
    store: Store, name: str, rows: Iterable[Row], not_run: Collection[str] = ()
) -> str:
    """Store a run of tests as an experiment, which `oteval compare` can compare with others.

    Args:
        store: The store.
        name: The beginning of the experiment's name.
        rows: The results of the run.
        not_run: Tests that did not run. Their results are copied from the newest experiment of
            that name.

    Returns:
        The name of the experiment, which starts with `name`.
    """
    ran = [row for row in rows if row.outcome != "skipped"]
    now, identity = time.time_ns(), secrets.token_hex(8)
    tests = {row.test: row for row in ran}
    runs = [_run(identity, row, now) for row in ran]
    feedback = [
        score for run, row in zip(runs, ran, strict=True) for score in _feedback(run.id, row, now)
    ]
    examples = [
        Example(example_id(test), row.inputs, row.reference_outputs, {"test": test})
        for test, row in sorted(tests.items())
    ]
    if not_run:
        earlier = _results_of(store, name, not_run, identity)
        examples, runs, feedback = examples + earlier[0], runs + earlier[1], feedback + earlier[2]
    dataset = Dataset(_DATASET, tuple(examples), "pytest", now)
    experiment = Experiment(
        identity,
        f"{name}-{identity[:8]}",
        name,
        dataset=dataset.name,
        dataset_version=dataset.version,
        repetitions=1 + max((run.repetition for run in runs), default=0),
        expected=len(runs),
        created_ns=now,
    )
    store.datasets.add(dataset)
    store.experiments.add(experiment)
    store.experiments.write(identity, runs, feedback)
    return experiment.name


def _results_of(
    store: Store, name: str, tests: Collection[str], experiment_id: str
) -> tuple[list[Example], list[Run], list[Feedback]]:
    """The results of some tests in the newest experiment of a name, for another experiment."""
    before = store.experiments.get(name)
    examples = [
        example
        for example in store.datasets.examples(before.dataset_version)
        if example.metadata.get("test") in tests
    ]
    ids = {example.id for example in examples}
    runs = {
        run.id: replace(run, id=secrets.token_hex(8), experiment_id=experiment_id)
        for run in store.experiments.runs(before.id)
        if run.example_id in ids
    }
    feedback = [
        replace(score, run_id=runs[score.run_id].id)
        for score in store.experiments.feedback(before.id)
        if score.run_id in runs
    ]
    return examples, list(runs.values()), feedback


def _run(experiment_id: str, row: Row, now: int) -> Run:
    return Run(
        secrets.token_hex(8),
        experiment_id,
        example_id(row.test),
        row.repetition,
        row.inputs,
        row.outputs,
        start_ns=now - int(row.duration * 1e9),
        end_ns=now,
    )


def _feedback(run_id: str, row: Row, now: int) -> list[Feedback]:
    passed = row.outcome == "passed"
    outcome = Feedback(
        run_id=run_id,
        evaluator="pytest",
        version="",
        key=OUTCOME,
        score=float(passed),
        passed=passed,
        comment=row.error,
        time_ns=now,
    )
    return [outcome, *(_to_feedback(run_id, record, now) for record in row.feedback)]


def _to_feedback(run_id: str, record: Mapping[str, Any], now: int) -> Feedback:
    return Feedback(
        run_id=run_id,
        evaluator=record["key"],
        version="",
        key=record["key"],
        status=record["status"],
        score=record["score"],
        passed=record["passed"],
        label=record["label"],
        comment=record["comment"],
        metadata={"lower_is_better": True} if record["lower_is_better"] else {},
        time_ns=now,
    )


def load_experiment(store: Store, name: str) -> Baseline:
    """Read the newest experiment with a name as a baseline.

    Raises:
        NotFound: No experiment has the name.
    """
    experiment = store.experiments.get(name)
    version = experiment.dataset_version
    tests = {
        example.id: str(example.metadata.get("test", example.id))
        for example in store.datasets.examples(version)
    }
    runs = {
        run.id: tests.get(run.example_id, run.example_id)
        for run in store.experiments.runs(experiment.id)
    }
    baseline: Baseline = {test: {} for test in runs.values()}
    for feedback in store.experiments.feedback(experiment.id):
        if feedback.run_id not in runs:
            continue
        by_key = baseline[runs[feedback.run_id]]
        record = {
            "status": feedback.status,
            "score": feedback.score,
            "lower_is_better": bool(feedback.metadata.get("lower_is_better")),
        }
        if feedback.evaluator == "pytest" and feedback.key == OUTCOME:
            by_key.setdefault(OUTCOME, BaselineFigure()).scores.append(feedback.score or 0.0)
        else:
            _add(by_key, feedback.key, record)
    return baseline
