"""MLflow: traces from its tracking server's REST API, and scores as feedback on spans.

API: https://mlflow.org/docs/latest/api_reference/rest-api.html, and ``mlflow/server/handlers.py``
of MLflow 3.17. The API lists traces by the time when they began.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...base.errors import BackendError
from ...ingest import decode_json
from ...model import Span
from ...scoring import IDENTIFIER, Annotation, PushReport
from .json_api import JsonApi
from .page_lists import (
    Listed,
    PageGuard,
    all_elements,
    begin_ns,
    cursor_of,
    objects_of,
    position_at,
    text_of,
    unless_too_large,
)
from .span_fields import ns_of
from .transfer import PullPosition, SpanPage, TraceSource

__all__ = ["MLflow"]

_EXPERIMENTS = 1000
_PAGE = 100
# Traces that are requested at once: their ids are in the URL.
_ASKED = 25
_PREFIX = "tr-"
_TRACES = "/api/3.0/mlflow/traces"
_MS = 10**6
_MISSING = 404
_RESOURCE = ("service.", "deployment.")

Object = Mapping[str, Any]
Key = tuple[str, str, str]


class MLflow(TraceSource):
    """An MLflow tracking server, which is also an `AnnotationTarget`.

    Args:
        api: Its API.
        page: Traces of a page.
    """

    def __init__(self, api: JsonApi, *, page: int = _PAGE) -> None:
        super().__init__(api)
        self._page = page
        self._experiments: Mapping[str, str] = {}

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The experiments to read; see `TraceSource`."""
        if not self._experiments:
            experiments = list(all_elements(self._api, self._experiments_page))
            with self._api.reading():
                self._experiments = {
                    text_of(experiment["name"]): text_of(experiment["experiment_id"])
                    for experiment in experiments
                }
        self._check_projects(names, self._experiments, "no experiment {}; it has")
        return list(names) or list(self._experiments)

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of an experiment; see `TraceSource`."""
        self.projects([project])
        begin = begin_ns(position) // _MS
        newest_ids: set[str] = set()
        token = ""
        guard = PageGuard(self._api)
        while True:
            infos, token = self._search(self._experiments[project], begin, token)
            new = [_id(info) for info in infos if _id(info) not in newest_ids]
            guard.check([{"id": name} for name in new], token and f"{begin} {token}")
            last = max(map(_began_ms, infos), default=begin)
            spans, problems = self._spans_of(new, project)
            after = position_at(position, last * _MS, is_complete=not token)
            yield SpanPage(spans, after, problems)
            if not token:
                return
            # Tokens are offsets, which deletions shift: they only page within one millisecond.
            before = newest_ids if last == begin else set()
            newest_ids = before | {_id(info) for info in infos if _began_ms(info) == last}
            if last > begin:
                begin, token = last, ""

    def write(self, annotations: Sequence[Annotation], report: PushReport) -> Sequence[Annotation]:
        """Write annotations; see `AnnotationTarget`."""
        stored = self._stored(sorted({_PREFIX + annotation.trace_id for annotation in annotations}))
        created: set[str] = set()
        missing: list[Annotation] = []
        for annotation in annotations:
            trace_id = _PREFIX + annotation.trace_id
            if trace_id not in stored:
                missing += [] if annotation.is_withdrawal else [annotation]
            elif self._write(trace_id, annotation, stored[trace_id], report):
                created.add(trace_id)
        # MLflow chooses the ids: another push may have created the same assessments. The push that
        # created its assessments last sees both here.
        self._stored(sorted(created))
        report.unknown += len(missing)
        return missing

    def _experiments_page(self, token: str) -> Listed:
        answer = self._api.post(
            "/api/2.0/mlflow/experiments/search",
            {"max_results": _EXPERIMENTS, **({"page_token": token} if token else {})},
        )
        with self._api.reading():
            # MLflow leaves out empty lists.
            experiments = objects_of([] if answer == {} else answer["experiments"])
            return experiments, cursor_of(answer.get("next_page_token"))

    def _search(self, experiment: str, begin: int, token: str) -> Listed:
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
        answer = self._api.post(
            f"{_TRACES}/search",
            {
                "locations": [location],
                "filter": f"attributes.timestamp_ms >= {begin}",
                "max_results": self._page,
                "order_by": ["timestamp_ms ASC", "request_id ASC"],
                **({"page_token": token} if token else {}),
            },
        )
        with self._api.reading():
            infos = objects_of(answer.get("traces"), is_optional=True)
            for info in infos:
                _id(info), _began_ms(info)
            return infos, cursor_of(answer.get("next_page_token"))

    def _spans_of(self, ids: Sequence[str], project: str) -> tuple[list[Span], list[str]]:
        """The spans of traces, and the problems."""
        spans: list[Span] = []
        problems: list[str] = []
        for start in range(0, len(ids), _ASKED):
            for trace in self._traces(ids[start : start + _ASKED], problems):
                with self._api.reading():
                    _decode(trace, project, spans, problems)
        return spans, problems

    def _traces(self, ids: Sequence[str], problems: list[str]) -> Iterator[Object]:
        """Yield traces with their spans; request fewer at once while that fails."""
        traces = unless_too_large(partial(self._batch, ids), can_shrink=len(ids) > 1)
        if traces is None:
            half = len(ids) // 2
            yield from self._traces(ids[:half], problems)
            yield from self._traces(ids[half:], problems)
            return
        with self._api.reading():
            missing = set(ids) - {_id(trace["trace_info"]) for trace in traces}
        problems += (
            f"trace {trace_id} has no spans in MLflow; skipped" for trace_id in sorted(missing)
        )
        yield from traces

    def _batch(self, ids: Sequence[str], once: Collection[int]) -> list[Object]:
        query = [("trace_ids", trace_id) for trace_id in ids]
        answer = self._api.get(f"{_TRACES}/batchGet", query, once=once)
        with self._api.reading():
            return objects_of(answer.get("traces"), is_optional=True)

    def _stored(self, ids: Sequence[str]) -> dict[str, dict[Key, Object]]:
        """The assessments, by their key, of the traces that MLflow has.

        Of several with one key, the oldest stays; the others are removed.
        """
        if not ids:
            return {}
        answer = self._api.post(f"{_TRACES}/batchGetInfos", {"trace_ids": list(ids)})
        with self._api.reading():
            infos = objects_of(answer.get("trace_infos"), is_optional=True)
            return {_id(info): self._by_key(info) for info in infos}

    def _by_key(self, info: Object) -> dict[Key, Object]:
        assessments: dict[Key, Object] = {}
        for assessment in sorted(objects_of(info.get("assessments"), is_optional=True), key=_age):
            if _key(assessment) not in assessments:
                assessments[_key(assessment)] = assessment
            elif _key(assessment)[2].startswith(IDENTIFIER):
                self._remove(_id(info), text_of(assessment["assessment_id"]))
        return assessments

    def _remove(self, trace_id: str, name: str) -> None:
        try:
            self._api.request("DELETE", f"{_TRACES}/{trace_id}/assessments/{name}")
        except BackendError as error:
            if error.status != _MISSING:  # else another push removed it
                raise

    def _write(
        self,
        trace_id: str,
        annotation: Annotation,
        stored: Mapping[Key, Object],
        report: PushReport,
    ) -> bool:
        """Write an annotation if it is missing or differs; return whether it was created."""
        body = _body(trace_id, annotation)
        stored_body = stored.get(_key(body))
        if stored_body is None and annotation.is_withdrawal:
            return False
        if stored_body is None:
            self._api.post(f"{_TRACES}/{trace_id}/assessments", {"assessment": body})
        elif not self._is_same(stored_body, body):
            with self._api.reading():
                name = text_of(stored_body["assessment_id"])
            changed = {key: body[key] for key in ("feedback", "rationale", "metadata")}
            self._api.request(
                "PATCH",
                f"{_TRACES}/{trace_id}/assessments/{name}",
                body={
                    "assessment": {"assessment_id": name, "trace_id": trace_id, **changed},
                    "update_mask": ",".join(changed),
                },
            )
        else:
            report.unchanged += 1
            return False
        report.written += 1
        return stored_body is None

    def _is_same(self, stored_body: Object, body: Object) -> bool:
        with self._api.reading():
            return _content(stored_body) == _content(body)


def _id(info: Object) -> str:
    return text_of(info["trace_id"])


def _began_ms(info: Object) -> int:
    return ns_of(info["request_time"]) // _MS


def _decode(trace: Object, project: str, spans: list[Span], problems: list[str]) -> None:
    info = trace.get("trace_info") or {}
    tags = info.get("tags") or {}
    resource = {key: tags[key] for key in tags if key.startswith(_RESOURCE)}
    resource = {"service.name": project, **resource, "mlflow.experiment": project}
    attributes = [{"key": key, "value": {"stringValue": resource[key]}} for key in resource]
    decoded = decode_json(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": attributes},
                    "scopeSpans": [{"spans": trace.get("spans") or []}],
                }
            ]
        }
    )
    spans += decoded.spans
    problems += (f"trace {_id(info)}: {problem}" for problem in decoded.problems)


def _body(trace_id: str, annotation: Annotation) -> dict[str, Any]:
    metadata = {**annotation.metadata, "identifier": annotation.identifier}
    if annotation.label:
        metadata["label"] = annotation.label
    return {
        "assessment_name": annotation.name,
        "trace_id": trace_id,
        "span_id": annotation.span_id,
        "source": {
            "source_type": "LLM_JUDGE" if annotation.kind == "LLM" else "CODE",
            "source_id": "oteval",
        },
        "feedback": {"value": annotation.label if annotation.score is None else annotation.score},
        "rationale": annotation.explanation,
        "metadata": metadata,
    }


def _key(body: Object) -> Key:
    metadata = body.get("metadata") or {}
    return (
        *(str(body.get("span_id")), str(body.get("assessment_name"))),
        str(metadata.get("identifier")),
    )


def _age(assessment: Object) -> tuple[int, str]:
    created = str(assessment.get("create_time") or "")
    return ns_of(created) if created else 0, str(assessment.get("assessment_id"))


def _content(body: Object) -> object:
    feedback = body.get("feedback") or {}
    return feedback.get("value"), body.get("rationale") or "", body.get("metadata") or {}
