"""Arize Phoenix: spans from its REST API, and scores as span annotations.

API: https://arize.com/docs/phoenix/sdk-api-reference/rest-api. Spans are read in the order of their
insertion into Phoenix. So a later pull finds all newer spans, whenever they began.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from ...base.errors import BackendError
from ...base.jsontext import dumps
from ...model import Event, Span
from ...scoring import Annotation, PushReport
from .json_api import JsonApi, Query
from .page_lists import (
    Listed,
    PageGuard,
    all_elements,
    cursor_of,
    objects_of,
    spans_of,
    text_of,
    unless_too_large,
)
from .span_fields import ns_of
from .transfer import PullPosition, SpanPage, TraceSource

__all__ = ["Phoenix"]

_PAGE = 500
_PROJECTS = 200
# Spans whose annotations are requested at once: their ids are in the URL.
_ASKED = 100
_ANNOTATIONS = 10_000
_MISSING = 404
_VERSION = "x-phoenix-server-version"

Key = tuple[str, str, str]
_PROJECT = "openinference.project.name"
_KIND = "openinference.span.kind"
_STATUS = {"UNSET": 0, "OK": 1, "ERROR": 2}
# Attributes whose JSON text Phoenix parses, and returns as several attributes below their name.
_PARSED = ("metadata", "tool.parameters", "llm.prompt_template.variables")


class Phoenix(TraceSource):
    """A Phoenix server, which is also an `AnnotationTarget`.

    Args:
        api: Its API.
        page: Spans of a page; halved while Phoenix cannot answer.
    """

    def __init__(self, api: JsonApi, *, page: int = _PAGE) -> None:
        super().__init__(api)
        self._page = page
        self._projects: Sequence[str] | None = None

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The projects to read; see `TraceSource`."""
        if self._projects is None:
            projects = list(self._listed("/v1/projects", ()))
            with self._api.reading():
                self._projects = [text_of(project["name"]) for project in projects]
        self._check_projects(names, self._projects)
        return list(names) or self._projects

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a project; see `TraceSource`."""
        since = datetime.fromtimestamp(position["since_ns"] // 1_000_000_000, UTC).isoformat()
        cursor, newest_id = position.get("cursor"), position.get("seen")
        guard = PageGuard(self._api)
        while True:
            query = [("sort", "id"), ("order", "asc"), ("start_time", since)]
            page_query = [*query, ("cursor", cursor)] if cursor else query
            listed_spans, following = self._page_of(project, page_query)
            self._check_order(listed_spans)
            # The cursor is inclusive: the last span of the page before comes again.
            new = [span for span in listed_spans if span.get("id") != newest_id]
            guard.check(new, following)
            spans, problems = spans_of(new, "span", lambda span: (_read_span(span, project), True))
            newest_id = listed_spans[-1].get("id") if listed_spans else newest_id
            cursor = following or newest_id
            if spans or problems:
                after = {"since_ns": position["since_ns"], "cursor": cursor, "seen": newest_id}
                yield SpanPage(spans, after, problems)
            if not following:
                return

    def _page_of(self, project: str, query: Query) -> Listed:
        path = f"/v1/projects/{quote(project, safe='')}/spans"

        def listed_page(once: Collection[int]) -> Listed:
            page_query = [*query, ("limit", str(self._page))]
            return self._listed_page(self._api.get(path, page_query, once=once))

        while (page := unless_too_large(listed_page, can_shrink=self._page > 1)) is None:
            self._page //= 2
        return page

    def _check_order(self, listed_spans: Sequence[Mapping[str, Any]]) -> None:
        numbers = [_row_number(str(span.get("id"))) for span in listed_spans]
        if numbers != sorted(numbers):
            version = self._api.last_headers.get(_VERSION, "of this version")
            raise BackendError(
                f"{self.url}: Phoenix {version} cannot list spans from the oldest; upgrade Phoenix"
            )

    def write(self, annotations: Sequence[Annotation], report: PushReport) -> Sequence[Annotation]:
        """Write annotations; see `AnnotationTarget`."""
        self._projects = None  # there may be new ones
        missing: list[Annotation] = []
        for start in range(0, len(annotations), _ASKED):
            batch = annotations[start : start + _ASKED]
            stored = self._stored(batch)
            changed = []
            for annotation in batch:
                stored_content = stored.get(_key(_body(annotation)))
                if stored_content is None and annotation.is_withdrawal:
                    continue
                if stored_content == _content(_body(annotation)):
                    report.unchanged += 1
                else:
                    changed.append(annotation)
            missing += self._send(changed, report)
        report.unknown += len(missing)
        return missing

    def _stored(self, annotations: Sequence[Annotation]) -> dict[Key, object]:
        """The content of the annotations that Phoenix has already, by their key."""
        span_ids = sorted({annotation.span_id for annotation in annotations})
        query = [("span_ids", span_id) for span_id in span_ids]
        identifiers = sorted({annotation.identifier for annotation in annotations})
        query += [("identifier", identifier) for identifier in identifiers]
        content_by_key: dict[Key, object] = {}
        for project in self.projects(()):
            path = f"/v1/projects/{quote(project, safe='')}/span_annotations"
            for body in self._listed(path, query, _ANNOTATIONS):
                with self._api.reading():
                    content_by_key[_key(body)] = _content(body)
        return content_by_key

    def _send(self, annotations: Sequence[Annotation], report: PushReport) -> list[Annotation]:
        """Send annotations; return the annotations whose span Phoenix lacks.

        Phoenix refuses all of a request if it lacks the span of one annotation.
        """
        if not annotations:
            return []
        try:
            bodies = [_body(annotation) for annotation in annotations]
            self._api.post("/v1/span_annotations", {"data": bodies}, [("sync", "true")])
        except BackendError as error:
            if error.status != _MISSING:
                raise
            if len(annotations) == 1:
                return list(annotations)
            half = len(annotations) // 2
            first = self._send(annotations[:half], report)
            return first + self._send(annotations[half:], report)
        report.written += len(annotations)
        return []

    def _listed(
        self, path: str, query: Query, limit: int = _PROJECTS
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the elements of all pages of a list."""

        def page(cursor: str) -> Listed:
            page_query = [*query, ("limit", str(limit))]
            return self._listed_page(
                self._api.get(path, [*page_query, ("cursor", cursor)] if cursor else page_query)
            )

        return all_elements(self._api, page)

    def _listed_page(self, answer: Any) -> Listed:
        with self._api.reading():
            return objects_of(answer["data"]), cursor_of(answer.get("next_cursor"))


def _row_number(name: str) -> int:
    """The number in a Relay id such as ``U3BhbjoxMg==``, which is ``Span:12``."""
    try:
        return int(base64.b64decode(name).decode().rpartition(":")[2])
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return 0


def _body(annotation: Annotation) -> dict[str, Any]:
    return {
        "span_id": annotation.span_id,
        "name": annotation.name,
        "annotator_kind": annotation.kind,
        "identifier": annotation.identifier,
        "result": {
            "score": annotation.score,
            "label": annotation.label or None,
            "explanation": annotation.explanation or None,
        },
        "metadata": dict(annotation.metadata),
    }


def _key(body: Mapping[str, Any]) -> Key:
    return str(body["span_id"]), str(body["name"]), str(body["identifier"])


def _content(body: Mapping[str, Any]) -> object:
    result = body.get("result") or {}
    return (
        *(body.get("annotator_kind"), result.get("score"), result.get("label") or None),
        *(result.get("explanation") or None, body.get("metadata") or {}),
    )


def _read_span(value: Mapping[str, Any], project: str) -> Span:
    """The span that an object of the API describes.

    Args:
        value: The object, an element of ``data``.
        project: The project, which becomes the service's name.

    Raises:
        ValueError: A field has an invalid value; another error if it is missing or of another type.
    """
    context = value["context"]
    attributes = _restored(value.get("attributes") or {})
    kind = value.get("span_kind")
    if kind and kind != "UNKNOWN":
        attributes[_KIND] = kind
    return Span(
        str(context["trace_id"]),
        str(context["span_id"]),
        parent_id=value.get("parent_id") or "",
        name=value.get("name") or "",
        start_ns=ns_of(value["start_time"]),
        end_ns=ns_of(value["end_time"]),
        status_code=_STATUS.get(str(value.get("status_code")), 0),
        status_message=value.get("status_message") or "",
        attributes=attributes,
        events=tuple(map(_event, value.get("events") or ())),
        resource={"service.name": project, _PROJECT: project},
    )


def _event(value: Mapping[str, Any]) -> Event:
    return Event(
        value.get("name") or "", ns_of(value["timestamp"]), dict(value.get("attributes") or {})
    )


def _restored(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with the JSON texts that Phoenix parsed."""
    restored: dict[str, Any] = {}
    trees: dict[str, dict[str, Any]] = {}
    for key, value in attributes.items():
        name = next((prefix for prefix in _PARSED if key.startswith(f"{prefix}.")), None)
        if name is None:
            restored[key] = value
        else:
            _put(trees.setdefault(name, {}), key[len(name) + 1 :].split("."), value)
    for name, tree in trees.items():
        restored.setdefault(name, dumps(_with_lists(tree)))
    return restored


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a value of a tree; a path through a plain value keeps its dots as one key."""
    *branches, leaf = path
    for depth, name in enumerate(branches):
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):
            tree[".".join(path[depth:])] = value
            return
        tree = below
    tree[leaf] = value


def _with_lists(value: Any) -> Any:
    """A tree with lists for the objects whose keys are 0, 1, 2 and so on."""
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(item) for key, item in value.items()}
    if inner and set(inner) == {str(index) for index in range(len(inner))}:
        return [inner[str(index)] for index in range(len(inner))]
    return inner
