"""The tasks of a job: each has the spans and log records of whole groups, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError
from ...store import LOG_SCHEMA, SPAN_COLUMNS
from .group_scores import OUTPUT, GroupScorer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["number_of_tasks", "scored", "span_rows", "with_groups", "with_logs"]

# The spans of a task, about: the work of a few seconds, which a lost executor repeats.
_SPANS = 10_000
# Tasks for each core, so that the cores end at about the same time.
_TASKS_OF_CORE = 4
# The traces whose groups fit into the memory of each executor: some 50 MB.
_BROADCAST = 500_000


def span_rows(spans: DataFrame) -> DataFrame:
    """Return rows of ``spans`` with the columns that are needed. A missing trace id is "".

    Raises:
        InputError: A column is missing.
    """
    return _rows(spans, [*SPAN_COLUMNS.split(", "), "conversation_id"], "spans")


def with_logs(spans: DataFrame, logs: DataFrame | None) -> DataFrame:
    """Return rows of spans, and of log records that have a trace, in a column ``log``.

    Args:
        spans: The result of `span_rows`.
        logs: Rows of the table ``logs``; None without log records.

    Raises:
        InputError: A column is missing.
    """
    from pyspark.sql import functions as sql

    ours = spans.drop("conversation_id")
    if logs is None:
        return ours
    theirs = _rows(logs, LOG_SCHEMA.names, "logs").where("trace_id <> ''")
    nested = theirs.select("trace_id", sql.struct(*LOG_SCHEMA.names).alias("log"))
    return ours.unionByName(nested, allowMissingColumns=True)


def _rows(frame: DataFrame, names: Iterable[str], kind: str) -> DataFrame:
    from pyspark.sql import functions as sql

    names = list(names)
    for name in names:
        if name not in frame.columns:
            raise InputError(f"a table of {kind} has no column {name!r}")
    return frame.select(names).withColumn(
        "trace_id", sql.coalesce(sql.col("trace_id"), sql.lit(""))
    )


def with_groups(rows: DataFrame, groups: DataFrame, how: str) -> DataFrame:
    """Return rows with the groups of their traces.

    Args:
        rows: The result of `with_logs`.
        groups: ``trace_id`` and ``group``, kept in memory or on disk.
        how: ``inner`` for the rows of these traces, ``left`` for all rows.
    """
    from pyspark.sql import functions as sql

    if groups.count() <= _BROADCAST:
        groups = sql.broadcast(groups)
    return rows.join(groups, "trace_id", how)


def number_of_tasks(traces: DataFrame) -> int:
    """The number of tasks for some traces.

    Args:
        traces: ``trace_id`` and the number of ``rows`` of each trace.
    """
    (row,) = traces.selectExpr("count(*) AS traces", "sum(rows) AS rows").collect()
    cores = int(traces.sparkSession.sparkContext.defaultParallelism)
    count, rows = int(row.traces), int(row.rows or 0)
    return max(1, min(count, max(_TASKS_OF_CORE * cores, rows // _SPANS)))


def scored(rows: DataFrame, scorer: GroupScorer, tasks: int) -> DataFrame:
    """The rows of `OUTPUT` that a scorer makes.

    Args:
        rows: Rows with their ``group``.
        scorer: The scorer.
        tasks: The number of tasks.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(OUTPUT)
    ordered = rows.repartition(tasks, "group").sortWithinPartitions("group")
    return ordered.mapInArrow(scorer.score, schema)
