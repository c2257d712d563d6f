"""Spans and log records from Parquet files that `Spans.export` and `Spans.export_logs` wrote.

Unlike the store's own tables, a file may contain anything, so every row is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ..model import LogRecord, Span
from .query import rows_of
from .telemetry_rows import LOG_SCHEMA, SPAN_COLUMNS, SPAN_SCHEMA, log_of, spans_of

__all__ = ["LOG_NAMES", "SPAN_NAMES", "exported_logs", "exported_spans"]

SPAN_NAMES = tuple(SPAN_COLUMNS.split(", "))
"""The columns that are read of exported spans."""
LOG_NAMES = tuple(name for name in LOG_SCHEMA.names if name not in ("service", "fingerprint"))
"""The columns that are read of exported log records."""

_TRACE_ID = re.compile(r"[0-9a-f]{32}").fullmatch
_SPAN_ID = re.compile(r"[0-9a-f]{16}").fullmatch
_OPTIONAL = {"input_key", "input", "output_key", "output", "events", "links", "rest"}
_BAD_JSON = (AttributeError, KeyError, TypeError, RecursionError)


def exported_spans(rows: pa.RecordBatch) -> list[Span]:
    """The spans of some rows.

    Raises:
        ValueError: A store cannot have written one of the rows.
    """
    table = _table(rows, SPAN_NAMES, SPAN_SCHEMA)
    try:
        spans = spans_of(table)
    except _BAD_JSON as error:
        raise ValueError(f"not an exported span ({error})") from None
    for span in spans:
        if not (_TRACE_ID(span.trace_id) and _SPAN_ID(span.span_id) and _is_span(span)):
            raise ValueError("not an exported span")
    return spans


def exported_logs(rows: pa.RecordBatch) -> list[LogRecord]:
    """The log records of some rows.

    Raises:
        ValueError: A store cannot have written one of the rows.
    """
    table = _table(rows, LOG_NAMES, LOG_SCHEMA)
    try:
        records = [log_of(row) for row in rows_of(table)]
    except _BAD_JSON as error:
        raise ValueError(f"not an exported log record ({error})") from None
    for record in records:
        if not _are(dict, [record.attributes, record.resource]):
            raise ValueError("not an exported log record")
    return records


def _table(rows: pa.RecordBatch, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    chosen_schema = pa.schema([schema.field(name) for name in names])
    try:
        table = pa.Table.from_batches([rows]).select(names).cast(chosen_schema)
    except (pa.ArrowException, KeyError) as error:
        raise ValueError(f"columns differ from exported ones ({error})") from None
    missing = [name for name in names if name not in _OPTIONAL and table[name].null_count]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    return table


def _is_span(span: Span) -> bool:
    return (
        (not span.parent_id or bool(_SPAN_ID(span.parent_id)))
        and _are(dict, [span.attributes, span.resource, span.scope_attributes])
        and _are(dict, [event.attributes for event in span.events])
        and _are(dict, [link.attributes for link in span.links])
        and _are(str, [span.trace_state, *(event.name for event in span.events)])
        and _are(str, [text for link in span.links for text in (link.trace_id, link.span_id)])
        and _are(int, [span.flags, span.dropped_attributes, span.dropped_events])
        and _are(int, [span.dropped_links, *(event.time_ns for event in span.events)])
        and _are(int, [event.dropped_attributes for event in span.events])
    )


def _are(kind: type, values: Iterable[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)
