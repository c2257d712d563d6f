"""MLflow: traces from its tracking server's REST API, and scores as feedback on spans.

API: https://mlflow.org/docs/latest/api_reference/rest-api.html, and ``mlflow/server/handlers.py``
of MLflow 3.17. The API lists traces by the time at which they began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import BackendError
from ..ingest import decode_json
from ..model import Span
from ..text import listed
from .interface import IDENTIFIER, Annotation, PullPosition, PushReport, SpanPage
from .json_api import JsonApi
from .page_lists import Listed, PageGuard, all_elements, cursor_of, objects_of, text_of
from .times import begin_ns, ns_of, position_at

__all__ = ["MLflow"]

_EXPERIMENTS = 1000
_PAGE = 100
# Traces that are asked for at once: their ids are in the URL.
_ASKED = 25
# A smaller request may succeed: the answer is too large, or takes too long.
_SMALLER = frozenset({408, 413, 500, 504})
_PREFIX = "tr-"
_TRACES = "/api/3.0/mlflow/traces"
_MS = 10**6
_MISSING = 404
_RESOURCE = ("service.", "deployment.")

Object = Mapping[str, Any]
Key = tuple[str, str, str]


class MLflow:
    """An MLflow tracking server: a `TraceSource` and an `AnnotationTarget`.

    Args:
        api: Its API.
        page: Traces of a page.

    Attributes:
        url: Its base URL without a password.
    """

    def __init__(self, api: JsonApi, *, page: int = _PAGE) -> None:
        self.url = api.url
        self._api, self._page = api, page
        self._experiments: Mapping[str, str] = {}

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """Return the experiments to read; see `TraceSource`."""
        if not self._experiments:
            found = list(all_elements(self._api, self._experiments_page))
            with self._api.reading():
                self._experiments = {
                    text_of(one["name"]): text_of(one["experiment_id"]) for one in found
                }
        for name in names:
            if name not in self._experiments:
                known = listed(sorted(self._experiments))
                raise BackendError(f"{self.url}: no experiment {name!r}; it has {known}")
        return list(names) or list(self._experiments)

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of an experiment; see `TraceSource`."""
        self.projects([project])
        begin = begin_ns(position) // _MS
        seen: set[str] = set()
        token = ""
        guard = PageGuard(self._api)
        while True:
            found, token = self._search(self._experiments[project], begin, token)
            new = [_id(one) for one in found if _id(one) not in seen]
            guard.check([{"id": name} for name in new], token and f"{begin} {token}")
            last = max(map(_began_ms, found), default=begin)
            spans, problems = self._spans_of(new, project)
            after = position_at(position, last * _MS, is_complete=not token)
            yield SpanPage(spans, after, problems)
            if not token:
                return
            # Tokens are offsets, which deletions shift: they only page within one millisecond.
            before = seen if last == begin else set()
            seen = before | {_id(one) for one in found if _began_ms(one) == last}
            if last > begin:
                begin, token = last, ""

    def write(self, annotations: Sequence[Annotation], report: PushReport) -> Sequence[Annotation]:
        """Write annotations; see `AnnotationTarget`."""
        stored = self._stored(sorted({_PREFIX + one.trace_id for one in annotations}))
        created: set[str] = set()
        missing: list[Annotation] = []
        for one in annotations:
            trace_id = _PREFIX + one.trace_id
            if trace_id not in stored:
                missing += [] if one.is_withdrawal else [one]
            elif self._write(trace_id, one, stored[trace_id], report):
                created.add(trace_id)
        # MLflow chooses the ids: another push may have created the same assessments. The one that
        # created its own last sees both here.
        self._stored(sorted(created))
        report.unknown += len(missing)
        return missing

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _experiments_page(self, token: str) -> Listed:
        answer = self._api.post(
            "/api/2.0/mlflow/experiments/search",
            {"max_results": _EXPERIMENTS, **({"page_token": token} if token else {})},
        )
        with self._api.reading():
            # MLflow leaves out empty lists.
            found = objects_of([] if answer == {} else answer["experiments"])
            return found, cursor_of(answer.get("next_page_token"))

    def _search(self, experiment: str, begin: int, token: str) -> Listed:
        place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
        answer = self._api.post(
            f"{_TRACES}/search",
            {
                "locations": [place],
                "filter": f"attributes.timestamp_ms >= {begin}",
                "max_results": self._page,
                "order_by": ["timestamp_ms ASC", "request_id ASC"],
                **({"page_token": token} if token else {}),
            },
        )
        with self._api.reading():
            found = objects_of(answer.get("traces"), is_optional=True)
            for one in found:
                _id(one), _began_ms(one)
            return found, cursor_of(answer.get("next_page_token"))

    def _spans_of(self, ids: Sequence[str], project: str) -> tuple[list[Span], list[str]]:
        """Return the spans of traces, and the problems."""
        spans: list[Span] = []
        problems: list[str] = []
        for start in range(0, len(ids), _ASKED):
            for trace in self._traces(ids[start : start + _ASKED], problems):
                with self._api.reading():
                    _decode(trace, project, spans, problems)
        return spans, problems

    def _traces(self, ids: Sequence[str], problems: list[str]) -> Iterator[Object]:
        """Yield traces with their spans; ask for fewer at once while that fails."""
        query = [("trace_ids", one) for one in ids]
        try:
            answer = self._api.get(
                f"{_TRACES}/batchGet", query, once=_SMALLER if len(ids) > 1 else ()
            )
        except BackendError as error:
            if error.status not in _SMALLER or len(ids) == 1:
                raise
            half = len(ids) // 2
            yield from self._traces(ids[:half], problems)
            yield from self._traces(ids[half:], problems)
            return
        with self._api.reading():
            found = objects_of(answer.get("traces"), is_optional=True)
            missing = set(ids) - {_id(one["trace_info"]) for one in found}
        problems += (f"trace {one} has no spans in MLflow; skipped" for one in sorted(missing))
        yield from found

    def _stored(self, ids: Sequence[str]) -> dict[str, dict[Key, Object]]:
        """Return the assessments, by their key, of those traces that MLflow has.

        Of several with one key, the oldest stays; the others are removed.
        """
        if not ids:
            return {}
        answer = self._api.post(f"{_TRACES}/batchGetInfos", {"trace_ids": list(ids)})
        with self._api.reading():
            found = objects_of(answer.get("trace_infos"), is_optional=True)
            return {_id(info): self._by_key(info) for info in found}

    def _by_key(self, info: Object) -> dict[Key, Object]:
        kept: dict[Key, Object] = {}
        for one in sorted(objects_of(info.get("assessments"), is_optional=True), key=_age):
            if _key(one) not in kept:
                kept[_key(one)] = one
            elif _key(one)[2].startswith(IDENTIFIER):
                self._remove(_id(info), text_of(one["assessment_id"]))
        return kept

    def _remove(self, trace_id: str, name: str) -> None:
        try:
            self._api.request("DELETE", f"{_TRACES}/{trace_id}/assessments/{name}")
        except BackendError as error:
            if error.status != _MISSING:  # else another push removed it
                raise

    def _write(
        self, trace_id: str, one: Annotation, stored: Mapping[Key, Object], report: PushReport
    ) -> bool:
        """Write an annotation if it is missing or differs; return whether it was created."""
        wanted = _body(trace_id, one)
        known = stored.get(_key(wanted))
        if known is None and one.is_withdrawal:
            return False
        if known is None:
            self._api.post(f"{_TRACES}/{trace_id}/assessments", {"assessment": wanted})
        elif not self._is_same(known, wanted):
            with self._api.reading():
                name = text_of(known["assessment_id"])
            changed = {key: wanted[key] for key in ("feedback", "rationale", "metadata")}
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
        return known is None

    def _is_same(self, known: Object, wanted: Object) -> bool:
        with self._api.reading():
            return _content(known) == _content(wanted)


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


def _body(trace_id: str, one: Annotation) -> dict[str, Any]:
    metadata = {**one.metadata, "identifier": one.identifier}
    if one.label:
        metadata["label"] = one.label
    return {
        "assessment_name": one.name,
        "trace_id": trace_id,
        "span_id": one.span_id,
        "source": {
            "source_type": "LLM_JUDGE" if one.kind == "LLM" else "CODE",
            "source_id": "oteval",
        },
        "feedback": {"value": one.label if one.score is None else one.score},
        "rationale": one.explanation,
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
