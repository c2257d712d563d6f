"""Pull the traces of a backend into a store, and push the store's scores to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from ...base.errors import BackendError
from ...base.jsontext import dumps, restore
from ...base.text import listed
from ...model import EVERYTHING, Score, Selection, Span, WriteResult
from ...scoring import Annotation, AnnotationTarget, PushReport, annotation_of, withdrawal_of
from ...store import Store
from .json_api import JsonApi

__all__ = ["PullPosition", "PullReport", "SpanPage", "TraceSource", "pull", "push"]

PullPosition = Mapping[str, Any]
"""How far a project was read: ``since_ns``, and entries that only its backend understands."""
_MAX_PROBLEMS = 1000
_PUSHED = 200


@dataclass(frozen=True, slots=True)
class SpanPage:
    """A page of spans.

    Attributes:
        spans: The spans.
        position: The position after them; a later pull continues there.
        problems: One line for each part that could not be read.
    """

    spans: Sequence[Span]
    position: PullPosition
    problems: Sequence[str] = ()


class TraceSource(ABC):
    """A backend that traces are read from.

    Args:
        api: Its API.

    Attributes:
        url: Its base URL without a password, fit for messages.
    """

    def __init__(self, api: JsonApi) -> None:
        self.url = api.url
        self._api = api

    @abstractmethod
    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The projects to read.

        Args:
            names: The names from the user; all projects when empty.

        Raises:
            BackendError: A name is unknown, or the backend refuses the request.
        """

    @abstractmethod
    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a project from a position on.

        Args:
            project: One of `projects`.
            position: The position of an earlier page, or only ``since_ns``.

        Raises:
            BackendError: The backend refuses a request, or its answer cannot be read.
        """

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _check_projects(
        self, names: Sequence[str], known: Collection[str], about: str = "no project {}; it has"
    ) -> None:
        """Check the names of projects from the user.

        Args:
            names: The names.
            known: The names of all projects.
            about: The beginning of the error, with a place for the name.

        Raises:
            BackendError: A name is unknown.
        """
        for name in names:
            if name not in known:
                problem = about.format(repr(name))
                raise BackendError(f"{self.url}: {problem} {listed(sorted(known))}")


@dataclass
class PullReport:
    """The outcome of a pull.

    Attributes:
        project: The project of the backend.
        spans: The spans that were read.
        written: How many of them were stored.
        problems: One line for each part that could not be read, up to 1,000.
    """

    project: str
    spans: int = 0
    written: WriteResult = field(default_factory=WriteResult)
    problems: list[str] = field(default_factory=list)


def pull(
    store: Store,
    source: TraceSource,
    since_ns: int,
    projects: Sequence[str] = (),
    *,
    on_project: Callable[[PullReport], None] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> list[PullReport]:
    """Store the spans of a backend that arrived there since the last pull.

    The position after each page is committed together with its spans, so that an interrupted pull
    continues after the last page that was stored.

    Args:
        store: The store.
        source: The backend.
        since_ns: The start of the oldest spans of a first pull. A later pull continues where the
            last pull ended, unless its `since_ns` is earlier than the first pull's.
        projects: The projects to read; all when empty.
        on_project: Called when a project is begun, with its report, which is filled later.
        on_progress: Called with the number of spans that were read.

    Raises:
        BackendError: The backend refuses a request. The pages before it are stored.
    """
    reports: list[PullReport] = []
    for project in source.projects(projects):
        report = PullReport(project)
        reports.append(report)
        if on_project:
            on_project(report)
        key = f"{source.url} {project}"
        for page in source.pages(project, _begin(store, key, since_ns)):
            report.spans += len(page.spans)
            report.problems += page.problems[: _MAX_PROBLEMS - len(report.problems)]
            position = dumps(page.position)
            report.written.add(store.spans.commit_pulled(page.spans, key, position))
            if on_progress:
                on_progress(sum(pulled.spans for pulled in reports), None)
    return reports


def _begin(store: Store, key: str, since_ns: int) -> PullPosition:
    stored = store.spans.pull_position(key)
    position: PullPosition = restore(stored) if stored else {}
    return position if position and position["since_ns"] <= since_ns else {"since_ns": since_ns}


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
    while page := list(islice(runs, _PUSHED)):
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
