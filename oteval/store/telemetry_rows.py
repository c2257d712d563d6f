"""Spans and log records as rows of the tables ``spans`` and ``logs``, and back, without loss.

Attributes that people filter by are also columns, "promoted" by `semconv` names. The content of a
span is stored once: ``input`` and ``output`` contain the values of the attributes that
``input_key`` and ``output_key`` name, and ``attributes`` contains the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ..base.jsontext import dumps, restore
from ..model import (
    IDENTITIES,
    Event,
    Link,
    LogRecord,
    Span,
    conversation_id,
    identity,
    own_attribute,
    own_value,
    semconv,
)
from .arrow_rows import table_of

__all__ = [
    "CONTENTS",
    "LOG_SCHEMA",
    "PROMOTED_NUMBERS",
    "PROMOTED_TEXTS",
    "SPAN_COLUMNS",
    "SPAN_SCHEMA",
    "events_text",
    "links_text",
    "log_of",
    "log_table",
    "rest_text",
    "span_table",
    "spans_of",
    "spans_of_rows",
    "with_identities",
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

# Fields of a span that usually have their default value. The column `rest` contains the others.
_REST = (
    "scope_attributes",
    "trace_state",
    "flags",
    "dropped_attributes",
    "dropped_events",
    "dropped_links",
)


class _JsonCache:
    """A cache of the JSON text of mappings that many rows share, such as the resource."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[Mapping[str, Any], str]] = {}

    def text(self, value: Mapping[str, Any]) -> str:
        cached = self.texts.get(id(value))
        if cached is None or cached[0] is not value:
            # While the mapping is kept, no other mapping can get its id.
            cached = self.texts[id(value)] = (value, dumps(value))
        return cached[1]


def span_table(spans: Sequence[Span], seq: int) -> pa.Table:
    """Return spans as rows of ``spans``.

    Args:
        spans: The spans.
        seq: The number of the first. The numbers of the others follow.
    """
    cache = _JsonCache()
    rows = [_span_row(span, seq + index, cache) for index, span in enumerate(spans)]
    return with_identities(table_of(rows, SPAN_SCHEMA))


def with_identities(table: pa.Table) -> pa.Table:
    """Return rows of ``spans`` with placeholders for a conversation id removed.

    The attributes that the user named for `identities` are copied to attributes that are always
    read, so all programs that open the store agree on them.

    Args:
        table: Rows of ``spans``, with the first value of `semconv.CONVERSATION_ID` as conversation.
    """
    names = table["conversation_id"].unique().to_pylist()
    placeholders = [name for name in names if name is not None and not identity(name)]
    own = {kind: name for kind in IDENTITIES if (name := own_attribute(kind))}
    if not placeholders and not own:
        return table
    import pyarrow.compute as pc  # takes a tenth of a second, and few loads need it

    is_changed = pc.is_in(table["conversation_id"], pa.array(placeholders, pa.string()))
    for kind, name in own.items():
        for column in ("attributes", "resource")[: 1 + IDENTITIES[kind].in_resource]:
            is_changed = pc.or_(is_changed, pc.match_substring(table[column], f"{dumps(name)}:"))
    attributes, resources = (
        [restore(text) for text in table[name].filter(is_changed).to_pylist()]
        for name in ("attributes", "resource")
    )
    for span_attributes, resource in zip(attributes, resources, strict=True):
        _copy_identities(own, span_attributes, resource)
    columns = {
        "conversation_id": [
            conversation_id(span_attributes) or None for span_attributes in attributes
        ],
        "attributes": [dumps(span_attributes) for span_attributes in attributes],
    }
    for name, values in columns.items():
        column_index = table.schema.get_field_index(name)
        changed = pc.replace_with_mask(
            table.column(column_index).combine_chunks(),
            is_changed.combine_chunks(),
            pa.array(values, pa.string()),
        )
        table = table.set_column(column_index, table.schema.field(column_index), changed)
    return table


def _copy_identities(
    kinds: Iterable[str], attributes: dict[str, Any], resource: Mapping[str, Any]
) -> None:
    """Copy the attributes that the user named to the attributes that are always read."""
    for kind in kinds:
        about = IDENTITIES[kind]
        if value := own_value(kind, attributes, resource if about.in_resource else None):
            attributes[about.copy] = value


def log_table(records: Sequence[LogRecord], seq: int) -> pa.Table:
    """Return log records as rows of ``logs``.

    Args:
        records: The records.
        seq: The number of the first. The numbers of the others follow.
    """
    cache = _JsonCache()
    rows = [_log_row(record, seq + index, cache) for index, record in enumerate(records)]
    return table_of(rows, LOG_SCHEMA)


# The promoted columns in their order, each with the attributes that it is read from, preferred
# first.
PROMOTED_TEXTS = (
    semconv.OPERATION,
    semconv.AGENT_NAME,
    semconv.CONVERSATION_ID,
    semconv.PROVIDER,
    semconv.REQUEST_MODEL,
    semconv.RESPONSE_MODEL,
    semconv.TOOL_NAME,
    semconv.CALL_ID,
    ("error.type",),
)
PROMOTED_NUMBERS = (semconv.TOKENS_IN, semconv.TOKENS_OUT)
CONTENTS = (semconv.INPUT, semconv.OUTPUT)
_INT64 = 1 << 63

# Positions in one of the three tuples above, each with the attributes that a span has.
_Sources = tuple[tuple[int, tuple[str, ...]], ...]


@lru_cache(maxsize=1024)
def _sources(keys: tuple[str, ...]) -> tuple[_Sources, _Sources, _Sources]:
    """The promoted columns that a span's attributes can fill, each with these attributes.

    Spans of one kind have the same attributes, so most results come from the cache.
    """
    present = frozenset(keys)
    texts, numbers, contents = (
        tuple(
            (column, present_names)
            for column, names in enumerate(columns)
            if (present_names := tuple(name for name in names if name in present))
        )
        for columns in (PROMOTED_TEXTS, PROMOTED_NUMBERS, CONTENTS)
    )
    return texts, numbers, contents


def _first_text(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = attributes[key]
        if value.__class__ is str and value:
            return value
        if value is not None and value != "":
            return dumps(value)
    return None


def _first_number(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = attributes[key]
        if type(value) is int and -_INT64 <= value < _INT64:
            return value
    return None


def _first_content(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The name of the first attribute with a text as its value."""
    for key in keys:
        if isinstance(attributes[key], str):
            return key
    return None


def _span_row(span: Span, seq: int, cache: _JsonCache) -> tuple[Any, ...]:
    attributes = span.attributes
    texts, numbers, contents = _sources(tuple(attributes))
    promoted: list[str | None] = [None] * len(PROMOTED_TEXTS)
    for column, keys in texts:
        promoted[column] = _first_text(attributes, keys)
    tokens: list[int | None] = [None, None]
    for column, keys in numbers:
        tokens[column] = _first_number(attributes, keys)
    content: list[str | None] = [None, None]
    for column, keys in contents:
        content[column] = _first_content(attributes, keys)
    input_key, output_key = content
    other_attributes = attributes
    if input_key or output_key:
        other_attributes = {
            k: v for k, v in attributes.items() if k != input_key and k != output_key
        }
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
        span.service,
        span.scope,
        span.scope_version,
        *promoted,
        *tokens,
        input_key,
        attributes[input_key] if input_key else None,
        output_key,
        attributes[output_key] if output_key else None,
        dumps(other_attributes),
        events_text(span.events) if span.events else None,
        links_text(span.links) if span.links else None,
        cache.text(span.resource),
        rest_text(span),
        seq,
    )


def events_text(events: Sequence[Event]) -> str:
    """The value of the column ``events``."""
    return dumps([[e.name, e.time_ns, e.attributes, e.dropped_attributes] for e in events])


def links_text(links: Sequence[Link]) -> str:
    """The value of the column ``links``."""
    return dumps([[link.trace_id, link.span_id, link.attributes] for link in links])


def rest_text(span: Span) -> str | None:
    """The value of the column ``rest``: the fields that usually have their default."""
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


# The columns that a span is built from. Promoted columns only repeat attributes.
SPAN_COLUMNS = (
    "trace_id, span_id, parent_id, name, kind, start_ns, end_ns, status_code, status_message, "
    "scope, scope_version, seq, input_key, input, output_key, output, attributes, events, links, "
    "resource, rest"
)


def spans_of(table: pa.Table) -> list[Span]:
    """The spans of a table of `SPAN_COLUMNS`."""
    return spans_of_rows(zip(*(c.to_pylist() for c in table.columns), strict=True))


def spans_of_rows(rows: Iterable[tuple[Any, ...]]) -> list[Span]:
    """The spans of rows of `SPAN_COLUMNS`."""
    resources: dict[str, dict[str, Any]] = {}
    spans = []
    for row in rows:
        trace_id, span_id, parent_id, name, kind, start_ns, end_ns, status_code = row[:8]
        status_message, scope, scope_version, seq = row[8:12]
        input_key, input_text, output_key, output_text = row[12:16]
        attributes_text, events, links, resource, other_fields = row[16:]
        attributes = restore(attributes_text)
        if input_key is not None:
            attributes[input_key] = input_text
        if output_key is not None:
            attributes[output_key] = output_text
        if resource not in resources:
            resources[resource] = restore(resource)
        spans.append(
            Span(
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
                resource=resources[resource],
                seq=seq,
                **(restore(other_fields) if other_fields else {}),
            )
        )
    return spans


def _log_row(record: LogRecord, seq: int, cache: _JsonCache) -> tuple[Any, ...]:
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
        cache.text(record.resource),
        record.dropped_attributes,
        hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=12).hexdigest(),
        seq,
    )


def log_of(row: Mapping[str, Any]) -> LogRecord:
    """The log record of a row of ``logs``."""
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
