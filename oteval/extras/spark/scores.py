"""Score the rows of ``spans`` and ``logs`` that a Spark session reads.

The first pass reconstructs and scores each group of traces that share conversations. It also yields
the keys that the runs of a group share with runs of other groups that may belong to them. Groups
with such keys are joined and scored anew, until no key connects two groups. The result equals the
result of a store. The tasks of a job have the spans and log records of whole groups; the executors
run `group_scores`.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...base.errors import InputError
from ...model import EVERYTHING, Selection
from ...scoring import Config, is_in_store, prepare
from ...store import LOG_SCHEMA, SPAN_COLUMNS
from .columns import with_timestamps
from .group_scores import OUTPUT, GroupKey, GroupScorer, linked_groups

__all__ = ["GROUP_BYTES", "Scored", "require_files", "score", "trajectories"]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


GROUP_BYTES = 128 << 20
"""The most bytes of rows that a conversation may have by default."""
if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_Name = TypeVar("_Name", bound=Hashable)
if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# The spans of a task, about: the work of a few seconds, which a lost executor repeats.
_SPANS = 10_000
# Tasks for each core, so that the cores end at about the same time.
_TASKS_OF_CORE = 4
# The traces whose groups fit into the memory of each executor: some 50 MB.
_BROADCAST = 500_000


@dataclass(frozen=True)
class Scored:
    """The results, which Spark computes when they are read or written.

    For each time in ns there is also a timestamp: ``start_time``, ``end_time`` and ``score_time``.

    Attributes:
        trajectories: Rows of the table ``trajectories``, without ``seq``.
        scores: Rows of the table ``scores``, without ``seq``, and the ``start_ns`` of their runs.
        cached: The data frames that Spark keeps, in memory or on the executors' disks.
    """

    trajectories: DataFrame
    scores: DataFrame
    cached: Sequence[DataFrame] = field(default=(), repr=False)

    def __iter__(self) -> Iterator[DataFrame]:
        """Iterate over the trajectories and the scores."""
        return iter((self.trajectories, self.scores))

    def release(self) -> None:
        """Remove the data frames kept for these results, but none that the session keeps otherwise.

        The results can be read afterwards, but Spark computes them anew.
        """
        for frame in self.cached:
            frame.unpersist()


def trajectories(spans: DataFrame, logs: DataFrame | None = None) -> DataFrame:
    """The trajectories of traces, as rows of the table ``trajectories`` without ``seq``.

    Args:
        spans: Rows of the table ``spans``, as ``oteval export --parquet`` writes them.
        logs: Rows of the table ``logs``; None without log records.

    Raises:
        InputError: A column is missing.
    """
    return score(spans, config=None, logs=logs).trajectories


def score(
    spans: DataFrame,
    config: Config | None,
    logs: DataFrame | None = None,
    *,
    base: Path = Path(),
    selection: Selection = EVERYTHING,
    time_ns: int | None = None,
    group_bytes: int = GROUP_BYTES,
) -> Scored:
    """The trajectories of traces and their scores.

    The first pass runs at once, because the groups to join are only known after it.

    Args:
        spans: Rows of the table ``spans``, in any order and number of repetitions.
        config: The configuration; None to score nothing.
        logs: Rows of the table ``logs``; None without log records.
        base: The folder that paths of the configuration are relative to.
        selection: The runs to score. Its limit does not apply.
        time_ns: The time of the scores (ns); now by default.
        group_bytes: The most bytes of rows of a conversation, or of runs that continue each other,
            that a task keeps in memory. Each trace of a larger one has a run with the gap
            ``too_large``, which no evaluator passes.

    Raises:
        InputError: A column is missing, or an evaluator needs a store or calls models.
    """
    _require(config)
    scorer = GroupScorer(
        tuple(prepare(config, store=None, base=base)) if config else (),
        config.salt if config else "",
        selection,
        time.time_ns() if time_ns is None else time_ns,
        group_bytes,
    )
    cached: list[DataFrame] = []
    try:
        rows = _scored_rows(spans, logs, scorer, cached)
    except BaseException:
        # The session itself may have ended.
        with suppress(Exception):
            for frame in cached:
                frame.unpersist()
        raise
    return Scored(
        with_timestamps(rows.where("kind = 'run'").select("trajectory.*")),
        with_timestamps(rows.where("kind = 'score'").select("score.*")),
        cached,
    )


def _keep(frame: DataFrame, cached: list[DataFrame], *, in_memory: bool = True) -> DataFrame:
    """Have Spark keep a data frame once it is computed, note it, and return it."""
    from pyspark import StorageLevel

    level = frame.storageLevel
    # Equal frames share their cache. A frame that another scoring keeps is not ours to release.
    if not (level.useMemory or level.useDisk):
        kind = StorageLevel.MEMORY_AND_DISK if in_memory else StorageLevel.DISK_ONLY
        cached.append(frame.persist(kind))
    return frame


def _scored_rows(
    spans: DataFrame, logs: DataFrame | None, scorer: GroupScorer, cached: list[DataFrame]
) -> DataFrame:
    """The rows of `group_scores.OUTPUT` for all traces, each group scored as a whole."""
    from pyspark.sql import functions as sql

    plain = span_rows(spans)
    rows = with_logs(plain, logs)
    # Kept, because the number of tasks, the tasks, and each round below read them.
    traces = _keep(traces_of(plain), cached)
    groups = _keep(groups_of_conversations(traces), cached)
    tasks = number_of_tasks(traces)
    own = sql.coalesce("group", own_group()).alias("group")
    ours = with_groups(rows, groups, "left").withColumn("group", own)
    results = _keep(scored(ours, scorer, tasks), cached, in_memory=False)
    groups = traces.join(groups, "trace_id", "left").select("trace_id", own)
    while joined := connected_groups(results.where("kind = 'key'").select("group", "key.*")):
        changes = sql.broadcast(changes_of(joined, spans.sparkSession))
        again = groups.join(changes, "group").selectExpr("trace_id", "joined AS group")
        again = _keep(again, cached)
        new = scored(with_groups(rows, again, "inner"), scorer, tasks)
        new = _keep(new, cached, in_memory=False)
        unchanged = results.join(changes.select("group"), "group", "left_anti")
        results = unchanged.select(new.columns).unionByName(new)
        groups = _keep(moved(groups, changes), cached)
    return results


def _require(config: Config | None) -> None:
    for settings in config.evaluators if config else ():
        if settings.evaluator.asks_models:
            raise InputError(
                f"evaluator {settings.name!r} asks a model; spark.score_files runs judges"
            )
    if config:
        require_files(config)


def require_files(config: Config) -> None:
    """Refuse references that are stored in a database.

    Raises:
        InputError: An evaluator has such a reference.
    """
    for settings in config.evaluators:
        if is_in_store(settings.reference):
            raise InputError(
                f"evaluator {settings.name!r} reads its reference from a database; "
                "give Spark a file"
            )


def traces_of(spans: DataFrame) -> DataFrame:
    """``trace_id``, the number of ``rows`` and the conversations (``names``) of each trace.

    Args:
        spans: Rows of the table ``spans``.
    """
    from pyspark.sql import functions as sql

    return spans.groupBy("trace_id").agg(
        sql.count("*").alias("rows"),
        sql.array_sort(sql.collect_set(sql.nullif("conversation_id", sql.lit("")))).alias("names"),
    )


def own_group() -> Column:
    """The group of a trace that shares no conversation with another: a hash of its id."""
    from pyspark.sql import functions as sql

    return sql.xxhash64(sql.lit("t"), "trace_id")


def groups_of_conversations(traces: DataFrame) -> DataFrame:
    """``trace_id`` and ``group`` of the traces that share a conversation with others.

    The group is a hash of the conversation. Only traces with several conversations come to the
    driver. Two groups with equal hashes are scored together, which changes nothing.

    Args:
        traces: The result of `traces_of`.
    """
    from pyspark.sql import functions as sql

    names = traces.select("trace_id", sql.explode("names").alias("name"))
    shared = names.groupBy("name").agg(sql.count("*").alias("traces")).where("traces > 1")
    hashed = sql.xxhash64(sql.lit("c"), "name")
    hashes = (
        names.join(shared.select("name"), "name")
        .groupBy("trace_id")
        .agg(sql.array_sort(sql.collect_set(hashed)).alias("groups"))
    )
    several = hashes.where("size(groups) > 1").select("groups").distinct().collect()
    own = hashes.select("trace_id", sql.col("groups")[0].alias("group"))
    joined = _representatives(tuple(row.groups) for row in several)
    if not joined:
        return own
    return moved(own, sql.broadcast(changes_of(joined, traces.sparkSession)))


def changes_of(joined: Mapping[int, int], spark: SparkSession) -> DataFrame:
    """Return groups that become part of others, as ``group`` and ``joined``."""
    return spark.createDataFrame(sorted(joined.items()), "group long, joined long")


def moved(groups: DataFrame, changes: DataFrame) -> DataFrame:
    """``trace_id`` and ``group`` after groups became part of others.

    Args:
        groups: The groups of traces.
        changes: The result of `changes_of`.
    """
    from pyspark.sql import functions as sql

    return groups.join(changes, "group", "left").select(
        "trace_id", sql.coalesce("joined", "group").alias("group")
    )


def connected_groups(keys: DataFrame) -> dict[int, int]:
    """The groups that may belong together with others, each with the group to be part of.

    The driver receives only keys that several groups have.

    Args:
        keys: The fields of `GroupKey` as columns.
    """
    from pyspark.sql import functions as sql

    of = sql.struct("group", "role", "first", "last")
    shared = (
        keys.groupBy("value")
        .agg(sql.min("group"), sql.max("group"), sql.collect_list(of).alias("keys"))
        .where("min(group) <> max(group)")
    )
    same = (
        [GroupKey(row.value, *key) for key in row["keys"]]
        for row in shared.select("value", "keys").collect()
    )
    return _representatives(tuple(linked) for several in same for linked in linked_groups(several))


def _representatives(sets: Iterable[tuple[_Name, ...]]) -> dict[_Name, _Name]:
    """Each name with one name that all names of its connected sets share."""
    above: dict[_Name, _Name] = {}

    def top(name: _Name) -> _Name:
        above.setdefault(name, name)
        while above[name] != name:
            above[name] = above[above[name]]
            name = above[name]
        return name

    for names in sets:
        for name in names[1:]:
            above[top(name)] = top(names[0])
    return {name: top(name) for name in above}


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
