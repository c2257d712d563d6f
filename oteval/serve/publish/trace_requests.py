"""OTLP requests taken apart by trace, and scores added to their spans.

A span keeps everything that it came with, including fields that this version of OTLP does not
know. Scores are appended as attributes. JSON requests stay JSON. Another function removes oteval's
events from requests for logs, so that they are not sent in circles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from ...base.jsontext import dumps, loads
from ...scoring import OWN_SCOPE

__all__ = [
    "JsonTraceRequest",
    "ProtobufTraceRequest",
    "SpanKey",
    "TraceRequest",
    "parse_traces",
    "without_own_events",
]


class SpanKey(NamedTuple):
    """The identity of a span: the same span sent again has the same key.

    Attributes:
        trace_id: Its trace, in hex.
        span_id: Its id, in hex.
        times: Its start and end, as the encoding has them.
    """

    trace_id: str
    span_id: str
    times: tuple[Any, Any]


class TraceRequest(Protocol):
    """A request for traces that can be split."""

    @property
    def keys(self) -> list[SpanKey]:
        """The keys of its spans, in order."""

    def of_trace(self, trace_id: str, extra: Mapping[str, Any] | None = None) -> bytes:
        """A request with the spans of one trace.

        Args:
            trace_id: The trace, in hex.
            extra: Attributes to append to spans, by span id: as `as_fields` returns them for
                protobuf, as `as_json` does for JSON.
        """

    def without(self, keys: Collection[SpanKey]) -> bytes:
        """A request without some of the spans."""


def parse_traces(payload: bytes, encoding: str) -> TraceRequest:
    """Parse a request for traces.

    Args:
        payload: The request body, decompressed.
        encoding: ``protobuf`` or ``json``.

    Raises:
        ValueError: The body is not a request for traces.
    """
    return JsonTraceRequest(payload) if encoding == "json" else ProtobufTraceRequest(payload)


class _SpanEntry(NamedTuple):
    """A span of a protobuf request, with the empty messages that it was in."""

    key: SpanKey
    span: Span
    scope: ScopeSpans
    resource: ResourceSpans


class ProtobufTraceRequest:
    """A `TraceRequest` in protobuf.

    Args:
        payload: The request body.

    Raises:
        ValueError: The body is not a request for traces.
    """

    def __init__(self, payload: bytes) -> None:
        try:
            request = ExportTraceServiceRequest.FromString(payload)
        except DecodeError:
            raise ValueError("not a request for traces") from None
        self._payload = payload
        self._entries = list(_detached(request))
        self._request = request
        self._by_trace: dict[str, list[_SpanEntry]] = {}
        for entry in self._entries:
            self._by_trace.setdefault(entry.key.trace_id, []).append(entry)

    @property
    def keys(self) -> list[SpanKey]:
        """The keys of its spans, in order."""
        return [entry.key for entry in self._entries]

    def of_trace(self, trace_id: str, extra: Mapping[str, bytes] | None = None) -> bytes:
        """A protobuf request with the spans of one trace; see `TraceRequest.of_trace`."""
        entries = self._by_trace.get(trace_id, [])
        if len(entries) == len(self._entries) and not (
            extra and any(entry.key.span_id in extra for entry in entries)
        ):
            return self._payload
        return self._serialized(entries, extra or {})

    def without(self, keys: Collection[SpanKey]) -> bytes:
        """A request without some of the spans."""
        return self._serialized([entry for entry in self._entries if entry.key not in keys], {})

    def _serialized(self, entries: list[_SpanEntry], extra: Mapping[str, bytes]) -> bytes:
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._request)
        last: _SpanEntry | None = None
        for entry in entries:
            if last is None or entry.resource is not last.resource:
                resource = request.resource_spans.add()
                resource.CopyFrom(entry.resource)
            if last is None or entry.scope is not last.scope:
                scope = resource.scope_spans.add()
                scope.CopyFrom(entry.scope)
            span = scope.spans.add()
            span.CopyFrom(entry.span)
            if attributes := extra.get(entry.key.span_id):
                span.MergeFromString(attributes)
            last = entry
        return request.SerializeToString()


def _detached(request: ExportTraceServiceRequest) -> Iterator[_SpanEntry]:
    """Take the spans out of a request, and leave all messages without their inner messages."""
    for resource in list(request.resource_spans):
        for scope in list(resource.scope_spans):
            for span in list(scope.spans):
                ids = span.trace_id.hex(), span.span_id.hex()
                times = span.start_time_unix_nano, span.end_time_unix_nano
                yield _SpanEntry(SpanKey(*ids, times), span, scope, resource)
            del scope.spans[:]
        del resource.scope_spans[:]
    del request.resource_spans[:]


class JsonTraceRequest:
    """A `TraceRequest` in JSON.

    Args:
        payload: The request body.

    Raises:
        ValueError: The body is not a request for traces.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._value = loads(payload)
        if not isinstance(self._value, dict):
            raise ValueError("not a request for traces")
        try:
            self._keys = [_json_key(span) for _, _, spans in self._scopes() for span in spans]
        except (AttributeError, TypeError):
            raise ValueError("not a request for traces") from None

    @property
    def keys(self) -> list[SpanKey]:
        """The keys of its spans, in order."""
        return self._keys

    def of_trace(self, trace_id: str, extra: Mapping[str, list[Any]] | None = None) -> bytes:
        """A JSON request with the spans of one trace; see `TraceRequest.of_trace`."""
        return self._select(lambda key: key.trace_id == trace_id, extra or {})

    def without(self, keys: Collection[SpanKey]) -> bytes:
        """A request without some of the spans."""
        return self._select(lambda key: key not in keys, {})

    def _scopes(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[Any]]]:
        for resource in _items(self._value, "resourceSpans", "resource_spans"):
            for scope in _items(resource, "scopeSpans", "scope_spans"):
                yield resource, scope, _items(scope, "spans")

    def _select(
        self, is_selected: Callable[[SpanKey], bool], extra: Mapping[str, list[Any]]
    ) -> bytes:
        if not any(key.span_id in extra for key in self._keys) and all(
            map(is_selected, self._keys)
        ):
            return self._payload
        keys = iter(self._keys)
        resources: list[dict[str, Any]] = []
        last = None
        for resource, scope, spans in self._scopes():
            selected_spans = [
                _with_attributes(span, extra.get(key.span_id))
                for span, key in zip(spans, keys, strict=False)
                if is_selected(key)
            ]
            if not selected_spans:
                continue
            if resource is not last:
                last = resource
                resources.append(
                    {**_without_items(resource, "scopeSpans", "scope_spans"), "scopeSpans": []}
                )
            resources[-1]["scopeSpans"].append({**scope, "spans": selected_spans})
        other_fields = _without_items(self._value, "resourceSpans", "resource_spans")
        return dumps({**other_fields, "resourceSpans": resources}).encode()


def without_own_events(payload: bytes, encoding: str) -> bytes:
    """A request for logs without the score events that oteval emitted.

    Returns:
        The request; `payload` itself if nothing was removed, b"" if nothing is left.

    Raises:
        ValueError: The body is not a request for logs.
    """
    if b"gen_ai.evaluation.result" not in payload:
        return payload
    if encoding == "json":
        return _without_own_events_json(payload)
    try:
        request = ExportLogsServiceRequest.FromString(payload)
    except DecodeError:
        raise ValueError("not a request for logs") from None
    is_changed = False
    for resource in list(request.resource_logs):
        foreign_scopes = [scope for scope in resource.scope_logs if scope.scope.name != OWN_SCOPE]
        if len(foreign_scopes) < len(resource.scope_logs):
            is_changed = True
            del resource.scope_logs[:]
            resource.scope_logs.extend(foreign_scopes)
            if not foreign_scopes:
                request.resource_logs.remove(resource)
    return request.SerializeToString() if is_changed else payload


def _without_own_events_json(payload: bytes) -> bytes:
    value = loads(payload)
    resources, is_changed = [], False
    try:
        for resource in _items(value, "resourceLogs", "resource_logs"):
            scopes = _items(resource, "scopeLogs", "scope_logs")
            foreign_scopes = [s for s in scopes if (s.get("scope") or {}).get("name") != OWN_SCOPE]
            is_changed |= len(foreign_scopes) < len(scopes)
            if foreign_scopes:
                other_fields = _without_items(resource, "scopeLogs", "scope_logs")
                resources.append({**other_fields, "scopeLogs": foreign_scopes})
    except AttributeError:
        raise ValueError("not a request for logs") from None
    if not is_changed:
        return payload
    if not resources:
        return b""
    other_fields = _without_items(value, "resourceLogs", "resource_logs")
    return dumps({**other_fields, "resourceLogs": resources}).encode()


def _items(value: Any, *names: str) -> list[Any]:
    """The list under the first name that has a list."""
    for name in names:
        items = value.get(name)
        if items:
            return list(items)
    return []


def _without_items(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in names}


def _with_attributes(span: dict[str, Any], attributes: list[Any] | None) -> dict[str, Any]:
    if not attributes:
        return span
    return {**span, "attributes": [*(span.get("attributes") or ()), *attributes]}


def _json_key(span: Any) -> SpanKey:
    def text(*names: str) -> str:
        value = next((span[name] for name in names if span.get(name) is not None), "")
        return str(value)

    times = (
        text("startTimeUnixNano", "start_time_unix_nano"),
        text("endTimeUnixNano", "end_time_unix_nano"),
    )
    ids = text("traceId", "trace_id").lower(), text("spanId", "span_id").lower()
    return SpanKey(*ids, times)
