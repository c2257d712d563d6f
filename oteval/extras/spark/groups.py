"""Groups of traces that are scored together: by conversations, and then by keys of their runs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from .group_keys import GroupKey, linked_groups

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "changes_of",
    "connected_groups",
    "groups_of_conversations",
    "moved",
    "own_group",
    "traces_of",
]

_Name = TypeVar("_Name", bound=Hashable)


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
