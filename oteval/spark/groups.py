"""Groups of traces that are scored together: by conversations, and then by keys of their runs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from ..pipeline.trace_groups import GroupKey, linked_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["connected_groups", "groups_of_traces"]

_Name = TypeVar("_Name", bound=Hashable)


def groups_of_traces(spans: DataFrame) -> DataFrame:
    """Return the columns ``trace_id`` and ``group``, which traces of a conversation share.

    The group is a hash of the conversation, or else of the trace. Only traces with several
    conversations come to the driver. Two groups with equal hashes are scored together, which
    changes nothing.

    Args:
        spans: Rows of the table ``spans``.
    """
    from pyspark.sql import functions as sql

    conversations = spans.groupBy("trace_id").agg(
        sql.array_sort(sql.collect_set("conversation_id")).alias("names")
    )
    hashed = conversations.select(
        "trace_id",
        sql.transform("names", lambda name: sql.xxhash64(sql.lit("c"), name)).alias("names"),
    )
    several = hashed.where("size(names) > 1").select("names").distinct().collect()
    joined = _representatives(tuple(row.names) for row in several)
    own = sql.xxhash64(sql.lit("t"), "trace_id")
    found = hashed.select(
        "trace_id", sql.when(sql.size("names") > 0, sql.col("names")[0]).otherwise(own).alias("own")
    )
    if not joined:
        return found.withColumnRenamed("own", "group")
    changes = spans.sparkSession.createDataFrame(sorted(joined.items()), "own long, joined long")
    return found.join(sql.broadcast(changes), "own", "left").select(
        "trace_id", sql.coalesce("joined", "own").alias("group")
    )


def connected_groups(keys: DataFrame) -> dict[int, int]:
    """Return the groups that may belong together with others, each with the group to be part of.

    Only keys that several groups have come to the driver.

    Args:
        keys: The fields of `GroupKey` as columns.
    """
    from pyspark.sql import functions as sql

    shared = (
        keys.groupBy("value")
        .agg(sql.min("group"), sql.max("group"))
        .where("min(group) <> max(group)")
    )
    rows = keys.join(shared.select("value"), "value", "left_semi").orderBy("value")
    found = (
        GroupKey(row.value, row.group, row.role, row["first"], row["last"])
        for row in rows.toLocalIterator()
    )
    same = (list(several) for _, several in groupby(found, lambda key: key.value))
    return _representatives(tuple(linked) for several in same for linked in linked_groups(several))


def _representatives(sets: Iterable[tuple[_Name, ...]]) -> dict[_Name, _Name]:
    """Return each name with one that all names of its connected sets have."""
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
