"""Columns of other tables that contain spans, and timestamps in addition to times in ns.

Columns of other tables are renamed to the names in ClickHouse's ``otel_traces``. Its decoder
accepts times as timestamps, texts or numbers, attributes as maps, structs or JSON text, and kinds
by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...base.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["FIELDS", "clickhouse_names", "column_parts", "with_timestamps"]

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
_TIMESTAMPS = {"start_ns": "start_time", "end_ns": "end_time", "time_ns": "score_time"}


def clickhouse_names(columns: Mapping[str, str]) -> dict[str, str]:
    """The column of a table for each column of ``otel_traces``.

    Args:
        columns: The column for each field, a key of `FIELDS`.

    Raises:
        InputError: A field does not exist or is missing, or both ``end`` and ``duration_ns`` are
            set.
    """
    for field in columns:
        if field not in FIELDS:
            raise InputError(f"columns: unknown field {field!r}; there are {', '.join(FIELDS)}")
    if missing := next((field for field in _NEEDED if field not in columns), ""):
        raise InputError(f"columns: {missing!r} is missing; spans need {', '.join(_NEEDED)}")
    if ("end" in columns) == ("duration_ns" in columns):
        raise InputError("columns: give either 'end' or 'duration_ns'")
    return {FIELDS[field]: column for field, column in columns.items()}


def column_parts(field: str, column: str, schema: StructType) -> tuple[str, ...]:
    """The names that lead to a column, which may be nested: ``resource.attrs``.

    A column of the table whose own name has dots comes before a nested column.

    Args:
        field: The field that the column is for.
        column: The column, or the path to it through structs and maps.
        schema: The columns of the table.

    Raises:
        InputError: The table has no such column.
    """
    parts = _descend(schema, column)
    if parts is None:
        raise InputError(
            f"columns: {field} is {column!r}, but the table has {', '.join(_leaves(schema))}"
        )
    return parts


def with_timestamps(rows: DataFrame) -> DataFrame:
    """Return rows with a timestamp of Spark (us) in addition to each time in ns."""
    from pyspark.sql import functions as sql

    added = {
        name: sql.expr(f"timestamp_micros({column} DIV 1000)")
        for column, name in _TIMESTAMPS.items()
        if column in rows.columns
    }
    return rows.withColumns(added)


def _descend(kind: Any, path: str) -> tuple[str, ...] | None:
    """The names of a path through a type, or None if it leads nowhere."""
    if kind.typeName() == "map":
        return (path,)
    if kind.typeName() != "struct":
        return None
    if path in kind.names:
        return (path,)
    # The longest name first, as with a column of the table.
    for name in sorted(kind.names, key=len, reverse=True):
        inner_path = path.removeprefix(f"{name}.")
        below = _descend(kind[name].dataType, inner_path) if inner_path != path else None
        if below is not None:
            return (name, *below)
    return None


def _leaves(schema: Any, prefix: str = "") -> list[str]:
    """The columns of a table, and the columns in its structs."""
    names: list[str] = []
    for name in schema.names:
        names.append(f"{prefix}{name}")
        if schema[name].dataType.typeName() == "struct":
            names += _leaves(schema[name].dataType, f"{prefix}{name}.")
    return names
