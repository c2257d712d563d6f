"""The output of the console exporters of OpenTelemetry's Python SDK to spans and log records.

``ConsoleSpanExporter`` prints a JSON object for each span, ``ConsoleLogRecordExporter`` for each
log record. They omit the instrumentation scope, times below a microsecond, and the numbers of
dropped attributes, events and links.

See https://opentelemetry-python.readthedocs.io/en/latest/sdk/trace.export.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..base.times import ns_of_iso
from ..model import Event, Link, LogRecord, Span, semconv
from .otlp.decoded import MAX_COUNT, MAX_SEVERITY, MAX_TIME, Decoded, prefix_problems, short_repr
from .otlp.json_fields import (
    Object,
    as_integer,
    as_object,
    as_objects,
    as_span_id,
    as_text,
    as_trace_id,
)
from .sdk_objects import attributes_of, value_of

__all__ = ["decode_log", "decode_span", "is_log", "is_span"]

_KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUSES = {"UNSET": 0, "OK": 1, "ERROR": 2}
_SPAN_KEYS = frozenset({"name", "context", "kind", "start_time", "end_time", "attributes"})
_LOG_KEYS = frozenset({"body", "severity_number", "trace_id", "span_id", "attributes"})
# The SDK prints a trace state as a list of such pairs.
_STATE = re.compile(r"\{key=(.*?), value=(.*?)\}")


def is_span(document: Mapping[str, Any]) -> bool:
    """Whether an object is a span that ``ReadableSpan.to_json`` printed."""
    return document.keys() >= _SPAN_KEYS and "traceId" not in document


def is_log(document: Mapping[str, Any]) -> bool:
    """Whether an object is a log record that the SDK's ``to_json`` printed."""
    return document.keys() >= _LOG_KEYS and "resource" in document


def decode_span(document: Object, out: Decoded) -> None:
    """Decode an object, and add its span to `out`."""
    start = len(out.problems)
    name = as_text(document.get("name"), "name", out.problems)
    span = _span(document, name, out.problems)
    prefix_problems(out.problems, start, "span", name)
    if span is not None:
        out.spans.append(span)


def _span(document: Object, name: str, problems: list[str]) -> Span | None:
    context = as_object(document.get("context"), "context", problems)
    ids = _ids(context, problems)
    if not all(ids):
        problems.append("context has no trace id and span id; span skipped")
        return None
    parent_id = as_span_id(_hex(document.get("parent_id")))
    if parent_id is None:
        problems.append(f"parent_id {short_repr(document['parent_id'])} is not a span id; left out")
    status = as_object(document.get("status"), "status", problems)
    return Span(
        *ids,
        parent_id or "",
        name,
        _enum(document.get("kind"), "kind", _KINDS, problems),
        _time(document.get("start_time"), "start_time", problems),
        _time(document.get("end_time"), "end_time", problems),
        _enum(status.get("status_code"), "status_code", _STATUSES, problems),
        as_text(status.get("description"), "status description", problems),
        _attributes(document, problems),
        tuple(_events(document, problems)),
        tuple(_links(document, problems)),
        resource=_resource(document, problems),
        trace_state=_trace_state(context),
    )


def decode_log(document: Object, out: Decoded) -> None:
    """Decode an object, and add its log record to `out`."""
    problems = out.problems
    start = len(problems)
    attributes = _attributes(document, problems)
    event_name = as_text(document.get("event_name"), "event_name", problems)
    event_name = event_name or semconv.named_event(attributes)
    trace_id, span_id = _ids(document, problems)
    severity = document.get("severity_number")
    out.logs.append(
        LogRecord(
            trace_id,
            span_id,
            _time(document.get("timestamp"), "timestamp", problems),
            _time(document.get("observed_timestamp"), "observed_timestamp", problems),
            event_name,
            as_integer(severity, "severity_number", MAX_SEVERITY, problems),
            as_text(document.get("severity_text"), "severity_text", problems),
            value_of(document.get("body")),
            attributes,
            resource=_resource(document, problems),
            dropped_attributes=as_integer(
                document.get("dropped_attributes"), "dropped_attributes", MAX_COUNT, problems
            ),
        )
    )
    prefix_problems(problems, start, "log record", event_name)


def _ids(holder: Object, problems: list[str]) -> tuple[str, str]:
    """The trace and span id of an object, "" for an id that is missing or invalid."""
    ids = []
    for key, read in (("trace_id", as_trace_id), ("span_id", as_span_id)):
        value = read(_hex(holder.get(key)))
        if value is None:
            problems.append(f"{key} {short_repr(holder.get(key))} is not an id in hex; left out")
        ids.append(value or "")
    return ids[0], ids[1]


def _hex(value: Any) -> Any:
    """An id without the prefix 0x, which the SDK prints."""
    return value.removeprefix("0x") if isinstance(value, str) else value


def _enum(value: Any, field: str, names: Mapping[str, int], problems: list[str]) -> int:
    """The number of an enumeration value, which is printed by its name."""
    if value is None:
        return 0
    number = names.get(str(value).rpartition(".")[2])
    if number is None:
        problems.append(f"{field} {short_repr(value)} is not one of {', '.join(names)}; taken as 0")
    return number or 0


def _time(value: Any, field: str, problems: list[str]) -> int:
    if value is None:
        return 0
    try:
        time_ns = ns_of_iso(value)
    except (TypeError, ValueError, OverflowError):
        time_ns = -1
    if not 0 <= time_ns <= MAX_TIME:
        problems.append(f"{field} {short_repr(value)} is not an ISO time after 1970; taken as 0")
        return 0
    return time_ns


def _attributes(holder: Object, problems: list[str]) -> dict[str, Any]:
    return dict(attributes_of(as_object(holder.get("attributes"), "attributes", problems)))


def _resource(document: Object, problems: list[str]) -> dict[str, Any]:
    """The resource's attributes; older versions print them at its top level."""
    resource = as_object(document.get("resource"), "resource", problems)
    if isinstance(resource.get("attributes"), dict):
        return _attributes(resource, problems)
    return dict(attributes_of(resource))


def _events(document: Object, problems: list[str]) -> Iterator[Event]:
    for event in as_objects(document.get("events"), "events", problems):
        name = as_text(event.get("name"), "event name", problems)
        time_ns = _time(event.get("timestamp"), "event timestamp", problems)
        yield Event(name, time_ns, _attributes(event, problems))


def _links(document: Object, problems: list[str]) -> Iterator[Link]:
    for link in as_objects(document.get("links"), "links", problems):
        ids = _ids(as_object(link.get("context"), "link context", problems), problems)
        if all(ids):
            yield Link(*ids, _attributes(link, problems))


def _trace_state(context: Object) -> str:
    pairs = _STATE.findall(str(context.get("trace_state", "")))
    return ",".join(f"{key}={value}" for key, value in pairs)
