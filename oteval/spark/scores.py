"""Score the rows of ``spans`` and ``logs`` that a Spark session reads.

The first pass reconstructs and scores each group of traces that share conversations. It also yields
the keys that the runs of a group share with runs of other groups that may belong to them. Groups
with such keys are joined and scored anew, until no key connects two groups. The result equals that
of a store. `groups` makes the groups, and the executors run `group_scores`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import Config, StoredReference
from ..errors import InputError
from ..pipeline.prepared import prepare
from ..selection import EVERYTHING, Selection
from .group_scores import OUTPUT, GroupScorer
from .groups import connected_groups, groups_of_traces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Scored", "require_files", "score", "trajectories"]

# The spans that a task holds about, without those that one conversation has more.
_SPANS_OF_BUCKET = 10_000


class Scored(NamedTuple):
    """The results, which Spark computes when they are read or written.

    Attributes:
        trajectories: Rows of the table ``trajectories``, without ``seq``.
        scores: Rows of the table ``scores``.
    """

    trajectories: DataFrame
    scores: DataFrame


def trajectories(spans: DataFrame, logs: DataFrame | None = None) -> DataFrame:
    """Return the trajectories of traces, as rows of the table ``trajectories`` without ``seq``.

    Args:
        spans: Rows of the table ``spans``, as ``oteval export --parquet`` writes them.
        logs: Rows of the table ``logs``; None without log records.

    Raises:
        InputError: A column is missing.
    """
    return score(spans, None, logs).trajectories


def score(
    spans: DataFrame,
    config: Config | None,
    logs: DataFrame | None = None,
    *,
    base: Path = Path(),
    selection: Selection = EVERYTHING,
    time_ns: int | None = None,
) -> Scored:
    """Return the trajectories of traces and their scores.

    The first pass runs at once, because the groups to join are only known after it.

    Args:
        spans: Rows of the table ``spans``, in any order and number of repetitions.
        config: The configuration; None to score nothing.
        logs: Rows of the table ``logs``; None without log records.
        base: The folder that paths of the configuration are relative to.
        selection: The runs to score. Its limit does not apply.
        time_ns: The time of the scores (ns); now by default.

    Raises:
        InputError: A column is missing, or an evaluator needs a store or asks models.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as sql

    _require(config)
    scorer = GroupScorer(
        tuple(prepare(config, None, base)) if config else (),
        config.salt if config else "",
        selection,
        time.time_ns() if time_ns is None else time_ns,
    )
    spark = spans.sparkSession
    count = max(spark.sparkContext.defaultParallelism, spans.count() // _SPANS_OF_BUCKET)
    # Kept, because each round below reads it several times.
    groups = groups_of_traces(spans).persist(StorageLevel.MEMORY_AND_DISK)
    found = _scored(spans, logs, groups, scorer, count)
    while True:
        keys = found.where("kind = 'key'").select("group", "key.*")
        joined = connected_groups(keys)
        if not joined:
            return Scored(
                found.where("kind = 'run'").select("trajectory.*"),
                found.where("kind = 'score'").select("score.*"),
            )
        changes = spark.createDataFrame(sorted(joined.items()), "group long, joined long")
        groups = (
            groups.join(sql.broadcast(changes), "group", "left")
            .select("trace_id", sql.coalesce("joined", "group").alias("group"))
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        names = spark.createDataFrame([(name,) for name in {*joined.values()}], "group long")
        again = groups.join(sql.broadcast(names), "group", "left_semi")
        rest = found.join(sql.broadcast(changes.select("group")), "group", "left_anti")
        new = _scored(spans, logs, again, scorer, count)
        found = rest.select(new.columns).unionByName(new)


def _require(config: Config | None) -> None:
    for one in config.evaluators if config else ():
        if one.evaluator.asks_models:
            raise InputError(
                f"evaluator {one.name!r} asks a model; oteval.spark.score_files runs judges"
            )
    if config:
        require_files(config)


def require_files(config: Config) -> None:
    """Refuse references that are stored in a database.

    Raises:
        InputError: An evaluator has one.
    """
    for one in config.evaluators:
        if isinstance(one.reference, StoredReference):
            raise InputError(
                f"evaluator {one.name!r} reads its reference from a database; give Spark a file"
            )


def _scored(
    spans: DataFrame, logs: DataFrame | None, groups: DataFrame, scorer: GroupScorer, count: int
) -> DataFrame:
    """Return the rows that `GroupScorer` makes of the traces of some groups."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    # Functions, not methods: Spark counts arguments, and takes `self` for one of them.
    schema: Any = from_arrow_schema(OUTPUT)
    bucketed = groups.withColumn("bucket", sql.pmod("group", sql.lit(count)))
    ours = spans.join(bucketed, "trace_id").groupBy("bucket")
    if logs is None:
        found = ours.applyInArrow(lambda rows: scorer.score(rows), schema)
    else:
        # Named anew: Spark takes them for the same column, and refuses to group both sides by it.
        renamed = bucketed.toDF(*bucketed.columns)
        theirs = logs.join(renamed, "trace_id").groupBy("bucket")
        found = ours.cogroup(theirs).applyInArrow(
            lambda rows, records: scorer.score_with_logs(rows, records), schema
        )
    return found.persist(StorageLevel.DISK_ONLY)
