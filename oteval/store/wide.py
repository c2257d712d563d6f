"""Wide rows: read with as much memory as they need, up to a share of the machine's.

DuckDB packs 2,048 values of a column together where they are long, and unpacks all of them for any
one. So what a query needs depends on the rows beside those it asks for too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from .. import machine
from ..errors import TooLarge

__all__ = ["MOST", "Allowance", "fetched", "give_memory", "with_memory"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MACHINE = machine.memory()
# What DuckDB may take at the most.
_CEILING = _MACHINE // 2
# Bytes of rows that are reconstructed together, at the most: doing so takes up to nine times that.
MOST = _MACHINE // 16
_BATCH = 1024
_LIMIT = re.compile(r"([\d.]+) (bytes|KiB|MiB|GiB|TiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Allowance:
    """How many bytes several queries may find together.

    Args:
        most: The bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return batches of rows, and count them in.

        Raises:
            TooLarge: They are more than may still be found; none is counted in then.
        """
        found, left = [], self._left
        for batch in batches:
            left -= batch.nbytes
            if left < 0:
                raise TooLarge(
                    "the trace, with all that hangs together with it, has more than "
                    f"{self._most / (1 << 20):,.4g} MiB, which is too much to be reconstructed"
                )
            found.append(batch)
        self._left = left
        return found


def fetched(
    connection: duckdb.DuckDBPyConnection, query: str, allowance: Allowance | None = None
) -> pa.Table:
    """Return what a query finds.

    Args:
        connection: The connection.
        query: The query.
        allowance: How many bytes it may find; None for any number.

    Raises:
        TooLarge: It finds more, or DuckDB may not take as much memory as it needs for that.
    """
    if allowance is None:
        return with_memory(connection, lambda: connection.sql(query).to_arrow_table())
    try:
        return with_memory(connection, lambda: _fetched(connection, query, allowance))
    except duckdb.OutOfMemoryException as error:
        raise TooLarge(
            "the rows of the trace, and those stored beside them, need more than "
            f"{_CEILING >> 20:,} MiB of memory to be read"
        ) from error


def with_memory(connection: duckdb.DuckDBPyConnection, read: Callable[[], T]) -> T:
    """Return what reading gives, tried again with twice the memory while DuckDB lacks it.

    Args:
        connection: The connection that is read with.
        read: What reads; it writes nothing.
    """
    while True:
        try:
            return read()
        except duckdb.OutOfMemoryException:
            if not give_memory(connection):
                raise


def give_memory(connection: duckdb.DuckDBPyConnection, times: int = 2) -> bool:
    """Let DuckDB take some times the memory, up to a share of the machine's.

    Args:
        connection: A connection to the database.
        times: How many times what it may take now.

    Returns:
        Whether it may take more than before.
    """
    setting = connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    found = _LIMIT.fullmatch(setting)
    if found is None:
        return False
    limit = int(float(found[1]) * _UNITS[found[2]])
    more = min(times * limit, _CEILING)
    if more <= limit:
        return False
    connection.execute("SET memory_limit = ?", [f"{more >> 10}KiB"])
    _log.info("the database may take %d MB of memory from now on", more >> 20)
    return True


def _fetched(connection: Any, query: str, allowance: Allowance) -> pa.Table:
    relation = connection.sql(query)
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        # By way of a server: it comes in one piece.
        table = relation.to_arrow_table()
        return pa.Table.from_batches(allowance.take(table.to_batches()), table.schema)
    with relation.to_arrow_reader(_BATCH) as reader:
        return pa.Table.from_batches(allowance.take(reader), reader.schema)
