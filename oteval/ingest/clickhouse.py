"""Rows of ClickHouse's ``otel_traces`` and ``otel_logs`` to spans and log records.

The Collector's ClickHouse exporter creates these tables; all its versions are supported: attributes
as maps of text or as JSON, events and links in one column each or in several. In a map, all values
are text: numbers and booleans as written, lists and objects as JSON. A time without a zone is UTC.

See https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/clickhouseexporter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..base.jsontext import loads
from ..base.times import ns_of_iso
from ..model import Event, Link, LogRecord, Span, semconv
from .otlp.decoded import MAX_SEVERITY, MAX_TIME, Decoded, prefix_problems, short_repr
from .otlp.json_fields import (
    Object,
    as_integer,
    as_span_id,
    as_text,
    as_trace_id,
    json_kind,
    not_objects,
)

__all__ = ["COLUMNS", "decode_log", "decode_span", "is_log", "is_span"]

COLUMNS = frozenset(
    {"Timestamp", "TimestampTime", "TraceId", "SpanId", "ParentSpanId", "TraceState", "SpanName"}
    | {"SpanKind", "ServiceName", "ResourceAttributes", "ScopeName", "ScopeVersion"}
    | {"SpanAttributes", "Duration", "StatusCode", "StatusMessage", "Events", "Links"}
    | {"Events.Timestamp", "Events.Name", "Events.Attributes"}
    | {"Links.TraceId", "Links.SpanId", "Links.TraceState", "Links.Attributes"}
    | {"TraceFlags", "SeverityText", "SeverityNumber", "Body", "ResourceSchemaUrl"}
    | {"ScopeSchemaUrl", "ScopeAttributes", "LogAttributes", "EventName"}
)
"""All columns of either table that are read, or that identify a table."""

_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES = ("UNSET", "OK", "ERROR")
_EVENT = ("Timestamp", "Name", "Attributes")
_LINK = ("TraceId", "SpanId", "TraceState", "Attributes")
_SCOPE = ("otel.scope.name", "otel.library.name")
_SCOPE_VERSION = ("otel.scope.version", "otel.library.version")

_NUMBER = re.compile(r"(\d{1,20})(?:\.(\d+))?").fullmatch
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:?\d\d)?"
).fullmatch
_SECOND = 10**9
# Attributes that are numbers; in a map they are text.
_COUNTS = frozenset((*semconv.TOKENS_IN, *semconv.TOKENS_OUT))
_COUNT = re.compile(r"\d{1,15}", re.ASCII).fullmatch


def is_span(columns: Mapping[str, Any] | frozenset[str]) -> bool:
    """Whether a row with these columns is from ``otel_traces``."""
    return "TraceId" in columns and "SpanId" in columns and "SpanName" in columns


def is_log(columns: Mapping[str, Any] | frozenset[str]) -> bool:
    """Whether a row with these columns is from ``otel_logs``."""
    if "Timestamp" not in columns or "Body" not in columns:
        return False
    return any(name in columns for name in ("LogAttributes", "SeverityText", "SeverityNumber"))


def decode_span(row: Object, out: Decoded) -> None:
    """Decode a row of ``otel_traces``, and add its span to `out`."""
    start = len(out.problems)
    name = _text(row, "SpanName", out.problems)
    span = _span(row, name, out.problems)
    if len(out.problems) > start:
        prefix_problems(out.problems, start, "span", name)
    if span is not None:
        out.spans.append(span)


def _span(row: Object, name: str, problems: list[str]) -> Span | None:
    trace_id, span_id = (
        as_trace_id(_plain(row.get("TraceId"))),
        as_span_id(_plain(row.get("SpanId"))),
    )
    if not trace_id or not span_id:
        column, wrong = (
            ("SpanId", row.get("SpanId")) if trace_id else ("TraceId", row.get("TraceId"))
        )
        problems.append(f"{column} {short_repr(wrong)} is not a valid id in hex; span skipped")
        return None
    parent_id = as_span_id(_plain(row.get("ParentSpanId")))
    if parent_id is None:
        problems.append(
            f"ParentSpanId {short_repr(row.get('ParentSpanId'))} is not a span id; left out"
        )
    attributes = _attributes(row.get("SpanAttributes"), "SpanAttributes", problems)
    start_ns = _time(row.get("Timestamp"), "Timestamp", problems)
    duration = as_integer(_plain(row.get("Duration")), "Duration", MAX_TIME, problems)
    scope, version = _scope(row, attributes, problems)
    return Span(
        trace_id,
        span_id,
        parent_id or "",
        name,
        _enum(row.get("SpanKind"), "SpanKind", "SPAN_KIND_", _KINDS, problems),
        start_ns,
        min(start_ns + duration, MAX_TIME),
        _enum(row.get("StatusCode"), "StatusCode", "STATUS_CODE_", _STATUSES, problems),
        _text(row, "StatusMessage", problems),
        attributes,
        tuple(_events(row, problems)),
        tuple(_links(row, problems)),
        scope,
        version,
        resource=_resource(row, problems),
        trace_state=_text(row, "TraceState", problems),
    )


def decode_log(row: Object, out: Decoded) -> None:
    """Decode a row of ``otel_logs``, and add its log record to `out`."""
    problems = out.problems
    start = len(problems)
    attributes = _attributes(row.get("LogAttributes"), "LogAttributes", problems)
    event_name = _text(row, "EventName", problems)
    event_name = event_name or semconv.named_event(attributes)
    trace_id, span_id = (
        as_trace_id(_plain(row.get("TraceId"))),
        as_span_id(_plain(row.get("SpanId"))),
    )
    if trace_id is None:
        problems.append(f"TraceId {short_repr(row.get('TraceId'))} is not a trace id; left out")
    if span_id is None:
        problems.append(f"SpanId {short_repr(row.get('SpanId'))} is not a span id; left out")
    time_ns = _time(row.get("Timestamp"), "Timestamp", problems)
    severity = _plain(row.get("SeverityNumber"))
    scope, version = _scope(row, attributes, problems)
    out.logs.append(
        LogRecord(
            trace_id or "",
            span_id or "",
            time_ns,
            # The table has only one time: the record's time or, without it, the observed time.
            time_ns,
            event_name,
            as_integer(severity, "SeverityNumber", MAX_SEVERITY, problems),
            _text(row, "SeverityText", problems),
            _body(_plain(row.get("Body"))),
            attributes,
            scope,
            version,
            _resource(row, problems),
        )
    )
    if len(problems) > start:
        prefix_problems(problems, start, "log record", event_name)


def _body(value: Any) -> Any:
    """A body; an object or list, which the table stores as JSON text, is parsed."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value or None
    try:
        return loads(value)
    except ValueError:
        return value


def _resource(row: Object, problems: list[str]) -> dict[str, Any]:
    resource = _attributes(row.get("ResourceAttributes"), "ResourceAttributes", problems)
    service = _text(row, "ServiceName", problems)
    if service:
        resource.setdefault("service.name", service)
    return resource


def _scope(row: Object, attributes: dict[str, Any], problems: list[str]) -> tuple[str, str]:
    """The scope and its version; old tables store them among the attributes."""
    name, version = _text(row, "ScopeName", problems), _text(row, "ScopeVersion", problems)
    if "ScopeName" not in row:
        name, version = _pop_text(attributes, _SCOPE), _pop_text(attributes, _SCOPE_VERSION)
    return name, version


def _pop_text(attributes: dict[str, Any], keys: Sequence[str]) -> str:
    for key in keys:
        if isinstance(attributes.get(key), str):
            return str(attributes.pop(key))
    return ""


def _events(row: Object, problems: list[str]) -> Iterator[Event]:
    for item in _nested(row, "Events", _EVENT, problems):
        time = _time(item.get("Timestamp"), "event Timestamp", problems)
        attributes = _attributes(item.get("Attributes"), "event Attributes", problems)
        yield Event(_text(item, "Name", problems), time, attributes)


def _links(row: Object, problems: list[str]) -> Iterator[Link]:
    for item in _nested(row, "Links", _LINK, problems):
        trace_id = as_trace_id(_plain(item.get("TraceId")))
        span_id = as_span_id(_plain(item.get("SpanId")))
        if trace_id and span_id:
            attributes = _attributes(item.get("Attributes"), "link Attributes", problems)
            yield Link(trace_id, span_id, attributes)
        else:
            problems.append("a link without valid ids; left out")


def _nested(
    row: Object, name: str, fields: Sequence[str], problems: list[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a nested column, which may be stored as several columns."""
    value = row.get(name)
    if value is None:
        value = {field: row.get(f"{name}.{field}") for field in fields}
    if isinstance(value, Mapping):
        lists = {key: items for key, items in value.items() if isinstance(items, list)}
        count = max(map(len, lists.values()), default=0)
        value = [
            {key: items[index] for key, items in lists.items() if index < len(items)}
            for index in range(count)
        ]
    if not isinstance(value, list):
        problems.append(f"{name} is {json_kind(value)} instead of a list; left out")
        return
    wrong = 0
    for item in value:
        if isinstance(item, Mapping):
            yield item
        elif isinstance(item, (list, tuple)):  # a tuple without names
            yield dict(zip(fields, item, strict=False))
        else:
            wrong += 1
    if wrong:
        problems.append(f"{not_objects(wrong, name)}; left out")


def _attributes(value: Any, field: str, problems: list[str]) -> dict[str, Any]:
    """Attributes from a map, from pairs, or from a nested object (possibly as text)."""
    value = _plain(value)
    if isinstance(value, str):
        with suppress(ValueError):
            value = loads(value) if value else None
    if value is None:
        return {}
    out: dict[str, Any] = {}
    if isinstance(value, Mapping):
        _flatten(value, "", out)
        return out
    if isinstance(value, list):
        for item in value:
            if isinstance(item, (list, tuple)) and len(item) == 2:
                _put(out, str(_plain(item[0])), _plain(item[1]))
            elif isinstance(item, Mapping) and "key" in item:
                _put(out, str(_plain(item["key"])), _plain(item.get("value")))
            else:
                problems.append(f"{field}: an entry without a key ({short_repr(item)}); left out")
        return out
    problems.append(f"{field} is {json_kind(value)} instead of a map; left out")
    return out


def _flatten(value: Mapping[str, Any], prefix: str, out: dict[str, Any]) -> None:
    """Add the values of an object as attributes ``a.b``, which ClickHouse's JSON stores nested."""
    # A list in place of recursion, because objects may be nested deeper than Python's stack.
    waiting = [(prefix, value)]
    while waiting:
        prefix, value = waiting.pop()
        for key, item in value.items():
            if isinstance(item, Mapping):
                waiting.append((f"{prefix}{key}.", item))
            elif item is not None:
                _put(out, f"{prefix}{key}", _plain(item))


def _put(out: dict[str, Any], key: str, value: Any) -> None:
    if key in _COUNTS and isinstance(value, str) and _COUNT(value):
        value = int(value)
    out[key] = value


def _text(row: Object, key: str, problems: list[str]) -> str:
    return as_text(_plain(row.get(key)), key, problems)


def _plain(value: Any) -> Any:
    """Return bytes decoded to text; Parquet may store ClickHouse's text as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _enum(value: Any, field: str, prefix: str, names: Sequence[str], problems: list[str]) -> int:
    """The number of a kind or status that is written by name, with or without prefix."""
    value = _plain(value)
    if isinstance(value, str):
        name = value.upper().removeprefix(prefix)
        if not name:
            return 0
        if name in names:
            return names.index(name)
    return as_integer(value, field, len(names) - 1, problems)


def _time(value: Any, field: str, problems: list[str]) -> int:
    """A time in ns, from a date and time, from seconds as text, or from a number."""
    value = _plain(value)
    if value is None or value == "":
        return 0
    time_ns = _from_text(value) if isinstance(value, str) else _from_number(value)
    if time_ns is not None and 0 <= time_ns <= MAX_TIME:
        return time_ns
    problems.append(f"{field} {short_repr(value)} is not a time; taken as 0")
    return 0


def _from_text(text: str) -> int | None:
    number = _NUMBER(text)
    if number:
        whole_seconds, fraction = number.groups()
        if fraction is None:
            return _from_number(int(whole_seconds))
        return int(whole_seconds) * _SECOND + _fraction(fraction)
    match = _TIME(text)
    if match is None:
        return None
    day, time, fraction, zone = match.groups()
    try:
        return ns_of_iso(f"{day}T{time}{zone or ''}") + _fraction(fraction)
    except ValueError:
        return None


def _fraction(digits: str | None) -> int:
    return int((digits or "0")[:9].ljust(9, "0"))


def _from_number(value: Any) -> int | None:
    """Return ns from a number of s, ms, µs or ns; until 2262, the magnitude shows the unit."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        scale = next(scale for scale in (_SECOND, 10**6, 10**3, 1) if value * scale < 10**19)
        return int(value * scale)
    except (OverflowError, StopIteration, ValueError):
        return None
