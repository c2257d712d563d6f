"""Functions of runs that read a few columns, called once for equal values.

Two functions depend on few columns: a condition that only Python can test, and the group of a run
in a report. The columns are read in SQL, and the function is called with their values alone. Runs
without these values in their rows are read as usual.

Tables: ``trajectories`` and ``superseded`` are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from ..model import RunValues, Selection, Trajectory, column_values
from .column_sql import decoder_of, transport_of
from .conditions import sql_condition
from .memory import with_memory
from .query import is_exact, reader

__all__ = [
    "RunExpression",
    "RunFields",
    "RunFunction",
    "selected",
]

# The most results to cache.
_MOST_KNOWN = 20_000
_WANTED = "wanted"
_KEYS = [("trajectory_id", pa.string()), ("start_ns", pa.int64())]


@dataclass(frozen=True)
class RunFunction:
    """A function of a few columns of a run.

    Attributes:
        columns: Names of `oteval.model.columns.COLUMNS`, or ``attributes.KEY``.
        call: The function. Its results can be put into a column of this type.
        type: The type.
    """

    columns: tuple[str, ...]
    call: Callable[[RunValues], Any]
    type: pa.DataType

    def of(self, run: Trajectory) -> Any:
        """Its result for a run that was read."""
        return self.call(column_values(run))


@dataclass(frozen=True)
class RunExpression:
    """A function of trajectories in SQL.

    Attributes:
        sql: Its result, or NULL if the run must be read.
        values: The parameters of `sql`.
        of: The function in Python.
        type: The type of its results.
    """

    sql: str
    values: tuple[Any, ...]
    of: Callable[[Trajectory], Any]
    type: pa.DataType


class RunFields:
    """Calls functions on the runs of a store.

    Args:
        connection: The connection.
        read: Yields the trajectories of a table of `Trajectories.keys`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        read: Callable[[pa.Table], Iterator[Trajectory]],
    ) -> None:
        self._connection = connection
        self._read = read

    def results(
        self,
        runs: str,
        values: Sequence[Any],
        functions: Mapping[str, RunFunction | RunExpression],
        run_filter: RunFunction | None = None,
    ) -> pa.Table:
        """The results of functions on runs.

        Args:
            runs: A query of rows of ``trajectories``.
            values: Its parameters.
            functions: The functions by the names of their results.
            run_filter: Returns True for the runs to include; by default all runs are.

        Returns:
            A table with ``trajectory_id``, ``start_ns`` and the results, in any order.
        """
        called = functions if run_filter is None else {**functions, _WANTED: run_filter}
        return with_memory(self._connection, lambda: self._results(runs, values, called))

    def _results(
        self, runs: str, values: Sequence[Any], functions: Mapping[str, RunFunction | RunExpression]
    ) -> pa.Table:
        callers = [_caller(item) for item in functions.values()]
        scalars = [scalar for caller in callers for scalar in caller.scalars]
        chosen = "".join(f", {sql} AS scalar_{at}" for at, (sql, _) in enumerate(scalars))
        query = f"SELECT trajectory_id, start_ns{chosen} FROM ({runs})"  # noqa: S608
        params = [parameter for _, parameters in scalars for parameter in parameters]
        schema = pa.schema([*_KEYS, *((name, item.type) for name, item in functions.items())])
        tables, unread = [schema.empty_table()], [pa.schema(_KEYS).empty_table()]
        for batch in reader(self._connection, query, [*params, *values]):
            # A column of a batch keeps all of its columns in memory, texts among them.
            keys, columns = [*map(_copied, batch.columns[:2])], batch.columns[2:]
            missing = [column.is_null() for column in columns if column.null_count]
            if missing:
                import pyarrow.compute as pc  # takes a tenth of a second, and few commands need it

                is_missing = missing[0]
                for more in missing[1:]:
                    is_missing = pc.or_(is_missing, more)
                unread.append(
                    pa.table([item.filter(is_missing) for item in keys], pa.schema(_KEYS))
                )
                is_known = pc.invert(is_missing)
                keys = [item.filter(is_known) for item in keys]
                columns = [item.filter(is_known) for item in columns]
            remaining = iter(columns)
            results = [
                caller.results([next(remaining) for _ in caller.scalars]) for caller in callers
            ]
            tables.append(_kept(pa.table([*keys, *results], schema)))
        read = self._of_read(pa.concat_tables(unread), functions, schema)
        table = pa.concat_tables([*tables, _kept(read)])
        return table.drop_columns([_WANTED]) if _WANTED in functions else table

    def _of_read(
        self,
        keys: pa.Table,
        functions: Mapping[str, RunFunction | RunExpression],
        schema: pa.Schema,
    ) -> pa.Table:
        ordered = keys.sort_by([("start_ns", "ascending"), ("trajectory_id", "ascending")])
        rows = [
            [run.id, run.start_ns, *(function.of(run) for function in functions.values())]
            for run in (self._read(ordered) if len(ordered) else ())
        ]
        return (
            pa.table([list(column) for column in zip(*rows, strict=True)], schema)
            if rows
            else (schema.empty_table())
        )


class _FunctionCaller:
    """Calls a function once for equal columns."""

    def __init__(self, function: RunFunction) -> None:
        self._function = function
        self.scalars = [transport_of(name) for name in function.columns]
        self._decoders = [decoder_of(name) for name in function.columns]
        self._results: dict[tuple[Any, ...], Any] = {}

    def results(self, columns: Sequence[pa.Array]) -> pa.Array:
        results, rows = self._results, []
        for key in zip(*(column.to_pylist() for column in columns), strict=True):
            if key not in results:
                if len(results) >= _MOST_KNOWN:
                    results.clear()
                results[key] = self._function.call(self._values(key))
            rows.append(results[key])
        return pa.array(rows, self._function.type)

    def _values(self, key: Sequence[Any]) -> RunValues:
        scalars = zip(self._function.columns, self._decoders, key, strict=True)
        # Raises a KeyError for a column that the function did not name.
        return {name: decode(scalar) for name, decode, scalar in scalars}.__getitem__


class _ExpressionCaller:
    """Returns the results of a function in SQL."""

    def __init__(self, expression: RunExpression) -> None:
        self.scalars = [(expression.sql, expression.values)]

    def results(self, columns: Sequence[pa.Array]) -> pa.Array:
        return _copied(columns[0])


def _kept(table: pa.Table) -> pa.Table:
    """The rows that the filter accepts, if there is a filter."""
    return table.filter(table[_WANTED]) if _WANTED in table.column_names else table


def _copied(column: pa.Array) -> pa.Array:
    """A copy of a column that shares no memory with the rest of its batch."""
    return pa.concat_arrays([column, column.slice(0, 0)])


def _caller(function: RunFunction | RunExpression) -> _FunctionCaller | _ExpressionCaller:
    if isinstance(function, RunFunction):
        return _FunctionCaller(function)
    return _ExpressionCaller(function)


def selected(selection: Selection) -> RunFunction:
    """The function that tests the conditions that `condition_of` leaves out."""
    excluded = selection.excluded
    if excluded is not None and is_exact(excluded):
        excluded = None
    residual = replace(
        Selection(),
        attributes=selection.attributes,
        asked=selection.asked,
        excluded=excluded,
        conditions=tuple(
            condition
            for condition in selection.conditions
            if (translated := sql_condition(condition)) is None or not translated.is_exact
        ),
    )
    return RunFunction(tuple(dict.fromkeys(residual.columns())), residual.accepts, pa.bool_())
