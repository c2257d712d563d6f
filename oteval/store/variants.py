"""Variants: the sequences of tools that runs called, counted in SQL.

The order of calls in one message does not matter, so they are sorted by name: ``g, f`` in one
message is the variant ``f, g``, as is ``f`` followed by ``g``. Calls of different messages stay in
order.

Runs with equal `strict_names` have the same variant. SQL therefore groups by that number, and sorts
the calls of one run for each number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..model import EVERYTHING, Selection
from .column_sql import COLUMN_SQL, HAS_TOKENS, ONE_MODEL, TOKEN_COLUMNS, TOKEN_SUMS
from .current_scores import current_scores
from .memory import with_memory
from .query import condition_of, first_row, is_exact, new_cursor, registered, whole_numbers
from .trajectories import Trajectories

__all__ = ["TOOL_SEQUENCE", "Period", "VariantCounts", "Variants"]

_BATCH = 1000
_HOUR = 3600 * 10**9
_DAY = 24 * _HOUR
# The lengths of periods (ns). The first length with at most 48 periods is used.
_LENGTHS = (_HOUR, _DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY)
_MOST_PERIODS = 48

TOOL_SEQUENCE = (
    "list_transform(list_sort(list_zip(call_messages, call_names)), lambda found: found[2])"
)
"""The tools of a row of ``trajectories``, in the order of its variant."""

_FURTHER_TOKENS = ", ".join(TOKEN_COLUMNS[2:])
_CHOSEN = f"""
    chosen AS MATERIALIZED (
        SELECT trajectory_id, strict_names AS shape, start_ns,
            {COLUMN_SQL["seconds"].sql} AS seconds, input_tokens, output_tokens,
            {HAS_TOKENS} AS has_tokens,
            {_FURTHER_TOKENS},
            coalesce(list_contains(call_errors, TRUE), FALSE) AS failed,
            {ONE_MODEL} AS model
        FROM current_trajectories {{semi_join}} WHERE {{clause}} {{last}}
    )
"""  # noqa: S608
_EXTENT = f"WITH {_CHOSEN} SELECT min(start_ns), max(start_ns) FROM chosen WHERE start_ns > 0"  # noqa: S608
_RUNS = f"""WITH {_CHOSEN}
    SELECT start_ns // {{length}}, count(*) FROM chosen WHERE start_ns > 0 GROUP BY ALL
"""  # noqa: S608
# Structs are compared field by field.
_VARIANTS = f"""WITH {_CHOSEN},
    shapes AS (
        SELECT strict_names AS shape, any_value(call_names) AS call_names,
            any_value(call_messages) AS call_messages
        FROM current_trajectories SEMI JOIN chosen ON strict_names = shape GROUP BY strict_names
    ),
    sequences AS (SELECT shape, {TOOL_SEQUENCE} AS tools FROM shapes),
    numbered AS MATERIALIZED (
        SELECT shape, tools, min(shape) OVER (PARTITION BY tools) AS variant FROM sequences
    ),
    counted AS (
        SELECT variant, any_value(tools) AS tools, count(*) AS count,
            count(*) FILTER (failed) AS errors,
            min(struct_pack(start_ns := start_ns, id := trajectory_id)) AS first,
            coalesce(min(start_ns) FILTER (start_ns > 0), 0) AS first_seen_ns,
            max(start_ns) AS last_seen_ns,
            quantile_cont(seconds, [0.5, 0.95]) AS seconds,
            avg(input_tokens) FILTER (has_tokens) AS input_tokens,
            avg(output_tokens) FILTER (has_tokens) AS output_tokens,
            histogram((start_ns - {{origin}}) // {{length}}) FILTER (start_ns > 0) AS periods
        FROM chosen JOIN numbered USING (shape) GROUP BY variant
    ),
    kept AS MATERIALIZED (
        SELECT *, count(*) OVER () AS variants, sum(count) OVER ()::BIGINT AS runs
        FROM counted ORDER BY count DESC, first LIMIT {{top}}
    ),
    members AS NOT MATERIALIZED (
        SELECT chosen.*, variant FROM chosen JOIN numbered USING (shape)
        SEMI JOIN kept USING (variant)
    ),
    verdicts AS (
        SELECT variant, count(*) FILTER (passed) AS passed, count(*) FILTER (NOT passed) AS failed,
            count(*) FILTER (status = 'error') AS evaluator_errors
        FROM {current_scores()} JOIN (SELECT trajectory_id, variant FROM members)
        USING (trajectory_id) WHERE {{scored}} GROUP BY variant
    ),
    usages AS (
        SELECT variant, model, count(*) AS runs, {TOKEN_SUMS}
        FROM members WHERE model IS NOT NULL GROUP BY variant, model
    ),
    models AS (
        SELECT variant, list(
            struct_pack(
                model := model, runs := runs,
                {", ".join(f"{name} := {name}" for name in TOKEN_COLUMNS)}
            ) ORDER BY model
        ) AS models
        FROM usages GROUP BY variant
    )
    SELECT tools, count, errors, coalesce(passed, 0) AS passed, coalesce(failed, 0) AS failed,
        coalesce(evaluator_errors, 0) AS evaluator_errors,
        first.id AS example, first_seen_ns, last_seen_ns, seconds,
        input_tokens, output_tokens, map_entries(periods) AS periods, models, variants, runs
    FROM kept LEFT JOIN verdicts USING (variant) LEFT JOIN models USING (variant)
    ORDER BY count DESC, first
"""  # noqa: S608


class Period(NamedTuple):
    """A period of time, and how many of the selected runs began in it.

    Attributes:
        start_ns: Its start.
        length_ns: Its length.
        runs: The number of runs.
    """

    start_ns: int
    length_ns: int
    runs: int


class VariantCounts(NamedTuple):
    """The variants of the selected runs.

    Attributes:
        runs: How many runs were selected.
        variants: How many variants they have.
        periods: The time of the runs, in periods of equal length. The last period has the last run.
            Empty if no run has a time.
        rows: The variants, most frequent first, then by their first run. Each has `tools`,
            `count`, `errors` (runs with a failed call), `passed`, `failed` and `evaluator_errors`
            (current scores), `example` (its first run), `first_seen_ns`, `last_seen_ns`, `seconds`
            (the median and the 95% quantile), `input_tokens` and `output_tokens` (means
            over the runs that report them, or None),
            `periods` (runs by period, in the order of `periods`), and `models`: for runs of a
            single model the sums of tokens by model. They can be read once.
    """

    runs: int
    variants: int
    periods: tuple[Period, ...]
    rows: Iterator[dict[str, Any]]


class Variants:
    """Counts the variants of the trajectories of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def count(
        self,
        selection: Selection = EVERYTHING,
        evaluator: str | None = None,
        top: int | None = None,
    ) -> VariantCounts:
        """Count the variants of the selected runs.

        For conditions without a column, the trajectories are read one by one.

        Args:
            selection: The runs.
            evaluator: Count only its scores; None for all.
            top: The number of variants to return; None for all.
        """
        cursor = new_cursor(self._connection)
        with ExitStack() as stack:
            stack.callback(cursor.close)
            chosen, values = self._chosen(cursor, selection, stack)
            periods = _periods(cursor, chosen, values)
            query = _VARIANTS.format(
                **chosen,
                origin=periods[0].start_ns if periods else 0,
                length=periods[0].length_ns if periods else 1,
                top="ALL" if top is None else int(top),
                scored="TRUE" if evaluator is None else "evaluator = ?",
            )
            if evaluator is not None:
                values = [*values, evaluator]
            batches = with_memory(cursor, lambda: _started(cursor, query, values))
            cleanup = stack.pop_all()
        rows = _rows(batches, len(periods), cleanup)
        first = next(rows, None)
        if first is None:
            return VariantCounts(0, 0, (), iter(()))
        return VariantCounts(first["runs"], first["variants"], periods, chain([first], rows))

    def _chosen(
        self, cursor: duckdb.DuckDBPyConnection, selection: Selection, stack: ExitStack
    ) -> tuple[dict[str, str], list[Any]]:
        """The parts of `_CHOSEN` that depend on the selection, with their parameters."""
        if is_exact(selection):
            clause, values = condition_of(selection)
            last = ""
            if selection.limit is not None:
                last = f"ORDER BY start_ns DESC, trajectory_id DESC LIMIT {int(selection.limit)}"
            return {"semi_join": "", "clause": clause, "last": last}, values
        keys = Trajectories(self._connection).key_table(selection)
        stack.enter_context(registered(cursor, "wanted", keys))
        semi_join = "SEMI JOIN wanted USING (trajectory_id)"
        return {"semi_join": semi_join, "clause": "TRUE", "last": ""}, []


def _periods(
    cursor: duckdb.DuckDBPyConnection, chosen: Mapping[str, str], values: list[Any]
) -> tuple[Period, ...]:
    """Divide the time of the chosen runs into periods, and count the runs in each."""
    row = with_memory(cursor, lambda: first_row(cursor, _EXTENT.format(**chosen), values))
    assert row is not None
    first, last = row
    if first is None:
        return ()
    fits = (length for length in _LENGTHS if last // length - first // length < _MOST_PERIODS)
    length = next(fits, (last - first) // (_MOST_PERIODS - 1) + 1)
    numbers = range(first // length, last // length + 1)
    query = _RUNS.format(**chosen, length=length)
    runs = dict(with_memory(cursor, lambda: cursor.execute(query, values).fetchall()))
    return tuple(Period(number * length, length, runs.get(number, 0)) for number in numbers)


def _started(
    cursor: duckdb.DuckDBPyConnection, query: str, values: list[Any]
) -> Iterable[pa.RecordBatch]:
    """Run a query to its first batch, when its large intermediate results are complete."""
    batches = iter(cursor.sql(query, params=values).to_arrow_reader(_BATCH))
    first = next(batches, None)
    return () if first is None else chain([first], batches)


def _rows(
    batches: Iterable[pa.RecordBatch], periods: int, cleanup: ExitStack
) -> Iterator[dict[str, Any]]:
    with cleanup:
        for batch in batches:
            for row in batch.to_pylist():
                by_period = {entry["key"]: entry["value"] for entry in row["periods"] or ()}
                yield {
                    **row,
                    "periods": [by_period.get(at, 0) for at in range(periods)],
                    "models": [whole_numbers(usage) for usage in row["models"] or ()],
                }
