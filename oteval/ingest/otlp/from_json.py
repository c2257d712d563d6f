"""OTLP/JSON to spans and log records.

All forms that emitters write are accepted: keys in lowerCamelCase and snake_case, 64-bit integers
as numbers and strings, enumerations as numbers and names, ids in hex and in base64 (protobuf's own
JSON mapping), and the names that OTLP used before 1.0.
See https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from oteval.base.errors import InputError
from oteval.base.jsontext import loads
from oteval.model import Attributes, Event, Link, LogRecord, Span, named_event

from .decoded import (
    MAX_COUNT,
    MAX_KIND,
    MAX_SEVERITY,
    MAX_STATUS,
    MAX_TIME,
    Decoded,
    Origin,
    prefix_problems,
    short_repr,
)
from .json_fields import (
    InvalidValueError,
    Object,
    any_value,
    as_enum,
    as_integer,
    as_object,
    as_objects,
    as_span_id,
    as_text,
    as_trace_id,
    json_kind,
)

__all__ = ["decode_json", "parse_json", "without_surrogates"]

# Keys in snake_case, and keys from before OTLP 1.0, with their current names.
KEY_ALIASES = {
    "resource_spans": "resourceSpans",
    "resource_logs": "resourceLogs",
    "resource_metrics": "resourceMetrics",
    "batches": "resourceSpans",  # Tempo
    "scope_spans": "scopeSpans",
    "scope_logs": "scopeLogs",
    "log_records": "logRecords",
    "instrumentationLibrarySpans": "scopeSpans",
    "instrumentationLibraryLogs": "scopeLogs",
    "instrumentationLibrary": "scope",
    "instrumentation_library_spans": "scopeSpans",
    "instrumentation_library_logs": "scopeLogs",
    "instrumentation_library": "scope",
    "trace_id": "traceId",
    "span_id": "spanId",
    "parent_span_id": "parentSpanId",
    "trace_state": "traceState",
    "start_time_unix_nano": "startTimeUnixNano",
    "end_time_unix_nano": "endTimeUnixNano",
    "time_unix_nano": "timeUnixNano",
    "observed_time_unix_nano": "observedTimeUnixNano",
    "dropped_attributes_count": "droppedAttributesCount",
    "dropped_events_count": "droppedEventsCount",
    "dropped_links_count": "droppedLinksCount",
    "severity_number": "severityNumber",
    "severity_text": "severityText",
    "event_name": "eventName",
}
_ALIASES = frozenset(KEY_ALIASES)
_REQUEST = frozenset({"resourceSpans", "resourceLogs", "resourceMetrics"})

_KINDS = {
    f"SPAN_KIND_{name}": number
    for number, name in enumerate(
        ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
    )
}
_STATUSES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_SEVERITIES = {"SEVERITY_NUMBER_UNSPECIFIED": 0} | {
    f"SEVERITY_NUMBER_{name}{suffix}": 4 * row + column
    for row, name in enumerate(("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"))
    for column, suffix in enumerate(("", "2", "3", "4"), start=1)
}

_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text, and replace lone surrogates, which UTF-8 cannot encode, by U+FFFD.

    JavaScript writes them when it cuts text in the middle of an emoji.

    Raises:
        ValueError: The text is not valid JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return without_surrogates(loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def without_surrogates(value: Any) -> Any:
    """A JSON value with lone surrogates replaced by U+FFFD."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value


def decode_json(document: Any) -> Decoded:
    """Decode a parsed OTLP/JSON request, or a list of them.

    Args:
        document: The parsed JSON: an object with ``resourceSpans`` or ``resourceLogs`` (or both),
            or a list of such objects.

    Returns:
        The spans and log records, and the problems.

    Raises:
        InputError: The document is not an OTLP request; the message describes it.
    """
    out = Decoded()
    if not isinstance(document, list):
        _request(document, out)
        return out.closed()
    refused = 0
    for number, item in enumerate(document, start=1):
        try:
            _request(item, out)
        except InputError as error:
            out.problems.append(f"element {number}: {error}")
            refused += 1
    if refused and refused == len(document):
        raise InputError(out.problems[0])
    return out.closed()


def _request(document: Any, out: Decoded) -> None:
    if not isinstance(document, dict):
        raise InputError(f"JSON ({json_kind(document)}) is not an OTLP request")
    document = _with_current_keys(document)
    if document and _REQUEST.isdisjoint(document):
        keys = ", ".join(short_repr(key) for key in list(document)[:8])
        more = ", ..." if len(document) > 8 else ""
        raise InputError(
            f"a JSON object with the keys {keys}{more} is not an OTLP request "
            "(it would have 'resourceSpans' or 'resourceLogs')"
        )
    for group in as_objects(document.get("resourceSpans"), "resourceSpans", out.problems):
        _resource_spans(group, out)
    for group in as_objects(document.get("resourceLogs"), "resourceLogs", out.problems):
        _resource_logs(group, out)
    if document.get("resourceMetrics"):
        out.problems.append("metrics are not stored")


def _resource_spans(raw: Object, out: Decoded) -> None:
    raw = _with_current_keys(raw)
    resource = _resource(raw, out.problems)
    for group in as_objects(raw.get("scopeSpans"), "scopeSpans", out.problems):
        group = _with_current_keys(group)
        origin = _origin(group, resource, out.problems)
        for item in as_objects(group.get("spans"), "spans", out.problems):
            if (span := _span(item, origin, out)) is not None:
                out.spans.append(span)


def _resource_logs(raw: Object, out: Decoded) -> None:
    raw = _with_current_keys(raw)
    resource = _resource(raw, out.problems)
    for group in as_objects(raw.get("scopeLogs"), "scopeLogs", out.problems):
        group = _with_current_keys(group)
        origin = _origin(group, resource, out.problems)
        records = group.get("logRecords", group.get("logs"))
        for item in as_objects(records, "logRecords", out.problems):
            out.logs.append(_log(item, origin, out.problems))


def _resource(raw: Object, problems: list[str]) -> Attributes:
    start = len(problems)
    resource = as_object(raw.get("resource"), "resource", problems)
    attributes = _attributes(resource.get("attributes"), problems)
    problems[start:] = [f"resource: {problem}" for problem in problems[start:]]
    return attributes


def _origin(group: Object, resource: Attributes, problems: list[str]) -> Origin:
    start = len(problems)
    scope = as_object(group.get("scope"), "scope", problems)
    name = as_text(scope.get("name"), "name", problems)
    version = as_text(scope.get("version"), "version", problems)
    attributes = _attributes(scope.get("attributes"), problems)
    problems[start:] = [f"scope: {problem}" for problem in problems[start:]]
    return Origin(resource, name, version, attributes)


def _span(raw: Object, origin: Origin, out: Decoded) -> Span | None:
    """A span, or None if it has no ids and is skipped."""
    problems = out.problems
    if not _ALIASES.isdisjoint(raw):
        raw = _with_current_keys(raw)
    get = raw.get
    start = len(problems)
    name = as_text(get("name"), "name", problems)
    trace_id = as_trace_id(get("traceId"))
    span_id = as_span_id(get("spanId"))
    if not trace_id or not span_id:
        prefix_problems(problems, start, "span", name)
        out.skip_span(name, _no_id(trace_id, get("traceId"), get("spanId")))
        return None
    parent_id = as_span_id(get("parentSpanId"))
    if parent_id is None:
        problems.append(
            f"parentSpanId {short_repr(get('parentSpanId'))} is not a span id; left out"
        )
    events, links, status = get("events"), get("links"), get("status")
    status = as_object(status, "status", problems) if status else {}
    span = Span(
        trace_id,
        span_id,
        parent_id or "",
        name,
        as_enum(get("kind"), "kind", _KINDS, MAX_KIND, problems),
        as_integer(get("startTimeUnixNano"), "startTimeUnixNano", MAX_TIME, problems),
        as_integer(get("endTimeUnixNano"), "endTimeUnixNano", MAX_TIME, problems),
        as_enum(status.get("code"), "status.code", _STATUSES, MAX_STATUS, problems),
        as_text(status.get("message"), "status.message", problems),
        _attributes(get("attributes"), problems),
        _events(events, problems) if events else (),
        _links(links, problems) if links else (),
        origin.scope,
        origin.version,
        origin.attributes,
        origin.resource,
        as_text(get("traceState"), "traceState", problems),
        as_integer(get("flags"), "flags", MAX_COUNT, problems),
        as_integer(get("droppedAttributesCount"), "droppedAttributesCount", MAX_COUNT, problems),
        as_integer(get("droppedEventsCount"), "droppedEventsCount", MAX_COUNT, problems),
        as_integer(get("droppedLinksCount"), "droppedLinksCount", MAX_COUNT, problems),
    )
    if len(problems) > start:
        prefix_problems(problems, start, "span", name)
    return span


def _no_id(trace_id: str | None, raw_trace: Any, raw_span: Any) -> str:
    if not trace_id:
        return f"traceId {short_repr(raw_trace)} is not a trace id in hex"
    return f"spanId {short_repr(raw_span)} is not a span id in hex"


def _events(raw: Any, problems: list[str]) -> tuple[Event, ...]:
    out = []
    for item in as_objects(raw, "events", problems):
        item = _with_current_keys(item)
        name = as_text(item.get("name"), "event name", problems)
        time = as_integer(item.get("timeUnixNano"), "event timeUnixNano", MAX_TIME, problems)
        attributes = _attributes(item.get("attributes"), problems)
        dropped = item.get("droppedAttributesCount")
        count = as_integer(dropped, "event droppedAttributesCount", MAX_COUNT, problems)
        out.append(Event(name, time, attributes, count))
    return tuple(out)


def _links(raw: Any, problems: list[str]) -> tuple[Link, ...]:
    out = []
    for item in as_objects(raw, "links", problems):
        item = _with_current_keys(item)
        trace_id = as_trace_id(item.get("traceId"))
        span_id = as_span_id(item.get("spanId"))
        if trace_id and span_id:
            out.append(Link(trace_id, span_id, _attributes(item.get("attributes"), problems)))
        else:
            problems.append("a link without valid ids; left out")
    return tuple(out)


def _log(raw: Object, origin: Origin, problems: list[str]) -> LogRecord:
    raw = _with_current_keys(raw)
    get = raw.get
    start = len(problems)
    attributes = _attributes(get("attributes"), problems)
    event_name = as_text(get("eventName"), "eventName", problems)
    event_name = event_name or named_event(attributes)
    trace_id, span_id = as_trace_id(get("traceId")), as_span_id(get("spanId"))
    if trace_id is None:
        problems.append(f"traceId {short_repr(get('traceId'))} is not a trace id; left out")
    if span_id is None:
        problems.append(f"spanId {short_repr(get('spanId'))} is not a span id; left out")
    record = LogRecord(
        trace_id or "",
        span_id or "",
        as_integer(get("timeUnixNano"), "timeUnixNano", MAX_TIME, problems),
        as_integer(get("observedTimeUnixNano"), "observedTimeUnixNano", MAX_TIME, problems),
        event_name,
        as_enum(get("severityNumber"), "severityNumber", _SEVERITIES, MAX_SEVERITY, problems),
        as_text(get("severityText"), "severityText", problems),
        _body(get("body"), problems),
        attributes,
        origin.scope,
        origin.version,
        origin.resource,
        as_integer(get("droppedAttributesCount"), "droppedAttributesCount", MAX_COUNT, problems),
    )
    if len(problems) > start:
        prefix_problems(problems, start, "log record", event_name)
    return record


def _body(raw: Any, problems: list[str]) -> Any:
    try:
        return any_value(raw)
    except InvalidValueError as error:
        problems.append(f"body {error}; left out")
        return None


def _attributes(raw: Any, problems: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if raw is None:
        return out
    if not isinstance(raw, list):
        problems.append(f"attributes are {json_kind(raw)} instead of a list; left out")
        return out
    for item in raw:
        try:  # the usual case: a key and a string
            key = item["key"]
            value = item["value"]
            text = value.get("stringValue")
            if key.__class__ is str and key:
                out[key] = text if text.__class__ is str else any_value(value)
                continue
        except (AttributeError, KeyError, TypeError, InvalidValueError):
            pass
        _add_unusual_attribute(item, out, problems)
    return out


def _add_unusual_attribute(item: Any, out: dict[str, Any], problems: list[str]) -> None:
    """Add an attribute without a value or with an invalid value, and report an invalid value."""
    key = item.get("key") if isinstance(item, dict) else None
    if not isinstance(key, str) or not key:
        problems.append(f"an attribute without a key ({short_repr(item)}); left out")
        return
    try:
        out[key] = any_value(item.get("value"))
    except InvalidValueError as error:
        problems.append(f"attribute {short_repr(key)} {error}; left out")


def _with_current_keys(raw: Object) -> Object:
    """An object with current OTLP/JSON keys; the object itself if all keys are current."""
    if _ALIASES.isdisjoint(raw):
        return raw
    return {KEY_ALIASES.get(key, key): value for key, value in raw.items()}
