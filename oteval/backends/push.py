"""Push the scores of a store to a backend as annotations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from ..model import Score
from ..selection import EVERYTHING, Selection
from ..store import Store
from .interface import IDENTIFIER, Annotation, AnnotationTarget, PushReport

__all__ = ["annotation_of", "push"]

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

    A score without a verdict is counted and left out: an error is never a 0.

    Args:
        store: The store.
        target: The backend.
        selection: The runs whose scores are written.
        evaluators: Only scores by these; by all when empty.
        on_progress: Called with the number of scores done.

    Raises:
        BackendError: The backend refuses a request. Writing again repeats nothing.
    """
    report = PushReport()
    done = 0
    runs = store.trajectories.read(selection)
    while page := list(islice(runs, _PAGE)):
        found = store.scores.of([run.id for run in page])
        scores = [one for run in page for one in found[run.id]]
        scores = [one for one in scores if not evaluators or one.evaluator in evaluators]
        target.write(list(_annotations(scores, report)), report)
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


def annotation_of(score: Score) -> Annotation:
    """Return the annotation for a score whose status is ``ok``."""
    number = score.score if score.score is not None and math.isfinite(score.score) else None
    label = score.label or ("" if score.passed is None else "pass" if score.passed else "fail")
    # Judges record which model answered.
    return Annotation(
        trace_id=score.trace_id,
        span_id=score.span_id,
        name=score.evaluator,
        identifier=f"{IDENTIFIER}{score.version}",
        kind="LLM" if "model" in score.metadata else "CODE",
        score=number,
        label=label,
        explanation=score.comment,
        metadata={"version": score.version, "trajectory_id": score.trajectory_id},
    )
