"""Jaeger's JSON to spans: traces from its user interface and API, spans from Elasticsearch.

Jaeger stores fields of OpenTelemetry that it lacks as tags; they become fields again. Arrays and
maps were converted to text on the way into Jaeger, and stay text. Times are in microseconds, and
links have lost their attributes.

For the mapping, see https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/jaeger/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..model import Attributes, Event, Link, Span
from .otlp.decoded import MAX_COUNT, MAX_TIME, Decoded, prefix_problems, short_repr
from .otlp.json_fields import (
    Object,
    as_integer,
    as_object,
    as_objects,
    as_text,
    bytes_value,
    double_value,
    from_base64,
)

__all__ = ["decode_span", "decode_trace", "is_span", "is_trace"]

_HEX = re.compile(r"[0-9a-fA-F]{1,32}").fullmatch
_MAX_MICROSECONDS = MAX_TIME // 1000
_INT64 = 1 << 63

_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUSES = {"OK": 1, "ERROR": 2}
_SCOPE = ("otel.scope.name", "otel.library.name")
_SCOPE_VERSION = ("otel.scope.version", "otel.library.version")
_TRACE_STATE = "w3c.tracestate"
_DROPPED_ATTRIBUTES = "otel.dropped_attributes_count"
_DROPPED_EVENTS = "otel.dropped_events_count"
_DROPPED_LINKS = "otel.dropped_links_count"
# The format in which Jaeger received the span.
_INTERNAL = "internal.span.format"


def is_trace(value: Object) -> bool:
    """Whether a JSON object is a Jaeger trace, with its spans."""
    return "spans" in value and ("traceID" in value or "processes" in value)


def is_span(value: Object) -> bool:
    """Whether a JSON object is a single Jaeger span."""
    return "spanID" in value and "traceID" in value


def decode_trace(raw: Object, out: Decoded) -> None:
    """Decode a trace, and add its spans to `out`.

    Each span names one of the ``processes`` of the trace. The process has its resource.
    """
    start = len(out.problems)
    processes = as_object(raw.get("processes"), "processes", out.problems)
    resources = {key: _resource(process, out.problems) for key, process in processes.items()}
    unknown = 0
    for item in as_objects(raw.get("spans"), "spans", out.problems):
        name = item.get("processID")
        resource = resources.get(name) if isinstance(name, str) else None
        if resource is None:
            resource = _resource(item.get("process"), out.problems)
            unknown += "process" not in item
        _add(item, resource, out)
    if unknown:
        out.problems.append(f"{unknown} spans without a process of the trace; service unknown")
    if len(out.problems) > start and isinstance(raw.get("traceID"), str):
        prefix_problems(out.problems, start, "trace", raw["traceID"])


def decode_span(raw: Object, out: Decoded) -> None:
    """Decode a span with its process, as stored in Elasticsearch, and add it to `out`."""
    _add(raw, _resource(raw.get("process"), out.problems), out)


def _add(raw: Object, resource: Attributes, out: Decoded) -> None:
    start = len(out.problems)
    span = _span(raw, resource, out.problems)
    if len(out.problems) > start:
        prefix_problems(out.problems, start, "span", raw.get("operationName"))
    if span is not None:
        out.spans.append(span)


def _resource(raw: Any, problems: list[str]) -> Attributes:
    process = as_object(raw, "process", problems)
    resource = _attributes(process, "tags", problems)
    service = as_text(process.get("serviceName"), "serviceName", problems)
    return {"service.name": service, **resource} if service else resource


def _span(raw: Object, resource: Attributes, problems: list[str]) -> Span | None:
    trace_id, span_id = _id(raw.get("traceID"), 32), _id(raw.get("spanID"), 16)
    if not trace_id or not span_id:
        name, wrong = ("spanID", raw.get("spanID")) if trace_id else ("traceID", raw.get("traceID"))
        problems.append(f"{name} {short_repr(wrong)} is not a valid id in hex; span skipped")
        return None
    tags = _attributes(raw, "tags", problems)
    parent_id, links = _references(raw, trace_id, problems)
    start_ns = 1000 * as_integer(raw.get("startTime"), "startTime", _MAX_MICROSECONDS, problems)
    lasted = 1000 * as_integer(raw.get("duration"), "duration", _MAX_MICROSECONDS, problems)
    kind = tags.get("span.kind")
    if isinstance(kind, str) and kind.lower() in _KINDS:
        del tags["span.kind"]
    status, message = _pop_status(tags)
    tags.pop(_INTERNAL, None)
    return Span(
        trace_id,
        span_id,
        parent_id,
        as_text(raw.get("operationName"), "operationName", problems),
        _KINDS.get(kind.lower(), 0) if isinstance(kind, str) else 0,
        start_ns,
        min(start_ns + lasted, MAX_TIME),
        status,
        message,
        tags,
        _events(raw.get("logs"), problems),
        links,
        _pop_text(tags, *_SCOPE),
        _pop_text(tags, *_SCOPE_VERSION),
        resource=resource,
        trace_state=_pop_text(tags, _TRACE_STATE),
        flags=as_integer(raw.get("flags"), "flags", MAX_COUNT, problems) & 1,
        dropped_attributes=_pop_count(tags, _DROPPED_ATTRIBUTES),
        dropped_events=_pop_count(tags, _DROPPED_EVENTS),
        dropped_links=_pop_count(tags, _DROPPED_LINKS),
    )


def _id(raw: Any, digits: int) -> str:
    """An id padded with the leading zeros that Jaeger may omit; "" if it is invalid."""
    if not isinstance(raw, str) or not _HEX(raw) or len(raw) > digits:
        return ""
    return raw.lower().zfill(digits) if raw.strip("0") else ""


def _references(raw: Object, trace_id: str, problems: list[str]) -> tuple[str, tuple[Link, ...]]:
    """The id of the parent (the first CHILD_OF in the same trace), and the links."""
    parent_id = _id(raw.get("parentSpanID"), 16)
    links = []
    for item in as_objects(raw.get("references"), "references", problems):
        target, span_id = _id(item.get("traceID"), 32), _id(item.get("spanID"), 16)
        is_child = item.get("refType") == "CHILD_OF"
        if not target or not span_id:
            problems.append(f"a reference without valid ids ({short_repr(item)}); left out")
        elif is_child and target == trace_id and parent_id in ("", span_id):
            parent_id = span_id
        else:
            # Jaeger stores all links of OpenTelemetry as FOLLOWS_FROM.
            attributes = {"opentracing.ref_type": "child_of"} if is_child else {}
            links.append(Link(target, span_id, attributes))
    return parent_id, tuple(links)


def _pop_status(tags: dict[str, Any]) -> tuple[int, str]:
    """Remove the status from the tags, and return its code and message."""
    code = 0
    named_code = tags.get("otel.status_code")
    if isinstance(named_code, str) and named_code.upper() in (*_STATUSES, "UNSET"):
        code = _STATUSES.get(named_code.upper(), 0)
        del tags["otel.status_code"]
    error = tags.get("error")
    if error is True or (isinstance(error, str) and error.lower() == "true"):
        code = 2
        del tags["error"]
    return code, _pop_text(tags, "otel.status_description") if code else ""


def _events(raw: Any, problems: list[str]) -> tuple[Event, ...]:
    if not raw:
        return ()
    events = []
    for item in as_objects(raw, "logs", problems):
        time = as_integer(item.get("timestamp"), "log timestamp", _MAX_MICROSECONDS, problems)
        fields = _attributes(item, "fields", problems)
        dropped = _pop_count(fields, _DROPPED_ATTRIBUTES)
        # Jaeger's own clients called the name a message.
        keys = ("event",) if "event" in fields else ("message",)
        events.append(Event(_pop_text(fields, *keys), 1000 * time, fields, dropped))
    return tuple(events)


def _pop_text(tags: dict[str, Any], *keys: str) -> str:
    """Remove the tags with these keys, and return the first that is text; "" by default."""
    first_text = ""
    for key in keys:
        if isinstance(tags.get(key), str):
            text = tags.pop(key)
            first_text = first_text or text
    return first_text


def _pop_count(tags: dict[str, Any], key: str) -> int:
    """Remove a count from the tags, and return it; 0 by default."""
    value = tags.get(key)
    if isinstance(value, str) and value.isdecimal() and len(value) < 11:
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        return 0
    del tags[key]
    return value


def _attributes(raw: Object, key: str, problems: list[str]) -> dict[str, Any]:
    """Return tags as attributes, including tags that Elasticsearch stores as fields."""
    out: dict[str, Any] = {}
    fields = raw.get(key[:-1])
    if isinstance(fields, Mapping):  # `tag` beside `tags`, with @ in place of dots
        out.update({str(name).replace("@", "."): value for name, value in fields.items()})
    tags = raw.get(key)
    if isinstance(tags, Mapping):
        out.update({str(name): value for name, value in tags.items()})
        return out
    for item in as_objects(tags, key, problems):
        name = item.get("key")
        if not isinstance(name, str) or not name:
            problems.append(f"a tag without a key ({short_repr(item)}); left out")
            continue
        try:
            out[name] = _value(item)
        except ValueError:
            value = f"{short_repr(item.get('value'))} is not of type {short_repr(item.get('type'))}"
            problems.append(f"tag {short_repr(name)}: {value}; kept as it is")
            out[name] = item.get("value")
    return out


def _value(item: Object) -> Any:
    """The value of a tag, converted to its type.

    Raises:
        ValueError: It is not of this type.
    """
    value = item.get("value")
    kind = str(item.get("type") or "").lower()
    reader = _READERS.get(kind)
    return value if reader is None or value is None else reader(value)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    try:
        number = int(value)
    except OverflowError:
        raise ValueError from None
    if not -_INT64 <= number < _INT64 or (isinstance(value, float) and number != value):
        raise ValueError
    return number


def _float(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    try:
        return double_value(float(value))
    except OverflowError:
        raise ValueError from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError


def _binary(value: Any) -> dict[str, str]:
    return bytes_value(from_base64(_text(value)))


_READERS = {"string": _text, "bool": _bool, "int64": _int, "float64": _float, "binary": _binary}
