"""Spans and log records as rows, and back; lossless both ways."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from .. import semconv
from ..jsontext import dumps, restore
from ..model import Event, Link, LogRecord, Span

__all__ = [
    "LOG_SCHEMA",
    "SPAN_COLUMNS",
    "SPAN_SCHEMA",
    "log_of",
    "log_table",
    "rows_of",
    "span_table",
    "spans_of",
]

_TEXT, _BIG = pa.string(), pa.int64()

SPAN_SCHEMA = pa.schema(
    [
        *[(name, _TEXT) for name in ("trace_id", "span_id", "parent_id", "name")],
        ("kind", pa.uint8()),
        ("start_ns", _BIG),
        ("end_ns", _BIG),
        ("status_code", pa.uint8()),
        *[
            (name, _TEXT)
            for name in (
                *("status_message", "service", "scope", "scope_version", "operation", "agent"),
                *("conversation_id", "provider", "request_model", "response_model"),
                *("tool_name", "call_id", "error_type"),
            )
        ],
        ("input_tokens", _BIG),
        ("output_tokens", _BIG),
        *[
            (name, _TEXT)
            for name in (
                *("input_key", "input", "output_key", "output"),
                *("attributes", "events", "links", "resource", "rest"),
            )
        ],
        ("seq", _BIG),
    ]
)
LOG_SCHEMA = pa.schema(
    [
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("time_ns", _BIG),
        ("observed_ns", _BIG),
        ("event_name", _TEXT),
        ("severity", pa.int32()),
        *[(name, _TEXT) for name in ("severity_text", "service", "scope", "scope_version")],
        *[(name, _TEXT) for name in ("body", "attributes", "resource")],
        ("dropped_attributes", pa.int32()),
        ("fingerprint", _TEXT),
        ("seq", _BIG),
    ]
)

# The span's fields that are seldom anything but their default; kept together in `rest`.
_REST = (
    "scope_attributes",
    "trace_state",
    "flags",
    "dropped_attributes",
    "dropped_events",
    "dropped_links",
)


# Gives memory back; the default pool keeps some 50 MB of it.
_POOL = pa.system_memory_pool()


class _Texts:
    """JSON texts of mappings that many rows share, such as the resource."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[Mapping[str, Any], str]] = {}

    def of(self, value: Mapping[str, Any]) -> str:
        known = self.texts.get(id(value))
        if known is None or known[0] is not value:
            # The mapping is kept with its text so that its id stays its own.
            known = self.texts[id(value)] = (value, dumps(value))
        return known[1]


def span_table(spans: Sequence[Span], seq: int) -> pa.Table:
    """Return spans as a table of the schema of ``spans``.

    Args:
        spans: The spans.
        seq: The number of the first; the others count up.
    """
    texts = _Texts()
    rows = [_span_row(span, seq + index, texts) for index, span in enumerate(spans)]
    return _table(rows, SPAN_SCHEMA)


def log_table(records: Sequence[LogRecord], seq: int) -> pa.Table:
    """Return log records as a table of the schema of ``logs``.

    Args:
        records: The records.
        seq: The number of the first; the others count up.
    """
    texts = _Texts()
    rows = [_log_row(record, seq + index, texts) for index, record in enumerate(records)]
    return _table(rows, LOG_SCHEMA)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        try:
            arrays.append(pa.array(column, field.type, memory_pool=_POOL))
        except UnicodeEncodeError:
            arrays.append(pa.array([_encodable(value) for value in column], field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _encodable(value: Any) -> Any:
    """Return text without the lone surrogates that UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


# The promoted columns, each with the attributes it may come from, the first of them first.
_PROMOTED = {
    "operation": semconv.OPERATION,
    "agent": semconv.AGENT_NAME,
    "conversation_id": semconv.CONVERSATION_ID,
    "provider": semconv.PROVIDER,
    "request_model": semconv.REQUEST_MODEL,
    "response_model": semconv.RESPONSE_MODEL,
    "tool_name": semconv.TOOL_NAME,
    "call_id": semconv.CALL_ID,
    "error_type": ("error.type",),
    "input_tokens": semconv.TOKENS_IN,
    "output_tokens": semconv.TOKENS_OUT,
    "input_key": semconv.INPUT,
    "output_key": semconv.OUTPUT,
}
_TOKENS = {list(_PROMOTED).index(name) for name in ("input_tokens", "output_tokens")}
_INPUT, _OUTPUT = (list(_PROMOTED).index(name) for name in ("input_key", "output_key"))


def _places() -> dict[str, list[tuple[int, int]]]:
    """Return the columns that each attribute may fill, with its rank among those that may."""
    places: dict[str, list[tuple[int, int]]] = {}
    for column, keys in enumerate(_PROMOTED.values()):
        for rank, key in enumerate(keys):
            places.setdefault(key, []).append((column, rank))
    return places


_PLACES = _places()
_NOTHING = [None] * len(_PROMOTED)
_LAST = [99] * len(_PROMOTED)


def _promote(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the promoted columns of a span's attributes, in one pass over them."""
    found: list[Any] = _NOTHING.copy()
    ranks = _LAST.copy()
    for key in _PLACES.keys() & attributes.keys():
        value = attributes[key]
        for column, rank in _PLACES[key]:
            if rank < ranks[column] and _fits(column, value):
                ranks[column] = rank
                found[column] = key if column >= _INPUT else value
    return found


def _fits(column: int, value: Any) -> bool:
    if column in _TOKENS:
        return isinstance(value, int)
    if column >= _INPUT:
        return isinstance(value, str)
    return value is not None and value != ""


def _span_row(span: Span, seq: int, texts: _Texts) -> tuple[Any, ...]:
    attributes = span.attributes
    found = _promote(attributes)
    input_key, output_key = found[_INPUT], found[_OUTPUT]
    rest = attributes
    if input_key or output_key:
        rest = dict(attributes)
        rest.pop(input_key, None)
        rest.pop(output_key, None)
    return (
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.name,
        span.kind,
        span.start_ns,
        span.end_ns,
        span.status_code,
        span.status_message,
        span.resource.get("service.name", ""),
        span.scope,
        span.scope_version,
        *(value if value is None or type(value) is str else dumps(value) for value in found[:9]),
        *found[9:11],
        input_key,
        attributes[input_key] if input_key else None,
        output_key,
        attributes[output_key] if output_key else None,
        dumps(rest),
        _events_text(span),
        _links_text(span),
        texts.of(span.resource),
        _rest_text(span),
        seq,
    )


def _events_text(span: Span) -> str | None:
    if not span.events:
        return None
    return dumps([[e.name, e.time_ns, e.attributes, e.dropped_attributes] for e in span.events])


def _links_text(span: Span) -> str | None:
    if not span.links:
        return None
    return dumps([[link.trace_id, link.span_id, link.attributes] for link in span.links])


def _rest_text(span: Span) -> str | None:
    if not (
        span.flags
        or span.trace_state
        or span.scope_attributes
        or span.dropped_attributes
        or span.dropped_events
        or span.dropped_links
    ):
        return None
    return dumps({name: value for name in _REST if (value := getattr(span, name))})


# What a span is made of; the promoted columns repeat what is in the attributes.
SPAN_COLUMNS = (
    "trace_id, span_id, parent_id, name, kind, start_ns, end_ns, status_code, status_message, "
    "scope, scope_version, seq, input_key, input, output_key, output, attributes, events, links, "
    "resource, rest"
)


def spans_of(table: pa.Table) -> list[Span]:
    """Return the spans of a table of `SPAN_COLUMNS`."""
    resources: dict[str, dict[str, Any]] = {}
    spans = []
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        text = row[-2]
        if text not in resources:
            resources[text] = restore(text)
        spans.append(_span(*row[:-2], resources[text], row[-1]))
    return spans


def _span(
    trace_id: str,
    span_id: str,
    parent_id: str,
    name: str,
    kind: int,
    start_ns: int,
    end_ns: int,
    status_code: int,
    status_message: str,
    scope: str,
    scope_version: str,
    seq: int,
    input_key: str | None,
    input_text: str | None,
    output_key: str | None,
    output_text: str | None,
    attributes_text: str,
    events: str | None,
    links: str | None,
    resource: dict[str, Any],
    rest: str | None,
) -> Span:
    attributes = restore(attributes_text)
    if input_key is not None:
        attributes[input_key] = input_text
    if output_key is not None:
        attributes[output_key] = output_text
    return Span(
        trace_id,
        span_id,
        parent_id,
        name,
        kind,
        start_ns,
        end_ns,
        status_code,
        status_message,
        attributes,
        tuple(Event(*event) for event in restore(events)) if events else (),
        tuple(Link(*link) for link in restore(links)) if links else (),
        scope,
        scope_version,
        resource=resource,
        seq=seq,
        **(restore(rest) if rest else {}),
    )


def _log_row(record: LogRecord, seq: int, texts: _Texts) -> tuple[Any, ...]:
    body, attributes = dumps(record.body), dumps(record.attributes)
    identity = (
        f"{record.trace_id}\0{record.span_id}\0{record.time_ns}\0{record.observed_ns}\0"
        f"{record.event_name}\0{body}\0{attributes}"
    )
    return (
        record.trace_id,
        record.span_id,
        record.time_ns,
        record.observed_ns,
        record.event_name,
        record.severity,
        record.severity_text,
        str(record.resource.get("service.name", "")),
        record.scope,
        record.scope_version,
        body,
        attributes,
        texts.of(record.resource),
        record.dropped_attributes,
        hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=12).hexdigest(),
        seq,
    )


def log_of(row: Mapping[str, Any]) -> LogRecord:
    """Return the log record of a row of ``logs``."""
    return LogRecord(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        time_ns=row["time_ns"],
        observed_ns=row["observed_ns"],
        event_name=row["event_name"],
        severity=row["severity"],
        severity_text=row["severity_text"],
        body=restore(row["body"]),
        attributes=restore(row["attributes"]),
        scope=row["scope"],
        scope_version=row["scope_version"],
        resource=restore(row["resource"]),
        dropped_attributes=row["dropped_attributes"],
        seq=row["seq"],
    )


def rows_of(table: pa.Table) -> Iterable[dict[str, Any]]:
    """Yield a table's rows as mappings."""
    for batch in table.to_batches(max_chunksize=4096):
        yield from batch.to_pylist()
