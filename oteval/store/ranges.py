"""Ranges of time or of row numbers; a query need not read rows outside of them.

Rows are stored roughly in the order of their numbers and times. DuckDB knows the lowest and highest
value of each row group and skips groups outside of a range, but only for one range at a time.
Queries therefore read each range separately and combine the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import duckdb
import pyarrow as pa

from .memory import ReadLimit, Row, fetch, fetch_rows

__all__ = [
    "EVERYWHERE",
    "MAX_WIDE_RANGES",
    "ROW_GROUP",
    "Range",
    "current_in",
    "merge_ranges",
    "per_range",
    "rows_in",
    "values_in",
]

# By default, ranges are merged if there are more than this, or if their gap is shorter (ns).
_MAX_RANGES = 16
_GAP_NS = 2_000_000_000
# The rows of a row group: a shorter gap between numbers saves no reading.
ROW_GROUP = 2048
# The most ranges in which wide rows are read; reading the rows between them would cost more.
MAX_WIDE_RANGES = 64
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class Range(NamedTuple):
    """A range of times (ns) or of row numbers.

    Attributes:
        first: The lowest value.
        last: The highest value, included; lower than `first` if the range is empty.
    """

    first: int
    last: int


EVERYWHERE = Range(_LEAST, _GREATEST)


def merge_ranges(
    ranges: Iterable[Range], gap: int = _GAP_NS, max_ranges: int = _MAX_RANGES
) -> list[Range]:
    """A few ranges that cover all given ones; the nearest ranges are merged.

    Args:
        ranges: The ranges; empty ranges are left out.
        gap: Ranges with a gap of at most this are always merged.
        max_ranges: The most ranges to return.
    """
    merged: list[Range] = []
    for row_range in sorted(row_range for row_range in ranges if row_range.first <= row_range.last):
        if merged and row_range.first - merged[-1].last <= gap:
            merged[-1] = Range(merged[-1].first, max(merged[-1].last, row_range.last))
        else:
            merged.append(row_range)
    if len(merged) <= max_ranges:
        return merged
    by_gap = sorted(range(1, len(merged)), key=lambda at: merged[at - 1].last - merged[at].first)
    cuts = [0, *sorted(by_gap[: max_ranges - 1]), len(merged)]
    return [Range(merged[begin].first, merged[end - 1].last) for begin, end in pairwise(cuts)]


def per_range(query: str, ranges: Sequence[Range]) -> str:
    """Return one query that combines the results of a query for each of some ranges.

    The query should select few columns and have no join, because each range takes memory for it.

    Args:
        query: The query, with ``{first}`` and ``{last}`` in place of a range's values.
        ranges: The ranges. Without any, the result is empty.
    """
    return " UNION ALL ".join(
        f"({query.format(first=int(row_range.first), last=int(row_range.last))})"
        for row_range in ranges or [Range(_GREATEST, _LEAST)]
    )


def current_in(query: str, ranges: Sequence[Range]) -> str:
    """`per_range` of a query on ``trajectories``, without superseded revisions.

    Args:
        query: The query, with ``trajectory_id`` and ``rev`` among its columns.
        ranges: The ranges.
    """
    rows_query = per_range(query, ranges)
    return f"SELECT * FROM ({rows_query}) ANTI JOIN superseded USING (trajectory_id, rev)"  # noqa: S608


def rows_in(connection: duckdb.DuckDBPyConnection, query: str, ranges: Sequence[Range]) -> pa.Table:
    """The results of a query for each of some ranges, run one after the other.

    This is for wide rows: one combined query would need too much memory for them.

    Args:
        connection: The connection.
        query: The query, with placeholders as in `per_range`.
        ranges: The ranges.
    """
    separate = [[group] for group in ranges] or [[]]
    return pa.concat_tables(fetch(connection, per_range(query, group)) for group in separate)


def values_in(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    ranges: Sequence[Range],
    limit: ReadLimit | None = None,
) -> list[Row]:
    """The rows of `rows_in` as Python values, which takes less memory for wide rows.

    Args:
        connection: The connection.
        query: The query, with placeholders as in `per_range`.
        ranges: The ranges.
        limit: Limits the bytes of the results.

    Raises:
        TooLarge: The results exceed the limit.
    """
    rows: list[Row] = []
    for row_range in ranges:
        rows += fetch_rows(connection, per_range(query, [row_range]), limit)
    return rows
