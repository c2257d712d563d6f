"""From a Python call to SQL and back.

Every part of the store goes the same way:

- Single values are parameters (``?`` or ``$name``) and never text in the query. `condition_of`
  turns a `Selection` into a condition with its parameters.
- Lists of values, such as trace ids, go in as an Arrow table with a name: `wanted` and `registered`
  name it for the queries of a block, and `insert` appends it to a table.
- Results are returned whole: one number (`number`), one row (`first_row`), one column (`column`),
  or all (`rows_of`). Only `reader` returns them batch by batch, on a separate connection, because
  DuckDB 2 refuses other work on a connection while a result is unfinished.
- Writes that belong together are made in a `transaction`. If two transactions change the same row
  at once, the later one fails; `repeated` calls it again.

A connection is DuckDB's, or a `RemoteConnection` to a process that has the database open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from ..base.errors import StoreError
from ..model import COLUMNS, Condition, Selection
from .column_sql import COLUMN_SQL, sql_condition

__all__ = [
    "column",
    "condition_of",
    "first_row",
    "insert",
    "is_conflict",
    "is_exact",
    "new_cursor",
    "next_number",
    "number",
    "reader",
    "registered",
    "repeated",
    "rows_of",
    "transaction",
    "wanted",
    "whole_numbers",
]

T = TypeVar("T")
_BATCH = 4096
# The text of the error, because a remote connection has only that.
_CONFLICT = re.compile(r"TransactionContext Error.*conflict", re.IGNORECASE)
_ATTEMPTS = 30
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0  # seconds; all together 25


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Begin a transaction, commit it at the end of the block, and roll it back after an error."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        # A failed commit has ended the transaction already. The first error is raised.
        with suppress(duckdb.Error):
            connection.rollback()
        raise


def is_conflict(error: BaseException) -> bool:
    """Whether a statement failed because another transaction changed the same row."""
    return isinstance(error, duckdb.Error) and bool(_CONFLICT.search(str(error)))


def repeated(action: Callable[[], T], wait: Callable[[float], object] = time.sleep) -> T:
    """Call a function, and retry it while its transaction conflicts with another one.

    Args:
        action: The function. It is one statement, or begins and ends its own transaction.
        wait: Waits for some seconds; an exception from it ends the attempts.

    Raises:
        StoreError: The other transaction does not end within half a minute.
    """
    delay = _FIRST_WAIT
    for _ in range(_ATTEMPTS):
        try:
            return action()
        except duckdb.Error as error:
            if not is_conflict(error):
                raise
        wait(delay)
        delay = min(2 * delay, _LONGEST_WAIT)
    raise StoreError("another process keeps changing the same rows; try again later")


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    """Let the queries of a block use an Arrow table by a name."""
    connection.register(name, table)
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error, StoreError):
            connection.unregister(name)
        raise
    connection.unregister(name)


@contextmanager
def wanted(
    connection: duckdb.DuckDBPyConnection, column: str, values: Iterable[str]
) -> Iterator[None]:
    """Make texts available to the queries of a block as the table ``wanted`` of one column."""
    table = pa.table({column: pa.array(list(values), pa.string())})
    with registered(connection, "wanted", table):
        yield


def insert(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Append the rows of an Arrow table to a table. Columns are matched by name.

    Columns that the Arrow table lacks become NULL.
    """
    with registered(connection, "incoming", table):
        connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM incoming")  # noqa: S608


def first_row(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> tuple[Any, ...] | None:
    """The first row of a query's result, or None if it is empty."""
    rows = connection.execute(query, list(values)).fetchall()
    return rows[0] if rows else None


def number(connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()) -> int:
    """The only number in a query's result, or 0 if the result is empty."""
    row = first_row(connection, query, values)
    return int(row[0]) if row else 0


def column(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    values: Sequence[Any] | Mapping[str, Any] = (),
) -> list[Any]:
    """The values of the only column in a query's result."""
    return [value for (value,) in connection.execute(query, values or None).fetchall()]


def next_number(connection: duckdb.DuckDBPyConnection, table: str, column: str = "seq") -> int:
    """The number after the highest one in a column of a table, from 1 on."""
    return number(connection, f"SELECT coalesce(max({column}), 0) + 1 FROM {table}")  # noqa: S608


def new_cursor(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Another connection to the same database."""
    cursor = connection.cursor()
    cursor.execute("USE store")
    return cursor


def reader(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> pa.RecordBatchReader:
    """A query's result batch by batch; the connection stays free for other work."""
    return new_cursor(connection).sql(query, params=list(values)).to_arrow_reader(_BATCH)


def rows_of(table: pa.Table) -> Iterable[dict[str, Any]]:
    """Yield the rows of an Arrow table as mappings."""
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from batch.to_pylist()


def whole_numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its sums, which Arrow has as decimals, as integers."""
    return {name: int(v) if isinstance(v, Decimal) else v for name, v in row.items()}


def condition_of(selection: Selection) -> tuple[str, list[Any]]:
    """A selection as a condition on the columns of ``trajectories``, with its parameters.

    It may select more runs (see `is_exact`); `run_fields.selected` tests them.
    """
    parts: list[str] = []
    values: list[Any] = []

    def add(part: str, value: Any) -> None:
        parts.append(part)
        values.append(value)

    if selection.ids:
        add(
            "len(list_filter(?::VARCHAR[], lambda p: starts_with(trajectory_id, p))) > 0",
            list(selection.ids),
        )
    if selection.since_ns is not None:
        add("start_ns >= ?", selection.since_ns)
    if selection.until_ns is not None:
        add("start_ns < ?", selection.until_ns)
    for name, accepted in selection.texts():
        column = COLUMN_SQL[name].sql
        texts = f"[{column}]" if COLUMNS[name].kind == "text" else column
        add(f"list_has_any({texts}, ?::VARCHAR[])", list(accepted))
    for alternatives in _alternatives(selection):
        translated = [sql_condition(condition) for condition in alternatives]
        translatable = [condition for condition in translated if condition is not None]
        if len(translatable) == len(alternatives):
            parts.append(
                f"({' OR '.join(condition.text for condition in translatable) or 'FALSE'})"
            )
            values.extend(value for condition in translatable for value in condition.values)
    if selection.excluded is not None and is_exact(selection.excluded):
        clause, more = condition_of(selection.excluded)
        parts.append(f"NOT coalesce({clause}, FALSE)")
        values.extend(more)
    return " AND ".join(parts) or "TRUE", values


def _alternatives(selection: Selection) -> Iterator[Sequence[Condition]]:
    """Yield lists of conditions; a run must meet one condition of each list."""
    yield from ([condition] for condition in selection.conditions)
    for key, accepted in selection.attributes.items():
        yield [Condition(f"attributes.{key}", "=", text) for text in accepted]
    if selection.asked:
        yield selection.asked


def is_exact(selection: Selection) -> bool:
    """Whether `condition_of` selects exactly the runs of a selection, without its limit."""
    if selection.excluded is not None and not is_exact(selection.excluded):
        return False
    conditions = [
        alternative for alternatives in _alternatives(selection) for alternative in alternatives
    ]
    translated = [sql_condition(condition) for condition in conditions]
    return all(condition is not None and condition.is_exact for condition in translated)
