"""LangSmith: runs from its API, and scores as feedback on them.

API: https://api.smith.langchain.com/redoc, as of the client that LangSmith generates from it
(``langsmith`` 0.15.1): ``/api/v2/sessions``, ``/api/v2/runs/query`` and ``/api/v1/feedback``.
Self-hosted LangSmith needs version 0.16.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...base.errors import BackendError
from ...base.text import listed
from ...scoring import Annotation, PushReport
from .cursor_pages import CursorRequest, cursor_pages, spans_of
from .ids import dashed_uuid
from .interface import PullPosition, SpanPage
from .json_api import JsonApi
from .langsmith_spans import SELECTED, read_run, span_ids_of
from .page_lists import Listed, all_elements, cursor_of, objects_of, text_of
from .times import iso_of

__all__ = ["LangSmith"]

_PAGE = 100
_IDS = 1000
_PROJECTS = 100
# Projects where a trace is looked for at once.
_SEARCHED = 20
# Runs whose feedback is requested at once: their ids are in the URL.
_ASKED = 25
_FEEDBACK = 100
_MISSING, _CONFLICT = 404, 409
_EXPERIMENT = "EXPERIMENT"
# LangSmith refuses scores with more decimal places.
_DECIMALS = 4
_EPOCH = "1970-01-02T00:00:00Z"
_NAMESPACE = uuid.UUID("0f6fd6f2-1f0b-4b53-b0a4-5f4f8f6a2d35")

Object = Mapping[str, Any]


class _Project(NamedTuple):
    """A tracing project, or an experiment."""

    id: str
    is_experiment: bool


class LangSmith:
    """A workspace of LangSmith: a `TraceSource` and an `AnnotationTarget`.

    Args:
        api: Its API.
        page: Runs of a page; halved while LangSmith cannot answer.
        clock: The time (ns); runs are read up to it.

    Attributes:
        url: Its base URL without a password.
    """

    def __init__(
        self, api: JsonApi, *, page: int = _PAGE, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self.url = api.url
        self._api, self._page, self._clock = api, page, clock
        self._projects: Mapping[str, _Project] | None = None

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The tracing projects to read; see `TraceSource`.

        LangSmith also has a project for each experiment; these are read only by their names.
        """
        projects = self._known()
        for name in names:
            if name not in projects:
                raise BackendError(
                    f"{self.url}: no project {name!r}; it has {listed(sorted(projects))}"
                )
        return list(names) or sorted(
            name for name, project in projects.items() if not project.is_experiment
        )

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a project; see `TraceSource`."""
        self.projects([project])
        number, now = self._known()[project].id, self._clock()

        def asked(request: CursorRequest) -> Listed:
            return self._runs(
                {
                    "project_ids": [number],
                    "min_start_time": iso_of(request.begin_ns),
                    "max_start_time": iso_of(request.end_ns),
                    "page_size": request.limit,
                    "selects": list(SELECTED),
                    **({"cursor": request.cursor} if request.cursor else {}),
                },
                once=request.once,
            )

        pages = cursor_pages(self._api, position, now_ns=now, limit=self._page, fetch=asked)
        for runs, after in pages:
            spans, problems = spans_of(
                runs, "run", now, lambda run: (read_run(run, project), bool(run.get("end_time")))
            )
            yield SpanPage(spans, after, problems)

    def write(self, annotations: Sequence[Annotation], report: PushReport) -> Sequence[Annotation]:
        """Write annotations; see `AnnotationTarget`.

        The id of the feedback comes from the annotation, so that two pushes at once write one.
        """
        self._projects = None  # there may be new ones
        traces: dict[str, Mapping[str, Object]] = {}
        annotated_runs: list[tuple[Annotation, Object]] = []
        missing: list[Annotation] = []
        for annotation in annotations:
            if annotation.trace_id not in traces:
                traces[annotation.trace_id] = self._runs_of(annotation.trace_id)
            run = traces[annotation.trace_id].get(annotation.span_id)
            if run is None:
                missing += [] if annotation.is_withdrawal else [annotation]
            else:
                annotated_runs.append((annotation, run))
        for start in range(0, len(annotated_runs), _ASKED):
            batch = annotated_runs[start : start + _ASKED]
            stored = self._stored(sorted({run["id"] for _, run in batch}))
            for annotation, run in batch:
                body = _body(annotation, run)
                if not annotation.is_withdrawal:
                    self._write(body, stored, report)
                elif body["id"] in stored:
                    self._remove(body["id"])
                    report.written += 1
        report.unknown += len(missing)
        return missing

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _known(self) -> Mapping[str, _Project]:
        if self._projects is None:
            sessions = list(all_elements(self._api, self._sessions))
            with self._api.reading():
                self._projects = {
                    text_of(session["name"]): _project(session) for session in sessions
                }
        return self._projects

    def _sessions(self, cursor: str) -> Listed:
        query = [("page_size", str(_PROJECTS)), *([("cursor", cursor)] if cursor else [])]
        return self._items(self._asked("GET", "/api/v2/sessions", query))

    def _runs(self, body: Object, *, once: Any = ()) -> Listed:
        return self._items(self._asked("POST", "/api/v2/runs/query", (), body, once=once))

    def _asked(
        self, method: str, path: str, query: Any = (), body: Any = None, *, once: Any = ()
    ) -> Any:
        try:
            return self._api.request(method, path, query, body, once=once)
        except BackendError as error:
            if error.status == _MISSING:
                raise BackendError(
                    f"{self.url}: this LangSmith has no {path}; upgrade it to 0.16", _MISSING
                ) from None
            raise

    def _runs_of(self, trace_id: str) -> Mapping[str, Object]:
        """The runs of a trace by the span ids that they may have; none if it is unknown."""
        numbers = [project.id for project in self._known().values()]
        for start in range(0, len(numbers), _SEARCHED):
            body = {
                "project_ids": numbers[start : start + _SEARCHED],
                "trace_id": dashed_uuid(trace_id),
                "min_start_time": _EPOCH,
                "page_size": _IDS,
                "selects": ["ID", "TRACE_ID", "PROJECT_ID", "START_TIME"],
            }
            run_by_span: dict[str, Object] = {}
            for run in all_elements(self._api, partial(self._runs_page, body)):
                with self._api.reading():
                    run_by_span |= dict.fromkeys(span_ids_of(text_of(run["id"])), run)
            if run_by_span:
                return run_by_span
        return {}

    def _runs_page(self, body: Object, cursor: str) -> Listed:
        return self._runs({**body, "cursor": cursor} if cursor else body)

    def _stored(self, runs: Sequence[str]) -> dict[str, Object]:
        """The feedback of runs by its id."""
        feedback_by_id: dict[str, Object] = {}
        while True:
            query = [*(("run", run_id) for run_id in runs)]
            query += [("limit", str(_FEEDBACK)), ("offset", str(len(feedback_by_id)))]
            with self._api.reading():
                page = objects_of(self._api.get("/api/v1/feedback", query))
            before = len(feedback_by_id)
            feedback_by_id |= {str(feedback.get("id")): feedback for feedback in page}
            if len(page) < _FEEDBACK or len(feedback_by_id) == before:
                return feedback_by_id

    def _write(self, body: Object, stored: Mapping[str, Object], report: PushReport) -> None:
        stored_body = stored.get(body["id"])
        if stored_body is not None and _content(stored_body) == _content(body):
            report.unchanged += 1
            return
        if stored_body is None:
            try:
                self._api.post("/api/v1/feedback", body)
            except BackendError as error:
                # Another push wrote it since it was requested.
                if error.status != _CONFLICT:
                    raise
                self._change(body)
        else:
            self._change(body)
        report.written += 1

    def _remove(self, name: str) -> None:
        """Remove a feedback: a change cannot take its score away."""
        try:
            self._api.request("DELETE", f"/api/v1/feedback/{name}")
        except BackendError as error:
            if error.status != _MISSING:  # else another push removed it
                raise

    def _change(self, body: Object) -> None:
        changed = {key: body[key] for key in ("score", "value", "comment")}
        self._api.request("PATCH", f"/api/v1/feedback/{body['id']}", body=changed)

    def _items(self, answer: Any) -> Listed:
        with self._api.reading():
            return objects_of(answer["items"]), cursor_of(answer.get("next_cursor"))


def _project(session: Object) -> _Project:
    is_experiment = session.get("type") == _EXPERIMENT or bool(session.get("reference_dataset_id"))
    return _Project(text_of(session["id"]), is_experiment)


def _body(annotation: Annotation, run: Object) -> dict[str, Any]:
    text = "\0".join((str(run["id"]), annotation.name, annotation.identifier))
    return {
        "id": str(uuid.uuid5(_NAMESPACE, text)),
        "run_id": run["id"],
        "trace_id": run.get("trace_id"),
        "session_id": run.get("project_id"),
        "start_time": run.get("start_time"),
        "key": annotation.name,
        "score": None if annotation.score is None else round(annotation.score, _DECIMALS),
        "value": annotation.label or None,
        "comment": annotation.explanation or None,
        "feedback_source": {
            "type": "model" if annotation.kind == "LLM" else "api",
            "metadata": {**annotation.metadata, "identifier": annotation.identifier},
        },
        # By default, feedback moves a trace to a longer and dearer retention.
        "extend_trace_retention": False,
    }


def _content(body: Object) -> object:
    return body.get("score"), body.get("value") or None, body.get("comment") or None
