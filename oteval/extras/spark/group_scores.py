"""The work of the executors: score the groups of a task, from Arrow batches to Arrow batches.

Runs yield keys that find groups of traces that belong together, but were reconstructed apart. Two
groups that share a key may belong together: another trace continues the messages, or two
instrumentations recorded one call.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...base.machine import infrequent_gc
from ...model import (
    FAILED_REQUEST,
    FOLLOWS_ANSWER,
    RETRY_WAIT_NS,
    LogRecord,
    Selection,
    Span,
    Trajectory,
)
from ...reconstruct import failed_trajectory
from ...scoring import PreparedEvaluator, reconstruct_all, scored_runs
from ...store import LOG_SCHEMA, SCORE_ROWS, TRAJECTORY_SCHEMA
from .readable_rows import UnreadableRow, read_rows

__all__ = ["OUTPUT", "GroupKey", "GroupScorer", "linked_groups"]

_RUN = pa.schema([field for field in TRAJECTORY_SCHEMA if field.name != "seq"])
_BIG = pa.int64()
_MOST = (1 << 63) - 1
_KEY = pa.schema([("value", _BIG), ("role", pa.int32()), ("first", _BIG), ("last", _BIG)])
_PARTS = {
    "trajectory": pa.struct(list(_RUN)),
    # With the start of its run, to sort the results.
    "score": pa.struct([*SCORE_ROWS, ("start_ns", _BIG)]),
    "key": pa.struct(list(_KEY)),
}
OUTPUT: Final = pa.schema([("kind", pa.string()), ("group", _BIG), *_PARTS.items()])
"""The rows: ``kind`` decides which of the last three columns of a row has a value."""
# As for pairs of runs in a store: the longest time between a call and a tool run in another trace.
_WAIT_NS = 60 * 10**9
_ALWAYS = (-(1 << 63), (1 << 63) - 1)
_ANY, _OFFERS, _WANTS = 0, 1, 2
# When whole groups have this many rows, they are handed out.
_ROWS = 10_000
# The bytes that a row has in addition to its texts, about.
_ROW_BYTES = 100


@dataclass(frozen=True)
class GroupScorer:
    """Scores the groups of a task, each apart from the others.

    Attributes:
        prepared: The evaluators.
        salt: The setting ``salt``.
        selection: The runs to score.
        time_ns: The time of the scores (ns), equal when a task runs again.
        most_bytes: The most bytes of rows that a group may have.
    """

    prepared: Sequence[PreparedEvaluator]
    salt: str
    selection: Selection
    time_ns: int
    most_bytes: int

    def score(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `OUTPUT` for rows of spans and logs with their ``group``, in its order."""
        for groups in whole_groups(batches, self.most_bytes):
            with infrequent_gc():
                runs = (
                    self._placeholders(groups)
                    if isinstance(groups, OversizedGroup)
                    else _reconstructed(groups)
                )
                table = self._scored(runs)
            yield from table.to_batches()

    def _placeholders(self, large: OversizedGroup) -> dict[int, list[Trajectory]]:
        """A run with a gap for each trace of a group that is too large."""
        reason = (
            f"its conversation has {large.size:,} bytes of spans and log records, and a task of "
            f"Spark holds {self.most_bytes:,}"
        )
        spans = [
            Span(trace_id, span_id, start_ns=start, end_ns=end)
            for trace_id, (start, span_id, end) in sorted(large.firsts.items())
        ]
        return {large.number: [failed_trajectory([span], reason, "too_large") for span in spans]}

    def _scored(self, runs: dict[int, list[Trajectory]]) -> pa.Table:
        """Return rows of `OUTPUT` for the runs of groups."""
        keys, groups_of_keys = [], []
        for group, members in runs.items():
            for run in members:
                for key in keys_of_run(run, group):
                    keys.append((_signed(key.value), key.role, _time(key.first), _time(key.last)))
                    groups_of_keys.append(group)
        groups = {run.id: group for group, members in runs.items() for run in members}
        runs_of_groups = [run for members in runs.values() for run in members]
        results = scored_runs(
            runs_of_groups, self.prepared, self.salt, self.selection, self.time_ns
        )
        names, times = (
            results.trajectories[name].to_pylist() for name in ("trajectory_id", "start_ns")
        )
        starts = dict(zip(names, times, strict=True))
        begun = [starts[name] for name in results.scores["trajectory_id"].to_pylist()]
        scores = results.scores.append_column("start_ns", pa.array(begun, _BIG))
        parts = [OUTPUT.empty_table()]
        for kind, column, table in (
            ("run", "trajectory", results.trajectories),
            ("score", "score", scores),
        ):
            names = [groups[name] for name in table["trajectory_id"].to_pylist()]
            parts.append(_part(kind, column, names, table))
        columns = [list(values) for values in zip(*keys, strict=True)] or [[]] * len(_KEY)
        table = pa.table(
            [pa.array(*column) for column in zip(columns, _KEY.types, strict=True)], _KEY
        )
        parts.append(_part("key", "key", groups_of_keys, table))
        return pa.concat_tables(parts).combine_chunks()


def _reconstructed(rows: pa.Table) -> dict[int, list[Trajectory]]:
    """The runs of each group."""
    spans, logs = rows, LOG_SCHEMA.empty_table()
    if "log" in rows.column_names:
        is_log = rows["log"].is_valid()
        records = rows.filter(is_log)
        spans = rows.filter(pc.invert(is_log))
        parts = pa.chunked_array(records["log"].chunks, rows.schema.field("log").type)
        logs = pa.table({name: pc.struct_field(parts, name) for name in LOG_SCHEMA.names})
    group_of = dict(zip(rows["trace_id"].to_pylist(), rows["group"].to_pylist(), strict=True))
    decoded = read_rows(spans, logs)
    unreadable: dict[str, list[UnreadableRow]] = defaultdict(list)
    for row in decoded.unreadable:
        unreadable[row.span.trace_id].append(row)
    members: dict[int, tuple[list[Span], list[LogRecord]]] = defaultdict(lambda: ([], []))
    readable: dict[str, list[Span]] = defaultdict(list)
    for span in decoded.spans:
        if span.trace_id in unreadable:
            readable[span.trace_id].append(span)
        else:
            members[group_of[span.trace_id]][0].append(span)
    for log in decoded.logs:
        members[group_of[log.trace_id]][1].append(log)
    runs = {group: reconstruct_all(*telemetry) for group, telemetry in sorted(members.items())}
    for trace, bad in sorted(unreadable.items()):
        placeholder = failed_trajectory(readable[trace] or [bad[0].span], bad[0].reason)
        runs.setdefault(group_of[trace], []).append(placeholder)
    return runs


def _time(value: int) -> int:
    """A time as a signed number of 64 bits."""
    return min(max(value, -_MOST - 1), _MOST)


def _signed(value: int) -> int:
    """An unsigned number of 64 bits as a signed one, which Spark has."""
    return value - (1 << 64) if value >> 63 else value


def _part(kind: str, column: str, groups: Sequence[int], table: pa.Table) -> pa.Table:
    """Return rows of `OUTPUT` with one of the last three columns."""
    fields = list(_PARTS[column])
    values: list[Any] = [table[field.name].combine_chunks().cast(field.type) for field in fields]
    count = len(groups)
    columns = {name: pa.nulls(count, kind_of) for name, kind_of in _PARTS.items()}
    columns[column] = pa.StructArray.from_arrays(values, fields=fields)
    kinds = pa.array([kind] * count, pa.string())
    return pa.table([kinds, pa.array(groups, _BIG), *columns.values()], OUTPUT)


class GroupKey(NamedTuple):
    """A key of a group, compared with the keys of other groups.

    Attributes:
        value: A hash.
        group: The number of the group.
        role: Groups with a key only belong together if one of them has the role 0, or if their
            roles are 1 and 2.
        first: The begin (ns) of the time when the key counts.
        last: The end of that time.
    """

    value: int
    group: int
    role: int
    first: int
    last: int


def keys_of_run(run: Trajectory, number: int) -> Iterator[GroupKey]:
    """Yield the keys that a run of a group shares with runs that may belong to it."""
    if not run.conversation_id:
        for role, text in ((_OFFERS, run.chain), (_WANTS, run.follows)):
            if text:
                value = _hashed("messages", run.service, text)
                yield GroupKey(value, number, role, *_times_of(run, text))
    if run.follows.startswith(FOLLOWS_ANSWER):
        key = int(run.follows.removeprefix(FOLLOWS_ANSWER))
        yield GroupKey(key & (1 << 64) - 1, number, _WANTS, *_ALWAYS)
    role = _OFFERS if run.agent else _ANY
    first, last = run.start_ns - _WAIT_NS, run.end_ns + _WAIT_NS
    for key in run.call_keys:
        yield GroupKey(key & (1 << 64) - 1, number, role, first, last)


def _times_of(run: Trajectory, text: str) -> tuple[int, int]:
    """The begin and end of the time when a run may follow another, or be followed."""
    if not text.startswith(FAILED_REQUEST):
        return _ALWAYS
    is_offer = text == run.chain
    return run.start_ns, run.end_ns + RETRY_WAIT_NS if is_offer else run.start_ns


def _hashed(*texts: str) -> int:
    data = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def linked_groups(keys: Iterable[GroupKey]) -> Iterator[set[int]]:
    """Yield sets of groups whose times overlap, if their roles go together.

    Args:
        keys: Keys with equal values.
    """
    begun: list[GroupKey] = []
    end = 0
    for key in sorted(keys, key=lambda key: key.first):
        if begun and key.first > end:
            yield _matched(begun)
            begun = []
        end = max(end, key.last) if begun else key.last
        begun.append(key)
    yield _matched(begun)


def _matched(keys: Sequence[GroupKey]) -> set[int]:
    groups, roles = {key.group for key in keys}, {key.role for key in keys}
    return groups if len(groups) > 1 and (_ANY in roles or len(roles) > 1) else set()


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
