"""Pull the traces of a backend into a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...base.jsontext import dumps, restore
from ...model import WriteResult
from ...store import Store
from .interface import PullPosition, TraceSource

__all__ = ["PullReport", "pull"]

_MAX_PROBLEMS = 1000


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
