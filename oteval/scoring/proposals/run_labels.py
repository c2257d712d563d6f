"""Which runs are good: by people's labels, or by the rewards that came with the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...base.errors import NotFound
from ...base.text import counted, listed
from ...ingest import FILE_VERSION

if TYPE_CHECKING:
    from ...store import Store

__all__ = ["RunLabels", "labels_of_runs"]

_REWARD = "reward"
_GOOD = 1.0


@dataclass(frozen=True)
class RunLabels:
    """Labels of runs.

    Attributes:
        by_run: Whether a run is good, by its id.
        origin: Where the labels are from, for people; "" without labels.
    """

    by_run: dict[str, bool]
    origin: str = ""


def labels_of_runs(store: Store, run_ids: Sequence[str], evaluator: str = "") -> RunLabels:
    """The labels of runs: a person's, or else the score of that name in the file of the run.

    Args:
        store: The store.
        run_ids: The runs.
        evaluator: The evaluator that people labelled the runs for, or the name of a score in files.
            By default labels for all evaluators count, or those for the only evaluator that has
            any, and the score ``reward``.

    Raises:
        NotFound: No run has a label for the evaluator, or a score of that name.
    """
    ids = set(run_ids)
    name = evaluator or _labelled_evaluator(store)
    by_people = _people(store, name, ids)
    by_file = _rewards(store, evaluator or _REWARD, ids)
    if evaluator and not (by_people or by_file):
        known = sorted(set(store.label_queue.counts()) - {""})
        hint = f"; labels are for {listed(known)}" if known else ""
        raise NotFound(f"no run has a label for {evaluator!r}, or such a score in its file{hint}")
    parts = []
    if by_people:
        about = f" for {name}" if name else ""
        parts.append(f"{counted(len(by_people), 'label')} by people{about}")
    rewards = len(by_file.keys() - by_people.keys())
    if rewards:
        parts.append(f"{counted(rewards, 'score')} {evaluator or _REWARD!r} of files")
    return RunLabels({**by_file, **by_people}, " and ".join(parts))


def _labelled_evaluator(store: Store) -> str:
    """The only evaluator with labels; "" if several have any, or labels are for all."""
    counts = store.label_queue.counts()
    return next(iter(counts)) if len(counts) == 1 else ""


def _people(store: Store, evaluator: str, ids: set[str]) -> dict[str, bool]:
    """The verdict of most people on each run; none where they are divided."""
    labels = store.labels.of(evaluator)
    if not labels:
        return {}
    from ..experiments.calibration import majority_labels  # experiments take long to import

    people, _, _ = majority_labels(labels)
    return {run_id: passed for run_id, passed in people.items() if run_id in ids}


def _rewards(store: Store, name: str, ids: set[str]) -> dict[str, bool]:
    """The verdicts of files; a score without a verdict passes from 1 on, as in tau-bench."""
    scores = store.scores.by(name, FILE_VERSION, ids)
    verdicts = {}
    for run_id, score in scores.items():
        if score.passed is not None:
            verdicts[run_id] = score.passed
        elif score.score is not None:
            verdicts[run_id] = score.score >= _GOOD
    return verdicts
