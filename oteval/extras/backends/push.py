"""Push the scores of a store to a backend as annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from ...model import EVERYTHING, Score, Selection
from ...scoring import Annotation, AnnotationTarget, PushReport, annotation_of, withdrawal_of
from ...store import Store

__all__ = ["push"]

_PAGE = 200


def push(
    store: Store,
    target: AnnotationTarget,
    selection: Selection = EVERYTHING,
    *,
    evaluators: Sequence[str] = (),
    on_progress: Callable[[int, int | None], None] | None = None,
) -> PushReport:
    """Write the newest score of each evaluator on each run as an annotation of its span.

    A score without a verdict is counted and left out: an error is never a 0. A verdict that was
    written before and no longer counts is withdrawn, because the run has changed since, or the last
    attempt returned no verdict.

    Args:
        store: The store.
        target: The backend.
        selection: The runs whose scores are written.
        evaluators: Only scores by these evaluators; by all when empty.
        on_progress: Called with the number of scores done.

    Raises:
        BackendError: The backend refuses a request. Writing again repeats nothing.
    """
    report = PushReport()
    done = 0
    runs = store.trajectories.read(selection)
    while page := list(islice(runs, _PAGE)):
        scores_by_run = store.scores.of([run.id for run in page])
        scores = [score for run in page for score in scores_by_run[run.id]]
        scores = [score for score in scores if not evaluators or score.evaluator in evaluators]
        withdrawn = [
            _withdrawal(verdict, scores_by_run[verdict.trajectory_id])
            for verdict in store.scores.withdrawn([run.id for run in page])
            if not evaluators or verdict.evaluator in evaluators
        ]
        target.write([*_annotations(scores, report), *withdrawn], report)
        done += len(scores)
        if on_progress:
            on_progress(done, None)
    return report


def _annotations(scores: Iterable[Score], report: PushReport) -> Iterator[Annotation]:
    for score in scores:
        if score.status == "error":
            report.errors += 1
        elif score.status == "not_evaluated":
            report.not_evaluated += 1
        else:
            yield annotation_of(score)


def _withdrawal(verdict: Score, current: Sequence[Score]) -> Annotation:
    """The withdrawal of a verdict; it names the score that the run has now."""
    score = next(
        (candidate for candidate in current if candidate.evaluator == verdict.evaluator), None
    )
    if score is None:
        return withdrawal_of(verdict, "the run has changed since, and was not scored again")
    return withdrawal_of(replace(score, version=verdict.version))
