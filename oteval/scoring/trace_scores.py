"""Reconstruct and score a batch of whole traces, from Arrow tables to Arrow tables.

This needs no store and keeps nothing, so that any engine with batches can run it. A batch contains
whole traces, and all traces of each of its conversations. Some runs are connected only by their
messages or their model calls. They are joined if the batch has all of their traces.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ..base.errors import InputError
from ..base.machine import infrequent_gc
from ..model import EVERYTHING, LogRecord, Score, Selection, Span, Trajectory
from ..store import (
    LOG_SCHEMA,
    SCORE_ROWS,
    SPAN_COLUMNS,
    TRAJECTORY_SCHEMA,
    log_of,
    rows_of,
    score_rows,
    spans_of,
    table_of,
    trajectory_row,
)
from .prepared import PreparedEvaluator
from .reconstruction import reconstruct_all
from .run_scorer import RunScorer

__all__ = ["ScoredTraces", "score_batch", "scored_runs", "telemetry_of"]

_SPAN_NAMES = SPAN_COLUMNS.split(", ")


class ScoredTraces(NamedTuple):
    """The result of a batch.

    Attributes:
        trajectories: Rows of the table ``trajectories`` by start, each in its first revision.
        scores: Rows of the table ``scores``, in the order of the trajectories and evaluators.
    """

    trajectories: pa.Table
    scores: pa.Table


def score_batch(
    spans: pa.Table,
    logs: pa.Table | None = None,
    prepared: Sequence[PreparedEvaluator] = (),
    *,
    salt: str,
    selection: Selection = EVERYTHING,
    time_ns: int | None = None,
) -> ScoredTraces:
    """The trajectories of some traces, and their scores.

    Args:
        spans: Rows of the table ``spans``, in any order. If several have the same ids, the row with
            the smallest ``seq`` counts.
        logs: Rows of the table ``logs``; None without log records.
        prepared: The evaluators; without any, nothing is scored.
        salt: The setting ``salt``, which decides which runs a sample has.
        selection: The runs to score. Its limit does not apply, because a batch does not know which
            runs are the latest of all.
        time_ns: The time of the scores (ns); now by default.

    Raises:
        InputError: A table lacks a column.
    """
    decoded_spans, records = telemetry_of(spans, logs)
    now = time.time_ns() if time_ns is None else time_ns
    with infrequent_gc():
        runs = sorted(
            reconstruct_all(decoded_spans, records), key=lambda run: (run.start_ns, run.id)
        )
        return scored_runs(runs, prepared, salt, selection, now)


def telemetry_of(spans: pa.Table, logs: pa.Table | None) -> tuple[list[Span], list[LogRecord]]:
    """Return the spans and log records of rows, each once.

    Args:
        spans: Rows of the table ``spans``.
        logs: Rows of the table ``logs``; None without log records.

    Raises:
        InputError: A table lacks a column.
    """
    _require(spans, _SPAN_NAMES, "spans")
    decoded = spans_of(spans.select(_SPAN_NAMES).take(_first_of_each(spans, "trace_id", "span_id")))
    if logs is None:
        return decoded, []
    _require(logs, LOG_SCHEMA.names, "logs")
    return decoded, [log_of(row) for row in rows_of(logs.take(_first_of_each(logs, "fingerprint")))]


def scored_runs(
    runs: Sequence[Trajectory],
    prepared: Sequence[PreparedEvaluator],
    salt: str,
    selection: Selection,
    time_ns: int,
) -> ScoredTraces:
    """The rows of some runs and of their scores.

    Args:
        runs: The runs.
        prepared: The evaluators.
        salt: The setting ``salt``.
        selection: The runs to score.
        time_ns: The time of the scores (ns).
    """
    scorer = RunScorer(prepared, salt, lambda: time_ns)
    try:
        scores = list(scorer.score(run for run in runs if selection.matches(run)))
    finally:
        scorer.stop()
    return ScoredTraces(_trajectory_rows(runs), _score_rows(scores))


def _require(table: pa.Table, names: Iterable[str], kind: str) -> None:
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise InputError(f"a table of {kind} has no column {missing[0]!r}")


def _first_of_each(table: pa.Table, *names: str) -> pa.Array:
    """The positions of the rows to keep, by ``seq``: the first with each identity.

    The order of the rows changes nothing, even if several have equal numbers.
    """
    numbers = [number or 0 for number in table["seq"].to_pylist()]
    identities = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    keys: list[tuple[Any, ...]] = list(zip(numbers, identities, strict=True))
    if len(set(identities)) < len(identities):
        keys = list(zip(numbers, identities, map(str, table.to_pylist()), strict=True))
    first_rows: dict[Hashable, int] = {}
    for row in sorted(range(len(keys)), key=keys.__getitem__):
        first_rows.setdefault(identities[row], row)
    return pa.array(first_rows.values(), pa.int64())


def _trajectory_rows(runs: Sequence[Trajectory]) -> pa.Table:
    rows = [
        {**trajectory_row(run), "rev": run.rev, "seq": number} for number, run in enumerate(runs, 1)
    ]
    names = TRAJECTORY_SCHEMA.names
    return table_of([[row[name] for name in names] for row in rows], TRAJECTORY_SCHEMA)


def _score_rows(scores: Sequence[Score]) -> pa.Table:
    return score_rows(scores) if scores else SCORE_ROWS.empty_table()
