"""Spans in the columns of another table, by a mapping from fields of spans to columns.

The columns are renamed to those of ClickHouse's ``otel_traces``, whose decoder accepts times as
timestamps, texts or numbers, attributes as maps, structs or JSON text, and kinds by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import InputError

__all__ = ["FIELDS", "clickhouse_names"]

FIELDS: Final = {
    "trace_id": "TraceId",
    "span_id": "SpanId",
    "parent_id": "ParentSpanId",
    "trace_state": "TraceState",
    "name": "SpanName",
    "kind": "SpanKind",
    "start": "Timestamp",
    "end": "Duration",
    "duration_ns": "Duration",
    "status": "StatusCode",
    "status_message": "StatusMessage",
    "service": "ServiceName",
    "scope": "ScopeName",
    "scope_version": "ScopeVersion",
    "attributes": "SpanAttributes",
    "resource": "ResourceAttributes",
    "events": "Events",
    "links": "Links",
}
"""The fields of a span, each with the column of ``otel_traces``."""
_NEEDED = ("trace_id", "span_id", "name", "start")


def clickhouse_names(columns: Mapping[str, str], given: Iterable[str]) -> dict[str, str]:
    """Return the column of a table for each column of ``otel_traces``.

    Args:
        columns: The column for each field, a key of `FIELDS`.
        given: The columns that the table has.

    Raises:
        InputError: A field or column does not exist, a field is missing, or both ``end`` and
            ``duration_ns`` are given.
    """
    known = list(given)
    for field, column in columns.items():
        if field not in FIELDS:
            raise InputError(f"columns: unknown field {field!r}; there are {', '.join(FIELDS)}")
        if column not in known:
            raise InputError(
                f"columns: {field} is {column!r}, but the table has {', '.join(known)}"
            )
    if missing := next((field for field in _NEEDED if field not in columns), ""):
        raise InputError(f"columns: {missing!r} is missing; spans need {', '.join(_NEEDED)}")
    if ("end" in columns) == ("duration_ns" in columns):
        raise InputError("columns: give either 'end' or 'duration_ns'")
    return {FIELDS[field]: column for field, column in columns.items()}
