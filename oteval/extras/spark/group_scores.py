"""The work of the executors: score the groups of a task, from Arrow batches to Arrow batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...base.machine import infrequent_gc
from ...model import LogRecord, Selection, Span, Trajectory
from ...reconstruct import failed_trajectory
from ...scoring import PreparedEvaluator, reconstruct_all, scored_runs
from ...store import LOG_SCHEMA, SCORE_ROWS, TRAJECTORY_SCHEMA
from .group_keys import keys_of_run
from .group_stream import OversizedGroup, whole_groups
from .readable_rows import UnreadableRow, read_rows

__all__ = ["OUTPUT", "GroupScorer"]

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
