"""Baselines: what marked tests came to once, and what is worse now.

A baseline holds, for each test and each feedback key, the scores that its repetitions got, and
under the key ``test`` whether the test passed. A test regresses where a mean falls by more than
the tolerance, where feedback that had a score has none any more, and where more of it failed to
be evaluated. Scores are compared as they are: whether a small fall could be chance, `oteval
compare` can tell from experiments with repetitions, and one test alone cannot.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, NotFound
from ..model import Dataset, Example, Experiment, Feedback, Run, example_id
from ..store import Store
from .rows import Row

__all__ = [
    "OUTCOME",
    "Baseline",
    "BaselineFigure",
    "Regression",
    "baseline_of",
    "load_experiment",
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
    """What one feedback key of one test came to.

    Attributes:
        scores: The scores, in the order of the repetitions.
        errors: How often it was logged without a score because evaluating failed.
        lower_is_better: Whether it is worse when it rises.
    """

    scores: list[float] = field(default_factory=list)
    errors: int = 0
    lower_is_better: bool = False

    @property
    def mean(self) -> float | None:
        """The mean of the scores, or None without any."""
        return sum(self.scores) / len(self.scores) if self.scores else None


# By test and feedback key.
Baseline = dict[str, dict[str, BaselineFigure]]


@dataclass(frozen=True)
class Regression:
    """One figure that is worse than it was.

    Attributes:
        test: The test.
        key: The feedback key; ``test`` is the test itself.
        reason: What is worse, with both values.
    """

    test: str
    key: str
    reason: str


def baseline_of(rows: Iterable[Row]) -> Baseline:
    """Return what some tests came to; skipped ones came to nothing."""
    found: Baseline = {}
    for row in rows:
        if row.outcome == "skipped":
            continue
        figures = found.setdefault(row.test, {OUTCOME: BaselineFigure()})
        figures[OUTCOME].scores.append(float(row.outcome == "passed"))
        for note in row.feedback:
            _add(figures, note["key"], note)
    return found


def _add(figures: dict[str, BaselineFigure], key: str, note: Mapping[str, Any]) -> None:
    # A key of the user's own that is called "test" must not pass for the test's outcome.
    figure = figures.setdefault(key if key != OUTCOME else f"{OUTCOME} (logged)", BaselineFigure())
    figure.lower_is_better = note["lower_is_better"]
    if note["status"] != "ok":
        figure.errors += 1
    elif note["score"] is not None:
        figure.scores.append(note["score"])


def regressions(
    before: Baseline, rows: Iterable[Row], tolerance: float = 0.0
) -> tuple[list[Regression], list[str]]:
    """Compare a run with a baseline.

    Args:
        before: The baseline.
        rows: The run.
        tolerance: How far a mean may fall, unless the test's mark says another.

    Returns:
        What is worse, and the baseline's tests that did not run.
    """
    rows = list(rows)
    now = baseline_of(rows)
    own = {row.test: row.tolerance for row in rows if row.tolerance is not None}
    worse = [
        Regression(test, key, reason)
        for test, figures in before.items()
        if test in now
        for key, figure in figures.items()
        if (reason := _worse(figure, now[test].get(key), own.get(test, tolerance)))
    ]
    return worse, [test for test in before if test not in now]


def _worse(before: BaselineFigure, now: BaselineFigure | None, tolerance: float) -> str:
    """Return why a figure is worse, or ""."""
    if before.mean is None:
        return ""
    if now is None:
        return f"was {before.mean:g}, and is not logged any more"
    if now.mean is None:
        return f"was {before.mean:g}, and could not be evaluated"
    fall = now.mean - before.mean if before.lower_is_better else before.mean - now.mean
    if fall > tolerance + _EXACT:
        return f"{before.mean:g} -> {now.mean:g}"
    if now.errors > before.errors:
        return f"{now.errors} of {now.errors + len(now.scores)} could not be evaluated"
    return ""


def write_file(path: Path, baseline: Baseline) -> None:
    """Write a baseline as JSON that reads well as a difference in version control.

    Raises:
        InputError: The file cannot be written.
    """
    tests = {
        test: {key: asdict(figure) for key, figure in sorted(figures.items())}
        for test, figures in sorted(baseline.items())
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
    """Return the baseline of a file.

    Raises:
        NotFound: There is no such file.
        InputError: It cannot be read, or is no baseline.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["oteval_baseline"] != _FORMAT:
            raise InputError(f"{path}: a newer oteval wrote it; upgrade (pip install -U oteval)")
        return {
            test: {key: BaselineFigure(**figure) for key, figure in figures.items()}
            for test, figures in content["tests"].items()
        }
    except FileNotFoundError:
        raise NotFound(f"{path}: no such baseline") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: no baseline of oteval; save it again") from error


def save_experiment(store: Store, name: str, rows: Iterable[Row]) -> str:
    """Keep a run of tests as an experiment; `oteval compare` reads it like any other.

    Returns:
        The experiment's name, which begins with the given one.
    """
    kept = [row for row in rows if row.outcome != "skipped"]
    now, identity = time.time_ns(), secrets.token_hex(8)
    tests = {row.test: row for row in kept}
    examples = [
        Example(example_id(test), row.inputs, row.reference_outputs, {"test": test})
        for test, row in sorted(tests.items())
    ]
    dataset = Dataset(_DATASET, tuple(examples), "pytest", now)
    experiment = Experiment(
        identity,
        f"{name}-{identity[:8]}",
        name,
        dataset=dataset.name,
        dataset_version=dataset.version,
        repetitions=1 + max((row.repetition for row in kept), default=0),
        expected=len(kept),
        created_ns=now,
    )
    store.datasets.add(dataset)
    store.experiments.add(experiment)
    runs = [_run(identity, row, now) for row in kept]
    feedback = [
        one for run, row in zip(runs, kept, strict=True) for one in _feedback(run.id, row, now)
    ]
    store.experiments.write(identity, runs, feedback)
    return experiment.name


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
    return [outcome, *(_feedback_of(run_id, note, now) for note in row.feedback)]


def _feedback_of(run_id: str, note: Mapping[str, Any], now: int) -> Feedback:
    return Feedback(
        run_id=run_id,
        evaluator=note["key"],
        version="",
        key=note["key"],
        status=note["status"],
        score=note["score"],
        passed=note["passed"],
        label=note["label"],
        comment=note["comment"],
        metadata={"lower_is_better": True} if note["lower_is_better"] else {},
        time_ns=now,
    )


def load_experiment(store: Store, name: str) -> Baseline:
    """Return the newest experiment that was saved under a name, as a baseline.

    Raises:
        NotFound: There is none.
    """
    experiment = store.experiments.get(name)
    version = experiment.dataset_version
    tests = {
        one.id: str(one.metadata.get("test", one.id)) for one in store.datasets.examples(version)
    }
    runs = {
        run.id: tests.get(run.example_id, run.example_id)
        for run in store.experiments.runs(experiment.id)
    }
    found: Baseline = {test: {} for test in runs.values()}
    for one in store.experiments.feedback(experiment.id):
        if one.run_id not in runs:
            continue
        figures = found[runs[one.run_id]]
        note = {
            "status": one.status,
            "score": one.score,
            "lower_is_better": bool(one.metadata.get("lower_is_better")),
        }
        if one.evaluator == "pytest" and one.key == OUTCOME:
            figures.setdefault(OUTCOME, BaselineFigure()).scores.append(one.score or 0.0)
        else:
            _add(figures, one.key, note)
    return found
