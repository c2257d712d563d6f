from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from oteval.model import Event, Link, LogRecord, Span
from oteval.store import Store
from oteval.store.exported_rows import exported_logs, exported_spans

SPAN = Span(
    "a" * 32,
    "b" * 16,
    "c" * 16,
    "n",
    attributes={"input.value": "x", "k": [1, {"a": None}]},
    events=(Event("e", 1, {"x": 1}, 2),),
    links=(Link("d" * 32, "e" * 16, {"l": True}),),
    scope_attributes={"s": 1},
    resource={"service.name": "s"},
    trace_state="k=v",
    dropped_attributes=3,
    start_ns=5,
)
LOG = LogRecord("a" * 32, "", 5, 6, "e", 9, "INFO", {"b": 1}, {"a": 2}, resource={"r": 1})


def rows(store: Store, of: Callable[[Store], pa.RecordBatchReader]) -> pa.RecordBatch:
    """Return the rows that a store exports for one span and one log record."""
    store.spans.write([SPAN], [LOG])
    (batch,) = of(store).read_all().to_batches()
    return batch


def changed(batch: pa.RecordBatch, column: str, value: Any) -> pa.RecordBatch:
    place = batch.schema.get_field_index(column)
    return batch.set_column(place, column, pa.array([value]))


def test_exported_rows_survive(store: Store):
    """Exported rows give an equal span and log record."""
    (span,) = exported_spans(rows(store, lambda s: s.spans.export()))
    (log,) = exported_logs(rows(store, lambda s: s.spans.export_logs()))

    assert replace(span, seq=0) == SPAN
    assert replace(log, seq=0) == LOG


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("trace_id", "x"),
        ("span_id", None),
        ("parent_id", "x"),
        ("name", None),
        ("start_ns", "soon"),
        ("kind", 1 << 40),
        ("attributes", "{cut"),
        ("attributes", "[]"),
        ("attributes", None),
        ("resource", "7"),
        ("events", "[5]"),
        ("events", '[["e", 1, [], 0]]'),
        ("events", '[["e", "1", {}, 0]]'),
        ("links", '[["a", 5, {}]]'),
        ("rest", '{"odd": 1}'),
        ("rest", '{"trace_id": "x"}'),
        ("rest", '{"flags": "x"}'),
        ("rest", "[1]"),
    ],
)
def test_spans_that_no_store_wrote(store: Store, column: str, value: Any):
    """A row that no store can have written is a ValueError."""
    batch = rows(store, lambda s: s.spans.export())

    with pytest.raises(ValueError, match=r"."):
        exported_spans(changed(batch, column, value))


@pytest.mark.parametrize(
    ("column", "value"),
    [("body", "{cut"), ("attributes", "[]"), ("resource", "7"), ("time_ns", None)],
)
def test_log_records_that_no_store_wrote(store: Store, column: str, value: Any):
    """A log record that no store can have written is a ValueError."""
    batch = rows(store, lambda s: s.spans.export_logs())

    with pytest.raises(ValueError, match=r"."):
        exported_logs(changed(batch, column, value))
