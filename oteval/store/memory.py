"""Memory: how much DuckDB may take, and how much one reading may return.

DuckDB compresses 2,048 values of a column together and unpacks all of them to read one. A query on
wide rows therefore also needs memory for the neighbours of the rows that it returns. If it has too
little, it is retried with more memory, up to a share of the machine's memory.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from ..base import machine
from ..base.errors import TooLarge

__all__ = [
    "MAX_READ_BYTES",
    "ONE_THREAD_ROW",
    "WIDE_MEMORY_FACTOR",
    "ReadLimit",
    "Row",
    "fetch",
    "fetch_rows",
    "give_memory",
    "is_short_of_memory",
    "is_wide",
    "small_arrow",
    "with_memory",
]

T = TypeVar("T")
Row = tuple[Any, ...]
_log = logging.getLogger(__name__)
_MACHINE = machine.memory()
# The most memory that DuckDB may take.
_CEILING = _MACHINE // 2
# The most bytes of rows that are reconstructed together, which takes up to nine times as much.
MAX_READ_BYTES = _MACHINE // 16
# DuckDB reports a checkpoint without enough memory as an I/O error.
_SHORT = re.compile(r"Out of Memory|failed to (?:pin|allocate)|could not (?:allocate|free up)")
# Wide rows that are fetched at a time.
_FEW_ROWS = 128
# Rows of at least this size (bytes) count as wide, and need more memory than other rows by this
# factor.
_WIDE_ROW, WIDE_MEMORY_FACTOR = 64 << 10, 4
# Rows of at least this size (bytes) are read and written by one thread: each thread unpacks 2,048
# rows. Loading 261 MB of long histories peaks at 379 MB instead of 508.
ONE_THREAD_ROW = 16 << 10
_LIMIT = re.compile(r"([\d.]+) (bytes|KiB|MiB|GiB|TiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def is_short_of_memory(error: BaseException) -> bool:
    """Whether an error means that DuckDB needs more memory than it may take."""
    return isinstance(error, duckdb.OutOfMemoryException) or bool(_SHORT.search(str(error)))


def is_wide(size: int, count: int) -> bool:
    """Whether rows are so wide that DuckDB needs more memory to store them.

    It packs a column of 2,048 rows together. A checkpoint that has too little memory for this makes
    the connection useless, so the limit has to be raised before.

    Args:
        size: The bytes of the rows.
        count: The number of rows.
    """
    return size > _WIDE_ROW * max(1, count)


@contextmanager
def small_arrow() -> Iterator[None]:
    """Let Arrow take memory from the system in a block, so that it can return all of it.

    Its usual pool keeps memory that was freed: 90 MB during the first check of monitors.
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


class ReadLimit:
    """A limit on the bytes that several queries may return together.

    Args:
        max_bytes: The limit.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = self._left = max_bytes

    @property
    def taken(self) -> int:
        """The bytes that the queries have returned."""
        return self._max - self._left

    def take(self, rows: Iterable[T], size_of: Callable[[T], int]) -> list[T]:
        """Count rows or batches of rows, and return them.

        Args:
            rows: The rows or batches.
            size_of: Returns the bytes of one.

        Raises:
            TooLarge: They exceed the rest of the limit. None of them is counted.
        """
        taken_rows, left = [], self._left
        for row in rows:
            left -= size_of(row)
            if left < 0:
                raise TooLarge(
                    "the trace, with the traces of its conversation, has more than "
                    f"{self._max / (1 << 20):,.4g} MiB, which is too much to be reconstructed"
                )
            taken_rows.append(row)
        self._left = left
        return taken_rows


def fetch(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    values: Sequence[Any] | Mapping[str, Any] = (),
) -> pa.Table:
    """The result of a query, run with as much memory as it needs.

    Args:
        connection: The connection.
        query: The query, which writes nothing.
        values: Its parameters.
    """
    params: Any = values or None
    return with_memory(connection, lambda: connection.sql(query, params=params).to_arrow_table())


def fetch_rows(
    connection: duckdb.DuckDBPyConnection, query: str, limit: ReadLimit | None = None
) -> list[Row]:
    """The rows of a query, run with as much memory as it needs, as Python values.

    An Arrow table of wide rows would be a second copy of all of them.

    Args:
        connection: The connection.
        query: The query, which writes nothing.
        limit: Limits the bytes of the rows.

    Raises:
        TooLarge: The rows exceed the limit, or the query needs more memory than DuckDB may take.
    """
    if limit is None:
        return with_memory(connection, lambda: list(_rows(connection, query)))
    try:
        return with_memory(connection, lambda: _counted_rows(connection, query, limit))
    except duckdb.OutOfMemoryException as error:
        raise TooLarge(
            "the rows of the trace, and those stored beside them, need more than "
            f"{_CEILING >> 20:,} MiB of memory to be read"
        ) from error


def with_memory(connection: duckdb.DuckDBPyConnection, action: Callable[[], T]) -> T:
    """Call a function, and again with twice the memory as long as DuckDB has too little.

    Args:
        connection: The connection that the function uses.
        action: The function. It only reads, is one statement, or begins and ends its own
            transaction, so that nothing of a failed attempt remains.
    """
    while True:
        try:
            return action()
        except duckdb.Error as error:
            if not is_short_of_memory(error) or not give_memory(connection):
                raise


def give_memory(connection: duckdb.DuckDBPyConnection, times: int = 2) -> bool:
    """Multiply DuckDB's memory limit, up to a share of the machine's memory.

    Args:
        connection: A connection to the database.
        times: The factor.

    Returns:
        Whether the limit is higher now.
    """
    setting = connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    match = _LIMIT.fullmatch(setting)
    if match is None:
        return False
    limit = int(float(match[1]) * _UNITS[match[2]])
    more = min(times * limit, _CEILING)
    if more <= limit:
        return False
    connection.execute("SET memory_limit = ?", [f"{more >> 10}KiB"])
    _log.info("the database may take %d MB of memory from now on", more >> 20)
    return True


def _counted_rows(connection: Any, query: str, limit: ReadLimit) -> list[Row]:
    # After an error the open result would keep the connection from another query.
    with closing(_rows(connection, query)) as rows:
        return limit.take(rows, _row_size)


def _rows(connection: Any, query: str) -> Generator[Row, None, None]:
    relation = connection.sql(query)
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        # A remote connection returns the result in one piece.
        yield from _values(relation.to_arrow_table().to_batches())
        return
    with relation.to_arrow_reader(_FEW_ROWS) as reader:
        yield from _values(reader)


def _values(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _row_size(row: Row) -> int:
    """The characters of the texts of a row, which are nearly its bytes."""
    return sum([len(value) for value in row if value.__class__ is str])
