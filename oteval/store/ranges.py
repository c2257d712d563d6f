"""Stretches of time or of numbers: what lies outside of them need not be read.

Rows come about in the order of their numbers and times, so that DuckDB knows of each row group
between which it lies, and skips those that no stretch touches. It does that well for one stretch at
a time only: queries ask for each by itself, and put together what they get.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import duckdb
import pyarrow as pa

from .wide import Allowance, fetched

__all__ = ["EVERYWHERE", "ROWS", "WIDE", "Range", "current_in", "joined", "per_range", "rows_in"]

_MOST = 16
# Stretches nearer to each other than these are one: less than a row group lies between them.
_SECONDS = 2_000_000_000
ROWS = 2048
# So many stretches wide rows are asked for, each by itself: reading between them costs more.
WIDE = 64
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class Range(NamedTuple):
    """A stretch of time (ns), or of numbers of rows.

    Attributes:
        first: Where it begins.
        last: Where it ends; before `first` when it is empty.
    """

    first: int
    last: int


EVERYWHERE = Range(_LEAST, _GREATEST)


def joined(ranges: Iterable[Range], near: int = _SECONDS, most: int = _MOST) -> list[Range]:
    """Return a few stretches that hold all of some, those nearest to each other put together.

    Args:
        ranges: The stretches; empty ones are left out.
        near: The distance up to which two are always put together.
        most: How many are returned at the most.
    """
    found: list[Range] = []
    for one in sorted(one for one in ranges if one.first <= one.last):
        if found and one.first - found[-1].last <= near:
            found[-1] = Range(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    if len(found) <= most:
        return found
    gaps = sorted(range(1, len(found)), key=lambda at: found[at - 1].last - found[at].first)
    cuts = [0, *sorted(gaps[: most - 1]), len(found)]
    return [Range(found[begin].first, found[end - 1].last) for begin, end in pairwise(cuts)]


def per_range(query: str, ranges: Sequence[Range]) -> str:
    """Return the query that puts together what one finds in each of some stretches.

    It is one of few columns and without a join: each stretch would need memory of its own for it.

    Args:
        query: The query, with ``{first}`` and ``{last}`` where the ends of a stretch go.
        ranges: The stretches; none finds nothing.
    """
    asked = ranges or [Range(_GREATEST, _LEAST)]
    return " UNION ALL ".join(
        f"({query.format(first=int(one.first), last=int(one.last))})" for one in asked
    )


def current_in(query: str, ranges: Sequence[Range]) -> str:
    """Return what `per_range` does of ``trajectories``, less revisions that are superseded.

    Args:
        query: The query; ``trajectory_id`` and ``rev`` are among its columns.
        ranges: The stretches.
    """
    found = per_range(query, ranges)
    return f"SELECT * FROM ({found}) ANTI JOIN superseded USING (trajectory_id, rev)"  # noqa: S608


def rows_in(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    ranges: Sequence[Range],
    allowance: Allowance | None = None,
) -> pa.Table:
    """Return what a query finds in each of some stretches, asked one after the other.

    For wide rows, of which one query for all would need too much memory.

    Args:
        connection: The connection.
        query: The query, as `per_range` takes it.
        ranges: The stretches.
        allowance: How many bytes may be found; None for any number.

    Raises:
        TooLarge: There is more.
    """
    asked = [[one] for one in ranges] or [[]]
    return pa.concat_tables(fetched(connection, per_range(query, one), allowance) for one in asked)
