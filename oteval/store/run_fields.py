"""Functions of runs that read a few columns, called once for equal values.

Three functions depend on few columns: a condition that only Python can test, the group of a run in
a report, and its case. The columns are read in SQL, and the function is called with their values
alone. Runs without these values in their rows are read as usual.

The case of a run is a number; see `oteval.model.experiment`. Most runs have a short question and no
attribute that names their case. Their number is made from the columns; runs that need more are
read.

Tables: ``trajectories`` and ``superseded`` are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from ..base.jsontext import dumps, escaped
from ..base.patterns import SPACES
from ..model import (
    LONGEST_CASE,
    Condition,
    RunValues,
    Selection,
    Trajectory,
    case_text,
    column_values,
)
from .column_sql import ASKED, attribute_pointer, decoder_of, has_text, sql_condition, transport_of
from .memory import with_memory
from .query import is_exact, reader

__all__ = [
    "RunExpression",
    "RunFields",
    "RunFunction",
    "RunGroups",
    "case_column",
    "number_of",
    "selected",
    "split_at",
    "split_by",
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
        callers = [_Caller(item) for item in functions.values()]
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


class _Caller:
    """Calls a function once for equal columns; SQL has the results of an expression."""

    def __init__(self, function: RunFunction | RunExpression) -> None:
        self._function = function
        self._results: dict[tuple[Any, ...], Any] = {}
        if isinstance(function, RunExpression):
            self.scalars = [(function.sql, function.values)]
        else:
            self.scalars = [transport_of(name) for name in function.columns]
            self._decoders = [decoder_of(name) for name in function.columns]

    def results(self, columns: Sequence[pa.Array]) -> pa.Array:
        if isinstance(self._function, RunExpression):
            return _copied(columns[0])
        results, rows = self._results, []
        for key in zip(*(column.to_pylist() for column in columns), strict=True):
            if key not in results:
                if len(results) >= _MOST_KNOWN:
                    results.clear()
                results[key] = self._function.call(self._values(self._function.columns, key))
            rows.append(results[key])
        return pa.array(rows, self._function.type)

    def _values(self, columns: Sequence[str], key: Sequence[Any]) -> RunValues:
        scalars = zip(columns, self._decoders, key, strict=True)
        # Raises a KeyError for a column that the function did not name.
        return {name: decode(scalar) for name, decode, scalar in scalars}.__getitem__


def _kept(table: pa.Table) -> pa.Table:
    """The rows that the filter accepts, if there is a filter."""
    return table.filter(table[_WANTED]) if _WANTED in table.column_names else table


def _copied(column: pa.Array) -> pa.Array:
    """A copy of a column that shares no memory with the rest of its batch."""
    return pa.concat_arrays([column, column.slice(0, 0)])


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


@dataclass(frozen=True)
class RunGroups:
    """How runs are compared.

    Attributes:
        group: The name of a run's group, a text.
        case_attributes: The attributes that name its case; the first one present counts.
    """

    group: RunFunction | RunExpression
    case_attributes: tuple[str, ...]


def split_at(time_ns: int, before: str, since: str) -> RunExpression:
    """The grouping of runs by whether they began before a time (ns)."""

    def group(run: Trajectory) -> str:
        return before if run.start_ns < time_ns else since

    sql = "CASE WHEN start_ns < ?::BIGINT THEN ?::VARCHAR ELSE ?::VARCHAR END"
    return RunExpression(sql, (time_ns, before, since), group, pa.string())


def split_by(condition: Condition, name: str, other_name: str) -> RunFunction | RunExpression:
    """The grouping of runs by whether they meet a condition."""

    def group(run: Trajectory) -> str:
        return named(column_values(run))

    def named(values: RunValues) -> str:
        return name if condition.accepts(values) else other_name

    translated = sql_condition(condition)
    if translated is None or not translated.is_exact:
        return RunFunction((condition.name,), named, pa.string())
    sql = f"CASE WHEN {translated.text} THEN ?::VARCHAR ELSE ?::VARCHAR END"
    return RunExpression(sql, (*translated.values, name, other_name), group, pa.string())


_NAME = "CASE WHEN contains(attributes, ?) THEN json_extract(attributes, ?)::VARCHAR END"
_PARTS = f"""
    coalesce(CASE WHEN contains(messages, '"parts":') THEN list_filter(
        from_json(
            messages, '[{{"role":"VARCHAR","content":"VARCHAR","parts":"JSON"}}]'
        )[-len(roles):],
        lambda m: m.role = 'user' AND {has_text("m.content")}
    )[1].parts::VARCHAR END, '')
"""


def _case_number(text: str) -> int:
    """The number of a case by its text, as `number_of` does in SQL."""
    digest = hashlib.md5(escaped(text).encode(), usedforsecurity=False).hexdigest()
    return int(digest[:15], 16)


def number_of(text: str) -> str:
    """The number of a case by its text, in SQL."""
    return f"('0x' || left(md5({text}), 15))::BIGINT"


# A text with quotes is trimmed of the white space of `str.strip`.
_NAMED = f"""
    CASE WHEN starts_with(run.name, '"') THEN regexp_replace(
        json_extract_string(run.name, '$'), '^[{SPACES}]+|[{SPACES}]+$', '', 'g'
    ) ELSE run.name END
"""
# White space as in `oteval.model.experiment.normal_text`; most questions are already normal.
_BREAKS = SPACES.replace(r"-\x{20}", r"-\x{1f}")
_QUESTION = f"""
    CASE WHEN regexp_matches(run.asked, '^ | $|  |[{_BREAKS}]')
        THEN trim(regexp_replace(run.asked, '[{SPACES}]+', ' ', 'g'), ' ')
        ELSE run.asked END
"""
_TEXT = f"CASE WHEN run.turn > 1 THEN 'turn ' || run.turn || ': ' ELSE '' END || ({_QUESTION})"


def case_column(attributes: Sequence[str]) -> RunExpression:
    """The numbers of the cases of runs.

    Args:
        attributes: The attributes that name a case; the first one present counts.
    """
    names = ", ".join([_NAME] * len(attributes))
    values = [part for key in attributes for part in (dumps(key), attribute_pointer(key))]
    name = f"list_filter([{names}], lambda name: name NOT IN ('null', '\"\"'))[1]"
    # DuckDB copies the columns that a lambda uses, so this lambda uses only narrow ones. Python and
    # JSON write values other than texts and integers differently.
    sql = f"""
        list_transform([{{
                id: trajectory_id, turn: turn, name: {name}, asked: {ASKED}, parts: {_PARTS}
            }}],
            lambda run: CASE
                WHEN NOT regexp_matches(run.name, '^("|-?[0-9]+$)') THEN NULL
                WHEN {_NAMED} <> '' THEN {number_of(_NAMED)}
                WHEN run.asked IS NULL THEN NULL
                WHEN run.asked = '' THEN {number_of("run.id")}
                WHEN run.parts = '' AND length({_QUESTION}) <= {LONGEST_CASE}
                    THEN {number_of(_TEXT)}
                ELSE {number_of(f"chr(0) || {_TEXT} || chr(0) || run.parts")} END)[1]
    """

    def of(run: Trajectory) -> int:
        return _case_number(case_text(run, attributes))

    return RunExpression(sql, tuple(values), of, pa.int64())
