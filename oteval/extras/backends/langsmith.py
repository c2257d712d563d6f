"""LangSmith: runs from its API, and scores as feedback on them.

API: https://api.smith.langchain.com/redoc, as of the client that LangSmith generates from it
(``langsmith`` 0.15.1): ``/api/v2/sessions``, ``/api/v2/runs/query`` and ``/api/v1/feedback``.
Self-hosted LangSmith needs version 0.16.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...base.errors import BackendError
from ...base.jsontext import dumps
from ...model import Event, Span
from ...scoring import Annotation, PushReport
from .json_api import JsonApi
from .page_lists import (
    CursorRequest,
    Listed,
    all_elements,
    cursor_of,
    cursor_pages,
    objects_of,
    spans_of,
    text_of,
)
from .span_fields import dashed_uuid, iso_of, ns_of, span_id_of, trace_id_of
from .transfer import PullPosition, SpanPage, TraceSource

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
_SELECTED = (
    *("ID", "NAME", "RUN_TYPE", "STATUS", "START_TIME", "END_TIME", "ERROR", "EXTRA", "METADATA"),
    *("INPUTS", "OUTPUTS", "PARENT_RUN_IDS", "TRACE_ID", "THREAD_ID", "TAGS"),
    *("PROMPT_TOKENS", "COMPLETION_TOKENS", "TOTAL_TOKENS"),
)
"""The fields of runs to request."""
_METADATA = "langsmith.metadata"
_TOKENS = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "total_tokens": "gen_ai.usage.total_tokens",
}
_OK, _ERROR = 1, 2


class _Project(NamedTuple):
    """A tracing project, or an experiment."""

    id: str
    is_experiment: bool


class LangSmith(TraceSource):
    """A workspace of LangSmith, which is also an `AnnotationTarget`.

    Args:
        api: Its API.
        page: Runs of a page; halved while LangSmith cannot answer.
        clock: The time (ns); runs are read up to it.
    """

    def __init__(
        self, api: JsonApi, *, page: int = _PAGE, clock: Callable[[], int] = time.time_ns
    ) -> None:
        super().__init__(api)
        self._page, self._clock = page, clock
        self._projects: Mapping[str, _Project] | None = None

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The tracing projects to read; see `TraceSource`.

        LangSmith also has a project for each experiment; these are read only by their names.
        """
        projects = self._known()
        self._check_projects(names, projects)
        return list(names) or sorted(
            name for name, project in projects.items() if not project.is_experiment
        )

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a project; see `TraceSource`."""
        self.projects([project])
        number, now = self._known()[project].id, self._clock()

        def fetch(request: CursorRequest, once: Collection[int]) -> Listed:
            return self._runs(
                {
                    "project_ids": [number],
                    "min_start_time": iso_of(request.begin_ns),
                    "max_start_time": iso_of(request.end_ns),
                    "page_size": request.limit,
                    "selects": list(_SELECTED),
                    **({"cursor": request.cursor} if request.cursor else {}),
                },
                once=once,
            )

        pages = cursor_pages(self._api, position, now_ns=now, limit=self._page, fetch=fetch)
        for runs, after in pages:
            spans, problems = spans_of(
                runs,
                "run",
                lambda run: (_read_run(run, project), bool(run.get("end_time"))),
                now_ns=now,
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
                    run_by_span |= dict.fromkeys(_span_ids_of(text_of(run["id"])), run)
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


def _span_ids_of(run_id: str) -> tuple[str, str]:
    """The span ids of a run: by `_read_run`, and by LangSmith's own export."""
    return span_id_of(run_id), run_id.replace("-", "").lower()[:16]


def _read_run(value: Mapping[str, Any], project: str) -> Span:
    """The span of a run; it ends at its start if it has no end.

    Args:
        value: The run.
        project: The project, which names the service.

    Raises:
        ValueError: A field has an invalid value; another error if it is missing or of another type.
    """
    start_ns = ns_of(value["start_time"])
    end_ns = ns_of(value["end_time"]) if value.get("end_time") else start_ns
    parents = value.get("parent_run_ids") or ()
    error = value.get("error")
    is_error = bool(error) or value.get("status") == "ERROR"
    return Span(
        trace_id_of(value["trace_id"]),
        span_id_of(value["id"]),
        parent_id=span_id_of(parents[-1]) if parents else "",
        name=str(value.get("name") or ""),
        start_ns=start_ns,
        end_ns=end_ns,
        status_code=_ERROR if is_error else _OK,
        attributes=_attributes(value),
        events=(_exception(str(error), end_ns),) if error else (),
        scope="langsmith",
        resource={"service.name": project, "langsmith.project": project},
    )


def _attributes(value: Mapping[str, Any]) -> dict[str, Any]:
    extra = value.get("extra") or {}
    metadata = {**(extra.get("metadata") or {}), **(value.get("metadata") or {})}
    name, kind = str(value.get("name") or ""), str(value["run_type"]).lower()
    attributes: dict[str, Any] = {
        "langsmith.span.kind": kind,
        "langsmith.trace.name": name,
        "langsmith.run.id": value["id"],
    }
    attributes |= {
        f"{_METADATA}.{key}": _plain(item) for key, item in metadata.items() if item is not None
    }
    if value.get("thread_id"):
        attributes.setdefault(f"{_METADATA}.thread_id", str(value["thread_id"]))
    attributes |= {name: value[key] for key, name in _TOKENS.items() if value.get(key) is not None}
    for key, attribute in (("inputs", "gen_ai.prompt"), ("outputs", "gen_ai.completion")):
        if value.get(key) is not None:
            attributes[attribute] = _text(value[key])
    if model := metadata.get("ls_model_name"):
        attributes["gen_ai.request.model"] = str(model)
    if tools := (extra.get("invocation_params") or {}).get("tools"):
        attributes["gen_ai.tool.definitions"] = _text(tools)
    if value.get("tags"):
        attributes["langsmith.span.tags"] = ", ".join(map(str, value["tags"]))
    if kind == "tool":
        attributes["gen_ai.tool.name"] = name
        call_id = extra.get("tool_call_id") or metadata.get("tool_call_id")
        if call_id is not None:
            attributes["gen_ai.tool.call.id"] = str(call_id)
    return attributes


def _exception(reason: str, time_ns: int) -> Event:
    return Event("exception", time_ns, {"exception.type": "Exception", "exception.message": reason})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _plain(value: Any) -> str | bool | int | float:
    return value if isinstance(value, (str, bool, int, float)) else dumps(value)
