"""Arize Phoenix: spans from its REST API, and scores as span annotations.

API: https://arize.com/docs/phoenix/sdk-api-reference/rest-api. Spans are read in the order of their
insertion into Phoenix. So a later pull finds all newer spans, whenever they began.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from ...base.errors import BackendError
from ...base.text import listed
from ...model import Span
from ...scoring import Annotation, PushReport
from .interface import PullPosition, SpanPage
from .json_api import JsonApi, Query
from .page_lists import Listed, PageGuard, all_elements, cursor_of, objects_of, text_of
from .phoenix_spans import read_span
from .span_checks import require_valid

__all__ = ["Phoenix"]

_PAGE = 500
_PROJECTS = 200
# Spans whose annotations are requested at once: their ids are in the URL.
_ASKED = 100
_ANNOTATIONS = 10_000
# A smaller page may succeed: the answer is too large, or takes too long.
_SMALLER = frozenset({408, 413, 500, 504})
_MISSING = 404
_VERSION = "x-phoenix-server-version"

Key = tuple[str, str, str]


class Phoenix:
    """A Phoenix server: a `TraceSource` and an `AnnotationTarget`.

    Args:
        api: Its API.
        page: Spans of a page; halved while Phoenix cannot answer.

    Attributes:
        url: Its base URL without a password.
    """

    def __init__(self, api: JsonApi, *, page: int = _PAGE) -> None:
        self.url = api.url
        self._api, self._page = api, page
        self._projects: Sequence[str] | None = None

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The projects to read; see `TraceSource`."""
        if self._projects is None:
            projects = list(self._listed("/v1/projects", ()))
            with self._api.reading():
                self._projects = [text_of(project["name"]) for project in projects]
        for name in names:
            if name not in self._projects:
                raise BackendError(
                    f"{self.url}: no project {name!r}; it has {listed(sorted(self._projects))}"
                )
        return list(names) or self._projects

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a project; see `TraceSource`."""
        since = datetime.fromtimestamp(position["since_ns"] // 1_000_000_000, UTC).isoformat()
        cursor, newest_id = position.get("cursor"), position.get("seen")
        guard = PageGuard(self._api)
        while True:
            query = [("sort", "id"), ("order", "asc"), ("start_time", since)]
            answer = self._page_of(project, [*query, ("cursor", cursor)] if cursor else query)
            listed_spans, following = self._listed_page(answer)
            self._check_order(listed_spans)
            # The cursor is inclusive: the last span of the page before comes again.
            new = [span for span in listed_spans if span.get("id") != newest_id]
            guard.check(new, following)
            spans, problems = _spans(new, project)
            newest_id = listed_spans[-1].get("id") if listed_spans else newest_id
            cursor = following or newest_id
            if spans or problems:
                after = {"since_ns": position["since_ns"], "cursor": cursor, "seen": newest_id}
                yield SpanPage(spans, after, problems)
            if not following:
                return

    def _page_of(self, project: str, query: Query) -> Any:
        path = f"/v1/projects/{quote(project, safe='')}/spans"
        while True:
            try:
                page_query = [*query, ("limit", str(self._page))]
                return self._api.get(path, page_query, once=_SMALLER if self._page > 1 else ())
            except BackendError as error:
                if error.status not in _SMALLER or self._page == 1:
                    raise
                self._page //= 2

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

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

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


def _spans(listed_spans: Sequence[Mapping[str, Any]], project: str) -> tuple[list[Span], list[str]]:
    spans, problems = [], []
    for value in listed_spans:
        try:
            span = read_span(value, project)
            require_valid(span)
            spans.append(span)
        except ValueError as error:
            problems.append(f"span {value.get('id')} cannot be read ({error}); skipped")
    return spans, problems


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
