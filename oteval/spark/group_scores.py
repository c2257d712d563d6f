"""The work of the executors: score the groups of a bucket, from Arrow tables to one Arrow table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ..machine import infrequent_gc
from ..model import LogRecord, Span
from ..pipeline.prepared import PreparedEvaluator
from ..pipeline.reconstruction import reconstruct_all
from ..pipeline.trace_groups import keys_of_run
from ..pipeline.trace_scores import scored_runs, telemetry_of
from ..selection import Selection
from ..store import SCORE_ROWS
from ..store.trajectory_rows import TRAJECTORY_SCHEMA

__all__ = ["OUTPUT", "GroupScorer"]

_RUN = pa.schema([field for field in TRAJECTORY_SCHEMA if field.name != "seq"])
_BIG = pa.int64()
_KEY = pa.schema([("value", _BIG), ("role", pa.int32()), ("first", _BIG), ("last", _BIG)])
_PARTS = {
    "trajectory": pa.struct(list(_RUN)),
    "score": pa.struct(list(SCORE_ROWS)),
    "key": pa.struct(list(_KEY)),
}
OUTPUT: Final = pa.schema([("kind", pa.string()), ("group", _BIG), *_PARTS.items()])
"""The rows: of each, ``kind`` says which of the last three columns has a value."""


@dataclass(frozen=True)
class GroupScorer:
    """Scores the groups of a bucket, each apart from the others.

    Attributes:
        prepared: The evaluators.
        salt: The setting ``salt``.
        selection: The runs to score.
        time_ns: The time of the scores (ns), equal when a task runs again.
    """

    prepared: Sequence[PreparedEvaluator]
    salt: str
    selection: Selection
    time_ns: int

    def score(self, spans: pa.Table) -> pa.Table:
        """Return rows of `OUTPUT` for rows of ``spans`` with their ``group``."""
        return self._scored(spans, None)

    def score_with_logs(self, spans: pa.Table, logs: pa.Table) -> pa.Table:
        """Return rows of `OUTPUT` for rows of ``spans`` and ``logs`` with their ``group``."""
        return self._scored(spans, logs)

    def _scored(self, rows: pa.Table, log_rows: pa.Table | None) -> pa.Table:
        spans, logs = telemetry_of(rows, log_rows)
        traces = rows["trace_id"].to_pylist()
        group_of = dict(zip(traces, rows["group"].to_pylist(), strict=True))
        members: dict[int, tuple[list[Span], list[LogRecord]]] = defaultdict(lambda: ([], []))
        for span in spans:
            members[group_of[span.trace_id]][0].append(span)
        for log in logs:
            members[group_of[log.trace_id]][1].append(log)
        parts = [OUTPUT.empty_table()]
        runs, groups, keys, groups_of_keys = [], {}, [], []
        with infrequent_gc():
            for group, (some, records) in sorted(members.items()):
                for run in reconstruct_all(some, records):
                    runs.append(run)
                    groups[run.id] = group
                    for key in keys_of_run(run, group):
                        keys.append((_signed(key.value), key.role, key.first, key.last))
                        groups_of_keys.append(group)
            found = scored_runs(runs, self.prepared, self.salt, self.selection, self.time_ns)
        for kind, column, table in (
            ("run", "trajectory", found.trajectories),
            ("score", "score", found.scores),
        ):
            names = [groups[name] for name in table["trajectory_id"].to_pylist()]
            parts.append(_part(kind, column, names, table))
        columns = [list(values) for values in zip(*keys, strict=True)] or [[]] * len(_KEY)
        table = pa.table([pa.array(*one) for one in zip(columns, _KEY.types, strict=True)], _KEY)
        parts.append(_part("key", "key", groups_of_keys, table))
        return pa.concat_tables(parts).combine_chunks()


def _signed(value: int) -> int:
    """Return an unsigned number of 64 bits as a signed one, which Spark has."""
    return value - (1 << 64) if value >> 63 else value


def _part(kind: str, column: str, groups: Sequence[int], table: pa.Table) -> pa.Table:
    """Return rows of `OUTPUT` with one of the last three columns."""
    fields = list(_PARTS[column])
    values: list[Any] = [table[field.name].combine_chunks().cast(field.type) for field in fields]
    count = len(groups)
    found = {name: pa.nulls(count, kind_of) for name, kind_of in _PARTS.items()}
    found[column] = pa.StructArray.from_arrays(values, fields=fields)
    kinds = pa.array([kind] * count, pa.string())
    return pa.table([kinds, pa.array(groups, _BIG), *found.values()], OUTPUT)
