"""Spans and log records of rows, and the rows that cannot be read.

A store never has such rows, but files that others wrote may. A trace with such a row is not scored
as if the row was missing: its run has a gap that names the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...model import LogRecord, Span
from ...scoring import telemetry_of
from ...store import LOG_SCHEMA, SPAN_COLUMNS

__all__ = ["NEEDED_OF_LOGS", "NEEDED_OF_SPANS", "Telemetry", "UnreadableRow", "read_rows"]

_NULLABLE = {"input_key", "input", "output_key", "output", "events", "links", "rest", "seq"}
_SPAN_NAMES = [name for name in SPAN_COLUMNS.split(", ") if name not in _NULLABLE]
_LOG_NAMES = [name for name in LOG_SCHEMA.names if name not in ("seq", "service")]
NEEDED_OF_SPANS: Final = frozenset((*_SPAN_NAMES, "conversation_id"))
"""The columns of spans that are necessary to read or group a row."""
NEEDED_OF_LOGS: Final = frozenset(_LOG_NAMES)
"""The columns of log records that are necessary to read a row."""


class UnreadableRow(NamedTuple):
    """A row that cannot be read.

    Attributes:
        span: Its ids and times, as far as they are known.
        reason: The error.
    """

    span: Span
    reason: str


class Telemetry(NamedTuple):
    """The content of some rows.

    Attributes:
        spans: The spans, each once.
        logs: The log records, each once.
        unreadable: The rows that cannot be read.
    """

    spans: list[Span]
    logs: list[LogRecord]
    unreadable: list[UnreadableRow]


def read_rows(spans: pa.Table, logs: pa.Table) -> Telemetry:
    """Return the spans and log records of rows.

    Args:
        spans: Rows of the table ``spans``.
        logs: Rows of the table ``logs``.
    """
    spans, bad_spans = _with_values(spans, _SPAN_NAMES, "span_id")
    logs, bad_logs = _with_values(logs, _LOG_NAMES, "")
    unreadable = [*bad_spans, *bad_logs]
    try:
        read_spans, records = telemetry_of(spans, logs)
        _require_objects([*read_spans, *records])
    except (TypeError, ValueError, AttributeError):
        spans, bad_spans = _parsed(spans, lambda row: telemetry_of(row, None)[0])
        none = spans.slice(0, 0)
        logs, bad_logs = _parsed(logs, lambda row: telemetry_of(none, row)[1])
        unreadable += [*bad_spans, *bad_logs]
        read_spans, records = telemetry_of(spans, logs)
    return Telemetry(read_spans, records, unreadable)


def _with_values(
    table: pa.Table, names: Iterable[str], identity: str
) -> tuple[pa.Table, list[UnreadableRow]]:
    """The rows that have a value in each column, and the others."""
    bad: pa.ChunkedArray | None = None
    reasons: dict[int, str] = {}
    for name in names:
        column = table[name]
        missing = column.is_null()
        if name in ("trace_id", identity):
            missing = pc.or_(missing, pc.equal(pc.fill_null(column, ""), ""))
        if pc.any(missing).as_py():
            bad = missing if bad is None else pc.or_(bad, missing)
            for row in pc.indices_nonzero(missing).to_pylist():
                reasons.setdefault(row, f"a row has no {name}")
    if bad is None:
        return table, []
    rows = [_unreadable(table, row, reason) for row, reason in sorted(reasons.items())]
    return table.filter(pc.invert(bad)), rows


def _parsed(
    table: pa.Table, read: Callable[[pa.Table], Iterable[Any]]
) -> tuple[pa.Table, list[UnreadableRow]]:
    """The rows that can be read one by one, and the others."""
    good, bad = [], []
    for row in range(len(table)):
        try:
            _require_objects(read(table.slice(row, 1)))
            good.append(row)
        except (TypeError, ValueError, AttributeError) as error:
            bad.append(_unreadable(table, row, f"a row cannot be read: {error}"))
    return table.take(pa.array(good, pa.int64())), bad


def _require_objects(records: Iterable[Span | LogRecord]) -> None:
    for record in records:
        if record.attributes.__class__ is not dict or record.resource.__class__ is not dict:
            raise TypeError("the attributes or the resource are not a JSON object")


def _unreadable(table: pa.Table, row_index: int, reason: str) -> UnreadableRow:
    row = {name: table[name][row_index].as_py() for name in ("trace_id", "span_id")}
    times = [
        (table[name][row_index].as_py() or 0) if name in table.column_names else 0
        for name in ("start_ns", "end_ns")
    ]
    return UnreadableRow(
        Span(row["trace_id"] or "", row["span_id"] or "", start_ns=times[0], end_ns=times[1]),
        f"{reason} (span {row['span_id'] or 'without an id'})",
    )
