"""Langfuse: observations from its public API, and scores on them.

API: https://api.reference.langfuse.com, as of the client that Langfuse generates from it
(``langfuse`` 5.0.4): ``/api/public/v2/observations``, ``/api/public/v3/scores`` and
``/api/public/scores``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import BackendError
from ...base.jsontext import dumps, loads
from ...base.text import counted
from ...model import Span
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

__all__ = ["Langfuse"]

_PAGE = 500
_IDS = 1000
# Scores that are requested at once: their ids are in the URL, and 100 is the largest page.
_ASKED = 50
_FIELDS = "core,basic,time,io,metadata,model,usage,prompt,trace_context"
_MISSING = 404
_REFUSED = 422
_NAMESPACE = uuid.UUID("4f1a3a0e-6a55-4f0c-9a39-6d0f2f1f7c11")

Object = Mapping[str, Any]
_METADATA = ("langgraph_node", "lc_agent_name", "tool_call_id", "resourceAttributes", "scope")
"""The keys of an observation's metadata that are needed in full."""
_OBSERVATION = "langfuse.observation"
_TEXTS = {
    "level": "langfuse.observation.level",
    "statusMessage": "langfuse.observation.status_message",
    "model": "langfuse.observation.model.name",
    "completionStartTime": "langfuse.observation.completion_start_time",
    "promptName": "langfuse.observation.prompt.name",
    "promptVersion": "langfuse.observation.prompt.version",
    "traceName": "langfuse.trace.name",
    "tags": "langfuse.trace.tags",
    "userId": "user.id",
    "sessionId": "session.id",
    "environment": "langfuse.environment",
    "release": "langfuse.release",
    "version": "langfuse.version",
}
_JSON = {
    "input": f"{_OBSERVATION}.input",
    "output": f"{_OBSERVATION}.output",
    "modelParameters": f"{_OBSERVATION}.model.parameters",
    "usageDetails": f"{_OBSERVATION}.usage_details",
    "costDetails": f"{_OBSERVATION}.cost_details",
}
_ERROR = 2
_EVENT = "EVENT"


class Langfuse(TraceSource):
    """The Langfuse project of the keys, which is also an `AnnotationTarget`.

    Args:
        api: Its API.
        page: Observations of a page; halved while Langfuse cannot answer.
        clock: The time (ns); observations are read up to it.
    """

    def __init__(
        self, api: JsonApi, *, page: int = _PAGE, clock: Callable[[], int] = time.time_ns
    ) -> None:
        super().__init__(api)
        self._page, self._clock = page, clock

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The project of the keys; see `TraceSource`."""
        projects, _ = self._objects(self._api.get("/api/public/projects"))
        with self._api.reading():
            project_names = sorted(text_of(project["name"]) for project in projects)
        self._check_projects(names, project_names, "no project {}; these keys open")
        return list(names) or project_names

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of the project; see `TraceSource`."""
        now = self._clock()
        pages = cursor_pages(
            self._api, position, now_ns=now, limit=self._page, fetch=self._observations
        )
        for observations, after in pages:
            spans, problems = spans_of(
                observations,
                "observation",
                lambda observation: (
                    _read_observation(observation, project),
                    _has_ended(observation),
                ),
                now_ns=now,
            )
            yield SpanPage(spans, after, problems)

    def write(self, annotations: Sequence[Annotation], report: PushReport) -> Sequence[Annotation]:
        """Write annotations; see `AnnotationTarget`.

        Langfuse replaces a score that has the same id and time. The id comes from the annotation,
        and the time from the observation, so that two pushes at once write one score.
        """
        observations_by_trace: dict[str, Mapping[str, Object]] = {}
        missing: list[Annotation] = []
        for start in range(0, len(annotations), _ASKED):
            batch = annotations[start : start + _ASKED]
            stored = self._stored([_score_id(annotation) for annotation in batch])
            bodies = []
            for annotation in batch:
                previous = stored.get(_score_id(annotation))
                if previous is None and annotation.is_withdrawal:
                    continue
                if previous is not None and _content(previous) == _content(_body(annotation)):
                    report.unchanged += 1
                    continue
                if annotation.trace_id not in observations_by_trace:
                    observations_by_trace[annotation.trace_id] = self._observations_of(
                        annotation.trace_id
                    )
                observation = observations_by_trace[annotation.trace_id].get(annotation.span_id)
                if observation is None:
                    missing.append(annotation)
                    continue
                bodies.append({**_body(annotation), **_place(observation)})
            self._send(bodies, report)
        report.unknown += len(missing)
        return missing

    def _observations(self, request: CursorRequest, once: Collection[int]) -> Listed:
        query = [
            ("fields", _FIELDS),
            ("expandMetadata", ",".join(_METADATA)),
            ("fromStartTime", iso_of(request.begin_ns)),
            ("toStartTime", iso_of(request.end_ns)),
            ("limit", str(request.limit)),
        ]
        if request.cursor:
            query.append(("cursor", request.cursor))
        try:
            answer = self._api.get("/api/public/v2/observations", query, once=once)
        except BackendError as error:
            if error.status == _MISSING:
                raise BackendError(
                    f"{self.url}: this Langfuse has no /api/public/v2/observations; upgrade it",
                    _MISSING,
                ) from None
            raise
        return self._objects(answer)

    def _observations_of(self, trace_id: str) -> Mapping[str, Object]:
        """The observations of a trace by span id; none if Langfuse lacks it."""
        # SDKs from before OpenTelemetry named traces by UUIDs.
        for name in (trace_id, dashed_uuid(trace_id)):
            observation_by_span: dict[str, Object] = {}
            query = [("traceId", name), ("fields", "core,basic"), ("limit", str(_IDS))]
            for observation in self._all_of("/api/public/v2/observations", query):
                observation_by_span[span_id_of(str(observation.get("id")))] = observation
            if observation_by_span:
                return observation_by_span
        return {}

    def _stored(self, ids: Sequence[str]) -> Mapping[str, Object]:
        query = [("id", ",".join(ids)), ("fields", "details"), ("limit", str(len(ids)))]
        return {
            str(score.get("id")): score for score in self._all_of("/api/public/v3/scores", query)
        }

    def _all_of(self, path: str, query: Sequence[tuple[str, str]]) -> Iterator[Object]:
        def page(cursor: str) -> Listed:
            page_query = [*query, ("cursor", cursor)] if cursor else query
            return self._objects(self._api.get(path, page_query))

        return all_elements(self._api, page)

    def _send(self, bodies: Sequence[Object], report: PushReport) -> None:
        if not bodies:
            return
        answer = self._api.post("/api/public/scores", bodies)
        with self._api.reading():
            rejected = int(answer.get("rejected") or 0)
            errors = objects_of(answer.get("errors"), is_optional=True)
        report.written += len(bodies) - rejected
        if rejected:
            reason = self._api.quoted(str(errors[0].get("message") if errors else None))
            raise self._api.error(f"{counted(rejected, 'score')} refused: {reason}", _REFUSED)

    def _objects(self, answer: Any) -> Listed:
        with self._api.reading():
            meta = answer.get("meta")
            cursor = None if meta is None else cursor_of(meta.get("cursor"))
            return objects_of(answer["data"]), cursor or ""


def _score_id(annotation: Annotation) -> str:
    text = "\0".join(
        (annotation.trace_id, annotation.span_id, annotation.name, annotation.identifier)
    )
    return str(uuid.uuid5(_NAMESPACE, text))


def _place(observation: Object) -> dict[str, Any]:
    environment = observation.get("environment")
    # Langfuse reserves names that begin like this, and refuses them.
    is_own = isinstance(environment, str) and not environment.startswith("langfuse")
    return {
        **({"environment": environment} if is_own and environment else {}),
        "traceId": observation.get("traceId"),
        "observationId": observation.get("id"),
        "timestamp": observation.get("startTime"),
    }


def _body(annotation: Annotation) -> dict[str, Any]:
    metadata = {
        **annotation.metadata,
        "identifier": annotation.identifier,
        "annotator_kind": annotation.kind,
    }
    if annotation.label:
        metadata["label"] = annotation.label
    value: float | str
    if annotation.score is not None:
        kind, value = "NUMERIC", annotation.score
    elif annotation.label in ("pass", "fail"):
        kind, value = "BOOLEAN", int(annotation.label == "pass")
    else:
        kind, value = "CATEGORICAL", annotation.label
    return {
        "id": _score_id(annotation),
        "name": annotation.name,
        "dataType": kind,
        "value": value,
        "comment": annotation.explanation or None,
        "metadata": metadata,
    }


def _content(body: Object) -> object:
    # Booleans are written as numbers and read as booleans.
    value = body.get("value")
    value = float(value) if isinstance(value, int) else value
    return body.get("dataType"), value, body.get("comment") or None, body.get("metadata") or {}


def _has_ended(value: Mapping[str, Any]) -> bool:
    """Whether an observation is finished; events have no end."""
    return bool(value.get("endTime")) or value.get("type") == _EVENT


def _read_observation(value: Mapping[str, Any], project: str) -> Span:
    """The span of an observation; it ends at its start if it has no end.

    Args:
        value: The observation.
        project: The project, which names the service if the observation does not.

    Raises:
        ValueError: A field has an invalid value; another error if it is missing or of another type.
    """
    metadata = value.get("metadata") or {}
    start_ns = ns_of(value["startTime"])
    end = value.get("endTime")
    parent = value.get("parentObservationId")
    is_error = value.get("level") == "ERROR"
    resource = _object(metadata.get("resourceAttributes"))
    scope = _object(metadata.get("scope"))
    return Span(
        trace_id_of(value["traceId"]),
        span_id_of(value["id"]),
        parent_id=span_id_of(str(parent)) if parent else "",
        name=value.get("name") or "",
        start_ns=start_ns,
        end_ns=ns_of(end) if end else start_ns,
        status_code=_ERROR if is_error else 0,
        status_message=str(value.get("statusMessage") or "") if is_error else "",
        attributes=_attributes(value, metadata),
        scope=str(scope.get("name") or "langfuse-sdk"),
        resource={"service.name": project, **resource, "langfuse.project": project},
    )


def _attributes(value: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {f"{_OBSERVATION}.type": str(value["type"]).lower()}
    attributes |= {
        name: value[key] for key, name in _TEXTS.items() if value.get(key) not in (None, "")
    }
    attributes |= {
        name: _text(value[key]) for key, name in _JSON.items() if value.get(key) is not None
    }
    for key, item in metadata.items():
        if key not in ("resourceAttributes", "scope"):
            attributes[f"{_OBSERVATION}.metadata.{key}"] = _text(item)
    # Ids that became others are kept.
    attributes["langfuse.observation.id"] = value["id"]
    return attributes


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _object(value: Any) -> Mapping[str, Any]:
    """An object that may be JSON text."""
    if isinstance(value, str):
        try:
            value = loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
