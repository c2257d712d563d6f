"""Functions of runs that look at a few fields, called once for equal fields.

A condition that only Python can test and the group of a run in a report depend on few fields. These
are read in SQL, and the function is called with a trajectory that has nothing else. Runs whose
columns do not tell a field are read as usual.

Tables: ``trajectories`` and ``superseded`` are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..jsontext import restore
from ..model import Gap, Message, SpanRef, ToolCall, Trajectory, Usage
from ..patterns import SPACES
from ..selection import Selection
from .conditions import FAILURES, PAIRED, sql_condition
from .memory import with_memory
from .query import reader

__all__ = [
    "ASKED",
    "RunColumn",
    "RunFields",
    "RunFunction",
    "attribute_pointer",
    "has_text",
    "selected",
]

# The most values of fields whose results are remembered.
_MOST_KNOWN = 20_000
_WANTED = "wanted"
_HOUR = 3600 * 10**9
_KEYS = [("trajectory_id", pa.string()), ("start_ns", pa.int64())]

# The first user message among the run's own messages, which are the last of its row. A path that is
# the same for all rows is compiled once.
_AT = "nullif(list_position(roles, 'user'), 0)"
_IS_FIRST = "(history_id IS NULL AND new_from = 0)"
_FIRST_ASKED = f"""
    CASE WHEN {_IS_FIRST} AND roles[1] = 'user'
            THEN TRY(json_extract_string(messages, '$[0].content'))
        WHEN {_IS_FIRST} AND roles[2] = 'user'
            THEN TRY(json_extract_string(messages, '$[1].content'))
        ELSE TRY(json_extract_string(
            messages, '$[#-' || (len(roles) - {_AT} + 1) || '].content'
        )) END
"""


def has_text(expression: str) -> str:
    """Return the condition that a text has more than white space."""
    return f"coalesce(regexp_matches({expression}, '[^{SPACES}]'), FALSE)"


_LATER_ASKED = f"""
    CASE WHEN json_valid(messages) AND json_array_length(messages) >= len(roles) THEN coalesce(
        list_filter(
            from_json(messages, '[{{"role":"VARCHAR","content":"VARCHAR"}}]')[-len(roles):],
            lambda m: m.role = 'user' AND {has_text("m.content")}
        )[1].content,
        ''
    ) END
"""
ASKED = f"""
    CASE WHEN {_AT} IS NULL THEN '' ELSE coalesce(
        list_filter([{_FIRST_ASKED}], lambda found: {has_text("found")})[1],
        {_LATER_ASKED}
    ) END
"""
"""The text of a run's question in SQL: "" without a question, NULL if the run must be read."""


class _Field(NamedTuple):
    """How a field is read.

    Attributes:
        sql: Its value, or NULL if the run must be read.
        of: The parts of a trajectory with this value.
        values: The parameters of `sql`.
    """

    sql: str
    of: Callable[[Any], Mapping[str, Any]]
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class RunFunction:
    """A function of trajectories that looks at a few fields.

    Attributes:
        fields: Names of `oteval.selection.FIELDS`, ``attributes.KEY``, ``id``, ``start``, or
            ``hour`` for the start of the hour in which the run began.
        of: The function. Its results can be put into a column of this type.
        type: The type.
    """

    fields: tuple[str, ...]
    of: Callable[[Trajectory], Any]
    type: pa.DataType


@dataclass(frozen=True)
class RunColumn:
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
        functions: Mapping[str, RunFunction | RunColumn],
        wanted: RunFunction | None = None,
    ) -> pa.Table:
        """Return the results of functions on runs.

        Args:
            runs: A query of rows of ``trajectories``.
            values: Its parameters.
            functions: The functions by the names of their results.
            wanted: Only runs for which this returns True are in the table; by default all are.

        Returns:
            A table with ``trajectory_id``, ``start_ns`` and the results, in any order.
        """
        called = functions if wanted is None else {**functions, _WANTED: wanted}
        return with_memory(self._connection, lambda: self._results(runs, values, called))

    def _results(
        self, runs: str, values: Sequence[Any], functions: Mapping[str, RunFunction | RunColumn]
    ) -> pa.Table:
        callers = [_caller(item) for item in functions.values()]
        fields = [(field.sql, *field.values) for caller in callers for field in caller.fields]
        chosen = "".join(f", {sql} AS field_{at}" for at, (sql, *_) in enumerate(fields))
        query = f"SELECT trajectory_id, start_ns{chosen} FROM ({runs})"  # noqa: S608
        params = [value for _, *known in fields for value in known]
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
            rest = iter(columns)
            results = [caller.results([next(rest) for _ in caller.fields]) for caller in callers]
            tables.append(_kept(pa.table([*keys, *results], schema)))
        read = self._of_read(pa.concat_tables(unread), functions, schema)
        table = pa.concat_tables([*tables, _kept(read)])
        return table.drop_columns([_WANTED]) if _WANTED in functions else table

    def _of_read(
        self, keys: pa.Table, functions: Mapping[str, RunFunction | RunColumn], schema: pa.Schema
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
    """Calls a function once for equal fields."""

    def __init__(self, function: RunFunction) -> None:
        self._function = function
        self.fields = [_field(name) for name in function.fields]
        self._known: dict[tuple[Any, ...], Any] = {}

    def results(self, columns: Sequence[pa.Array]) -> pa.Array:
        known, found = self._known, []
        for key in zip(*(column.to_pylist() for column in columns), strict=True):
            if key not in known:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known[key] = self._function.of(self._run(key))
            found.append(known[key])
        return pa.array(found, self._function.type)

    def _run(self, key: Sequence[Any]) -> Trajectory:
        """Return a trajectory that has only the fields."""
        parts: dict[str, Any] = {"id": "", "tail": (), "attributes": {}}
        for field, value in zip(self.fields, key, strict=True):
            result = field.of(value)
            tail = (*parts["tail"], *result.get("tail", ()))
            attributes = {**parts["attributes"], **result.get("attributes", {})}
            parts |= {**result, "tail": tail, "attributes": attributes}
        return Trajectory(root_span=SpanRef("", ""), **parts)


class _ColumnCaller:
    """Returns the results of a function in SQL."""

    def __init__(self, column: RunColumn) -> None:
        self.fields = [_Field(column.sql, dict, column.values)]

    def results(self, columns: Sequence[pa.Array]) -> pa.Array:
        return _copied(columns[0])


def _kept(table: pa.Table) -> pa.Table:
    """Return the rows that are wanted, if a function tells which."""
    return table.filter(table[_WANTED]) if _WANTED in table.column_names else table


def _copied(column: pa.Array) -> pa.Array:
    """Return a copy of a column that shares no memory with the rest of its batch."""
    return pa.concat_arrays([column, column.slice(0, 0)])


def _caller(function: RunFunction | RunColumn) -> _FunctionCaller | _ColumnCaller:
    return (
        _FunctionCaller(function) if isinstance(function, RunFunction) else _ColumnCaller(function)
    )


def selected(selection: Selection) -> RunFunction:
    """Return the function that tests conditions which `condition_of` leaves out."""
    rest = replace(
        Selection(),
        attributes=selection.attributes,
        asked=selection.asked,
        excluded=selection.excluded,
        conditions=tuple(
            condition
            for condition in selection.conditions
            if (translated := sql_condition(condition)) is None or not translated.is_exact
        ),
    )
    return RunFunction(tuple(dict.fromkeys(_looked_at(rest))), rest.matches, pa.bool_())


def _looked_at(selection: Selection) -> Iterator[str]:
    """Yield the fields that a selection tests."""
    yield from (condition.name for condition in selection.conditions)
    yield from (f"attributes.{key}" for key in selection.attributes)
    yield from ("asked",) if selection.asked else ()
    for name, restriction in (
        ("id", selection.ids),
        ("agent", selection.agents),
        ("service", selection.services),
        ("conversation", selection.conversations),
        ("model", selection.models),
    ):
        yield from (name,) if restriction else ()
    if selection.since_ns is not None or selection.until_ns is not None:
        yield "start"
    if selection.excluded is not None:
        yield from _looked_at(selection.excluded)


def attribute_pointer(key: str) -> str:
    """Return the JSON pointer of a key of an object."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def _field(name: str) -> _Field:
    key = name.removeprefix("attributes.")
    if key != name:
        return _Field(
            "coalesce(json_extract(attributes, ?)::VARCHAR, 'null')",
            lambda text: {"attributes": {key: restore(text)}},
            (attribute_pointer(key),),
        )
    return _FIELDS[name]


def _calls(text: str) -> Mapping[str, Any]:
    calls = tuple(ToolCall(name, None) for name in restore(text))
    return {"tail": (Message("assistant", None, calls),)}


def _agents(text: str) -> Mapping[str, Any]:
    names = restore(text)
    return {"agent": names[0], "agents": tuple(names) if len(names) > 1 else ()}


def _time(text: str) -> Mapping[str, Any]:
    start, end = restore(text)
    return {"start_ns": start, "end_ns": end}


# Tools are stored with lone surrogates escaped.
_CALLS = _Field(
    r"CASE WHEN NOT contains(array_to_string(call_names, ' '), '\u') "
    "THEN to_json(call_names)::VARCHAR END",
    _calls,
)
_USAGE = _Field(
    "to_json([input_tokens, output_tokens])::VARCHAR", lambda text: {"usage": Usage(*restore(text))}
)
_TIME = _Field("to_json([start_ns, end_ns])::VARCHAR", _time)
_FIELDS: Mapping[str, _Field] = {
    "id": _Field("trajectory_id", lambda name: {"id": name}),
    "agent": _Field("to_json(coalesce(agents, [agent]))::VARCHAR", _agents),
    "service": _Field("service", lambda name: {"service": name}),
    "conversation": _Field("conversation_id", lambda name: {"conversation_id": name}),
    "user": _Field("user_id", lambda name: {"user": name}),
    "version": _Field("agent_version", lambda name: {"version": name}),
    "parent": _Field("parent_id", lambda name: {"parent_id": name}),
    "turn": _Field("turn", lambda turn: {"turn": turn}),
    "model": _Field("to_json(models)::VARCHAR", lambda text: {"models": tuple(restore(text))}),
    "dialect": _Field(
        "to_json(dialects)::VARCHAR", lambda text: {"dialects": tuple(restore(text))}
    ),
    "gap": _Field(
        "to_json(gap_codes)::VARCHAR",
        lambda text: {"gaps": tuple(Gap(code, "") for code in restore(text))},
    ),
    "finish_reason": _Field(
        "to_json(coalesce(finish_reasons, []))::VARCHAR",
        lambda text: {"finish_reasons": tuple(restore(text))},
    ),
    "prompt": _Field(
        "to_json(coalesce(prompts, []))::VARCHAR",
        lambda text: {"prompts": tuple(restore(text))},
    ),
    "tool": _CALLS,
    "calls": _CALLS,
    "errors": _Field(
        f"CASE WHEN {PAIRED} THEN {FAILURES} END",
        lambda count: {"tail": (Message("tool", is_error=True),) * count},
    ),
    "input_tokens": _USAGE,
    "output_tokens": _USAGE,
    "start": _TIME,
    "seconds": _TIME,
    "hour": _Field(
        f"start_ns - (start_ns % {_HOUR} + {_HOUR}) % {_HOUR}", lambda start: {"start_ns": start}
    ),
    "asked": _Field(ASKED, lambda text: {"tail": (Message("user", text),) if text else ()}),
}
