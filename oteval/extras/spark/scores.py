"""Score the rows of ``spans`` and ``logs`` that a Spark session reads.

The first pass reconstructs and scores each group of traces that share conversations. It also yields
the keys that the runs of a group share with runs of other groups that may belong to them. Groups
with such keys are joined and scored anew, until no key connects two groups. The result equals the
result of a store. `groups` makes the groups, `tasks` distributes them, and the executors run
`group_scores`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import InputError
from ...model import EVERYTHING, Selection
from ...scoring import Config, is_in_store, prepare
from .columns import with_timestamps
from .group_scores import GroupScorer
from .groups import (
    changes_of,
    connected_groups,
    groups_of_conversations,
    moved,
    own_group,
    traces_of,
)
from .tasks import number_of_tasks, scored, span_rows, with_groups, with_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["GROUP_BYTES", "Scored", "require_files", "score", "trajectories"]

GROUP_BYTES = 128 << 20
"""The most bytes of rows that a conversation may have by default."""


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
    cache = _Cache()
    try:
        rows = _scored_rows(spans, logs, scorer, cache)
    except BaseException:
        # The session itself may have ended.
        with suppress(Exception):
            cache.release()
        raise
    return Scored(
        with_timestamps(rows.where("kind = 'run'").select("trajectory.*")),
        with_timestamps(rows.where("kind = 'score'").select("score.*")),
        cache.frames,
    )


class _Cache:
    """The data frames that Spark keeps for one scoring.

    Attributes:
        frames: The data frames.
    """

    def __init__(self) -> None:
        self.frames: list[DataFrame] = []

    def keep(self, frame: DataFrame, *, in_memory: bool = True) -> DataFrame:
        """Keep a data frame once it is computed, and return it."""
        from pyspark import StorageLevel

        level = frame.storageLevel
        # Equal frames share their cache. If another scoring has kept a frame, it is not ours to
        # release.
        if not (level.useMemory or level.useDisk):
            kind = StorageLevel.MEMORY_AND_DISK if in_memory else StorageLevel.DISK_ONLY
            self.frames.append(frame.persist(kind))
        return frame

    def release(self) -> None:
        """Release all of them."""
        for frame in self.frames:
            frame.unpersist()


def _scored_rows(
    spans: DataFrame, logs: DataFrame | None, scorer: GroupScorer, cache: _Cache
) -> DataFrame:
    """The rows of `group_scores.OUTPUT` for all traces, each group scored as a whole."""
    from pyspark.sql import functions as sql

    plain = span_rows(spans)
    rows = with_logs(plain, logs)
    # Kept, because the number of tasks, the tasks, and each round below read them.
    traces = cache.keep(traces_of(plain))
    groups = cache.keep(groups_of_conversations(traces))
    tasks = number_of_tasks(traces)
    own = sql.coalesce("group", own_group()).alias("group")
    ours = with_groups(rows, groups, "left").withColumn("group", own)
    results = cache.keep(scored(ours, scorer, tasks), in_memory=False)
    groups = traces.join(groups, "trace_id", "left").select("trace_id", own)
    while joined := connected_groups(results.where("kind = 'key'").select("group", "key.*")):
        changes = sql.broadcast(changes_of(joined, spans.sparkSession))
        again = groups.join(changes, "group").selectExpr("trace_id", "joined AS group")
        again = cache.keep(again)
        new = scored(with_groups(rows, again, "inner"), scorer, tasks)
        new = cache.keep(new, in_memory=False)
        unchanged = results.join(changes.select("group"), "group", "left_anti")
        results = unchanged.select(new.columns).unionByName(new)
        groups = cache.keep(moved(groups, changes))
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
