"""Whole groups of rows from the batches of a task, which come in the order of their groups.

A task keeps one batch in memory, and the rows of the batch's last group up to a limit. Of a larger
group it keeps only the first span of each trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["OversizedGroup", "whole_groups"]

# When whole groups have this many rows, they are handed out.
_ROWS = 10_000
# The bytes that a row has in addition to its texts, about.
_ROW_BYTES = 100


@dataclass(slots=True)
class OversizedGroup:
    """A group with more rows than a task may keep in memory.

    Attributes:
        number: The group.
        size: The bytes of its rows.
        firsts: The first span of each trace: its start (ns), span id and end (ns), by trace id.
    """

    number: int
    size: int = 0
    firsts: dict[str, tuple[int, str, int]] = field(default_factory=dict)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of spans, and of log records, which change nothing but the size."""
        if "log" in rows.schema.names:
            rows = rows.filter(rows["log"].is_null())
        names = ("trace_id", "span_id", "start_ns", "end_ns")
        for trace_id, span_id, start, end in zip(
            *(rows[name].to_pylist() for name in names), strict=True
        ):
            first_span = (start or 0, span_id or "", end or start or 0)
            self.firsts[trace_id] = min(self.firsts.get(trace_id, first_span), first_span)


@dataclass(slots=True)
class _RowSlices:
    """Rows of batches, as few slices as possible."""

    slices: list[tuple[pa.RecordBatch, int, int]] = field(default_factory=list)
    count: int = 0

    def add(self, batch: pa.RecordBatch, first: int, end: int) -> None:
        self.count += end - first
        if self.slices and self.slices[-1][0] is batch and self.slices[-1][2] == first:
            self.slices[-1] = (batch, self.slices[-1][1], end)
        else:
            self.slices.append((batch, first, end))

    def parts(self) -> list[pa.RecordBatch]:
        return [batch.slice(first, end - first) for batch, first, end in self.slices]


def whole_groups(
    batches: Iterable[pa.RecordBatch], most_bytes: int
) -> Iterator[pa.Table | OversizedGroup]:
    """Yield tables of whole groups, and the groups that are too large.

    Args:
        batches: Rows with the columns ``group`` and ``trace_id``, all rows of a group together.
        most_bytes: The most bytes that the rows of a group may have.
    """
    ready, ours, size = _RowSlices(), _RowSlices(), 0
    number: int | None = None
    large: OversizedGroup | None = None
    for batch in batches:
        for group, first, end, more in _segments(batch):
            if group != number:
                if large is not None:
                    yield large
                for part in ours.slices:
                    ready.add(*part)
                if ready.count >= _ROWS:
                    yield pa.Table.from_batches(ready.parts())
                    ready = _RowSlices()
                number, ours, size, large = group, _RowSlices(), 0, None
            size += more
            if large is None and size > most_bytes:
                large = OversizedGroup(group)
                for part in ours.parts():
                    large.add(part)
                ours = _RowSlices()
            if large is None:
                ours.add(batch, first, end)
            else:
                large.size = size
                large.add(batch.slice(first, end - first))
    if large is not None:
        yield large
    for part in ours.slices:
        ready.add(*part)
    if ready.count:
        yield pa.Table.from_batches(ready.parts())


def _segments(batch: pa.RecordBatch) -> Iterator[tuple[int, int, int, int]]:
    """Yield each group of a batch: its number, its first row, the row after it, and its bytes."""
    if not len(batch):
        return
    groups = batch["group"].to_numpy()
    firsts = np.concatenate(([0], np.flatnonzero(groups[1:] != groups[:-1]) + 1))
    sizes = np.add.reduceat(_sizes(batch), firsts)
    ends = [*firsts[1:].tolist(), len(batch)]
    yield from zip(groups[firsts].tolist(), firsts.tolist(), ends, sizes.tolist(), strict=True)


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    """The bytes of each row."""
    sizes = np.full(len(batch), _ROW_BYTES, np.int64)
    for column in batch.columns:
        children = column.flatten() if pa.types.is_struct(column.type) else [column]
        for child in children:
            if pa.types.is_string(child.type) or pa.types.is_large_string(child.type):
                sizes += pc.fill_null(pc.binary_length(child), 0).to_numpy(zero_copy_only=False)
    return sizes
