"""The columns of a run in SQL, sums of their tokens, and conditions on them.

A column has the value of `oteval.model.columns`, from a row of ``trajectories``. The SQL of a
condition of ``--where`` has the same result as `Condition.holds`, or selects more runs, which
Python then tests; see `SqlCondition.is_exact`. Regular expressions are left to Python.

Tables: ``trajectories`` is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from ..base.jsontext import encodable, restore
from ..base.patterns import SPACES
from ..model import COLUMNS, MEASURES, Condition, Usage, semconv

__all__ = [
    "ASKED",
    "COLUMN_SQL",
    "HAS_TOKENS",
    "ONE_MODEL",
    "TOKEN_COLUMNS",
    "TOKEN_SUMS",
    "ColumnSql",
    "SqlCondition",
    "all_input",
    "attribute_pointer",
    "decoder_of",
    "group_sql",
    "has_text",
    "listed_sql",
    "listed_value",
    "measure_sql",
    "sql_condition",
    "transport_of",
    "usage_of",
    "usages_of",
]

TOKEN_COLUMNS = (
    *("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "input_audio_tokens", "output_audio_tokens"),
)
"""The columns of tokens; columns that newer versions added are NULL in older rows."""


def all_input(row: str) -> str:
    """The expression for all input tokens of a row of ``trajectories``.

    Runs that older versions stored may count cached tokens outside of the input; see `Price.cost`.

    Args:
        row: The table or its alias, with a dot, or "".
    """
    written = f"coalesce({row}cache_write_tokens, 0)"
    return f"greatest({row}input_tokens::HUGEINT, {row}cached_tokens::HUGEINT + {written})"


HAS_TOKENS = f"coalesce({all_input('')} > 0, FALSE)"
"""The condition that a row of ``trajectories`` reports tokens, as `Usage.is_known`."""
ONE_MODEL = f"CASE WHEN len(models) = 1 AND {HAS_TOKENS} THEN models[1] END"
"""The model whose price determines the cost of a row of ``trajectories``; NULL without one."""
TOKEN_SUMS = ", ".join(
    f"coalesce(sum({all_input('') if name == 'input_tokens' else name}), 0)::HUGEINT AS {name}"
    for name in TOKEN_COLUMNS
)
"""The sums of all columns of tokens, under their names."""


def usage_of(row: Mapping[str, Any]) -> Usage:
    """The usage in the columns of a row; a missing number is 0."""
    numbers = {name: int(row.get(name) or 0) for name in TOKEN_COLUMNS}
    return Usage(**numbers, model_calls=int(row.get("model_calls") or 0))


def usages_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int, Usage]]:
    """Yield the model, the number of runs and the tokens of rows with `TOKEN_SUMS`."""
    for row in rows:
        yield row["model"], int(row["runs"]), usage_of(row)


_HOUR = 3600 * 10**9

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
    """The condition that a text has more than white space."""
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
# For few rows, because planning `ASKED` takes 5 ms. The characters of the pattern are printable,
# and not spaces. If a question has no such character, the run is read.
_FIRST_CONTENT = (
    "TRY(json_extract_string(messages, '$[#-' || (len(roles) - list_position(roles, 'user') + 1) "
    "|| '].content'))"
)
_LISTED_ASKED = f"""
    CASE WHEN NOT list_contains(roles, 'user') THEN ''
        WHEN regexp_matches({_FIRST_CONTENT}, '[!-~\\x{{a1}}-\\x{{167f}}\\x{{3001}}-\\x{{10ffff}}]')
        THEN {_FIRST_CONTENT} END
"""
_FAILED_CALLS = "len(list_filter(call_errors, lambda e: e))"


def _tokens(*kinds: str) -> str:
    """A sum of kinds of tokens, NULL if the row does not report the input."""
    total = " + ".join(f"coalesce({kind}, 0)::HUGEINT" for kind in kinds)
    return f"CASE WHEN {HAS_TOKENS} THEN {total} END"


@dataclass(frozen=True, slots=True)
class ColumnSql:
    """The value of a column in SQL.

    Attributes:
        sql: The value, NULL or "" where the run lacks it.
        known: The condition that the row has the value; otherwise the run must be read. "" if every
            row has it.
        is_escaped: Whether lone surrogates in its texts are escaped. The run must be read for a
            text with an escape, but other texts are found without.
        is_optional: Whether a run with the text "" lacks the column.
        is_wide: Whether it needs the messages, so other filters should narrow the rows down first.
            It is NULL if the run must be read.
        listed: Another form of it for few rows.
    """

    sql: str
    known: str = ""
    is_escaped: bool = False
    is_optional: bool = False
    is_wide: bool = False
    listed: str = ""

    @property
    def is_known(self) -> str:
        """The condition that the row has the value, "" for all rows."""
        if self.is_escaped:
            return rf"NOT contains(array_to_string({self.sql}, ' '), '\u')"
        return self.known


COLUMN_SQL: Mapping[str, ColumnSql] = {
    # A run with a handover belongs to each of its agents.
    "agent": ColumnSql("list_transform(coalesce(agents, [agent]), lambda a: coalesce(a, ''))"),
    "service": ColumnSql("coalesce(service, '')"),
    "conversation": ColumnSql("coalesce(conversation_id, '')"),
    # NULL in older rows; their attributes have the value.
    "user": ColumnSql("user_id", "user_id IS NOT NULL"),
    "version": ColumnSql("agent_version", "agent_version IS NOT NULL"),
    "model": ColumnSql("models"),
    "dialect": ColumnSql("dialects"),
    "gap": ColumnSql("gap_codes"),
    "finish_reason": ColumnSql("coalesce(finish_reasons, [])"),
    "prompt": ColumnSql("coalesce(prompts, [])"),
    "turn": ColumnSql("turn"),
    "parent": ColumnSql("coalesce(parent_id, '')"),
    "tool": ColumnSql("call_names", is_escaped=True),
    "calls": ColumnSql("len(call_names)"),
    # Only if each tool message is the result of a call: other tool messages may report failures,
    # which only the messages show.
    "errors": ColumnSql(
        _FAILED_CALLS, "len(list_filter(roles, lambda r: r = 'tool')) = list_count(call_errors)"
    ),
    "input_tokens": ColumnSql(_tokens("input_tokens")),
    "output_tokens": ColumnSql(_tokens("output_tokens")),
    "cached_tokens": ColumnSql(_tokens("cached_tokens")),
    "seconds": ColumnSql(
        "CASE WHEN start_ns > 0 AND end_ns >= start_ns "
        "THEN (end_ns::HUGEINT - start_ns)::DOUBLE / 1e9 END"
    ),
    "tokens": ColumnSql(_tokens("input_tokens", "output_tokens")),
    "tool_errors": ColumnSql(
        "CASE WHEN len(call_names) > 0 AND list_count(call_errors) = len(call_names) "
        f"THEN {_FAILED_CALLS} / len(call_names) END"
    ),
    "messages": ColumnSql("len(roles)"),
    "asked": ColumnSql(ASKED, is_optional=True, is_wide=True, listed=_LISTED_ASKED),
    "id": ColumnSql("trajectory_id"),
    "started": ColumnSql("start_ns"),
    "hour": ColumnSql(f"start_ns - (start_ns % {_HOUR} + {_HOUR}) % {_HOUR}"),
}


_OLDER_ATTRIBUTES = {"user": semconv.USER_ID, "version": semconv.VERSION}


def attribute_pointer(key: str) -> str:
    """The JSON pointer of a key of an object."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def group_sql(name: str) -> tuple[str, list[str]]:
    """The name of a run's group, as `oteval.model.columns.group_text`, with parameters.

    Rows without a user or version use their attributes.

    Args:
        name: One of `oteval.model.columns.GROUPS`, or ``attributes.KEY``.
    """
    attribute = "json_extract_string(attributes, ?)"
    key = name.removeprefix("attributes.")
    if key != name:
        return f"coalesce({attribute}, '')", [attribute_pointer(key)]
    column, value = COLUMNS[name], COLUMN_SQL[name].sql
    keys = [attribute_pointer(key) for key in _OLDER_ATTRIBUTES.get(name, ())]
    if column.kind == "texts":
        value = f"({value})[1]" if column.group == "first" else f"array_to_string({value}, ', ')"
    return f"coalesce({', '.join([value, *[attribute] * len(keys)])}, '')", keys


def measure_sql(measure: str) -> str:
    """The value of a run for a measure of `oteval.model.columns.MEASURES`, as DOUBLE."""
    return f"({COLUMN_SQL[MEASURES[measure].name].sql})::DOUBLE"


def listed_sql(name: str) -> str:
    """A column's value for few rows; see `listed_value`."""
    column = COLUMN_SQL[name]
    value = column.listed or column.sql
    return f"CASE WHEN {column.is_known} THEN {value} END" if column.is_known else value


def listed_value(name: str, value: Any) -> Any:
    """The column's value in the run, from the value of `listed_sql`.

    Raises:
        LookupError: The row does not have it: the run must be read.
    """
    column, kind = COLUMN_SQL[name], COLUMNS[name].kind
    if value is None and (column.is_known or column.is_wide):
        raise LookupError(name)
    if kind == "texts":
        return tuple(value or ())
    if kind == "text":
        return value or (None if column.is_optional else "")
    return int(value) if isinstance(value, Decimal) else value


def transport_of(name: str) -> tuple[str, tuple[str, ...]]:
    """A column's value as a hashable scalar, NULL if the run must be read; see `decoder_of`.

    Args:
        name: The name of a column, or ``attributes.KEY``.

    Returns:
        The expression and its parameters.
    """
    key = name.removeprefix("attributes.")
    if key != name:
        text = "coalesce(json_extract(attributes, ?)::VARCHAR, 'null')"
        return text, (attribute_pointer(key),)
    column = COLUMN_SQL[name]
    known_condition, value = column.is_known, column.sql
    if COLUMNS[name].kind != "text":
        value = f"coalesce(to_json({value})::VARCHAR, 'null')"
    return (f"CASE WHEN {known_condition} THEN {value} END" if known_condition else value), ()


def decoder_of(name: str) -> Callable[[str], Any]:
    """The function that turns a scalar of `transport_of` into the column's value."""
    kind = COLUMNS[name].kind if name in COLUMNS else "attribute"
    if kind == "text":
        return (lambda text: text or None) if COLUMN_SQL[name].is_optional else str
    return (lambda text: tuple(restore(text))) if kind == "texts" else restore


# From this number on, doubles cannot represent every integer, and Python compares more exactly.
_INEXACT = 2.0**53


class SqlCondition(NamedTuple):
    """A condition on the columns of ``trajectories``.

    Attributes:
        text: The SQL, which is never NULL.
        values: Its parameters.
        is_exact: Whether it selects exactly the runs that meet the condition. Otherwise it may
            select further runs.
    """

    text: str
    values: tuple[Any, ...]
    is_exact: bool = True


def sql_condition(condition: Condition) -> SqlCondition | None:
    """A condition in SQL, or None if only Python can test it."""
    if condition.operator == "~" or encodable(condition.value) != condition.value:
        return None
    if condition.name not in COLUMN_SQL:
        return _attribute(condition)
    column = COLUMN_SQL[condition.name]
    if column.is_wide or COLUMNS[condition.name].has_spellings:
        return None
    compared = _FORMS[COLUMNS[condition.name].kind](condition, column.sql)
    if compared is None or not column.known:
        return compared
    text = f"({compared.text} OR NOT coalesce({column.known}, FALSE))"
    return SqlCondition(text, compared.values, is_exact=False)


_ATTRIBUTE = """
    CASE json_type(attributes, ?) WHEN 'VARCHAR' THEN json_extract_string(attributes, ?) = ?
        WHEN 'BOOLEAN' THEN json_extract_string(attributes, ?) = lower(?)
        WHEN 'NULL' THEN FALSE WHEN 'ARRAY' THEN TRUE WHEN 'OBJECT' THEN TRUE
        ELSE try_cast(json_extract_string(attributes, ?) AS DOUBLE) = ?::DOUBLE END
"""


def _attribute(condition: Condition) -> SqlCondition | None:
    """The equality of an attribute; Python tests lists, objects and large numbers."""
    if condition.operator != "=":
        return None
    number = _float_of(condition.value)
    if number is not None and not math.isfinite(number):
        return None
    pointer = attribute_pointer(condition.name.removeprefix("attributes."))
    values = (pointer, *(pointer, condition.value) * 2, pointer, number)
    return SqlCondition(f"coalesce({_ATTRIBUTE}, FALSE)", values, is_exact=False)


def _text(condition: Condition, column: str) -> SqlCondition | None:
    if condition.operator not in ("=", "!="):
        return None
    operator = "=" if condition.operator == "=" else "<>"
    return SqlCondition(f"coalesce({column} {operator} ?, FALSE)", (condition.value,))


def _texts(condition: Condition, column: str) -> SqlCondition | None:
    # Tools are stored with lone surrogates escaped.
    if condition.operator not in ("=", "!=") or "\\u" in condition.value:
        return None
    contained = f"coalesce(list_contains({column}, ?), FALSE)"
    text = contained if condition.operator == "=" else f"NOT {contained}"
    return SqlCondition(text, (condition.value,))


def _number(condition: Condition, column: str) -> SqlCondition | None:
    """The comparison of a numeric column, as DOUBLE."""
    number = _float_of(condition.value)
    if number is None or not math.isfinite(number) or abs(number) >= _INEXACT:
        return None
    operator = "<>" if condition.operator == "!=" else condition.operator
    return SqlCondition(f"coalesce(({column})::DOUBLE {operator} ?::DOUBLE, FALSE)", (number,))


def _float_of(text: str) -> float | None:
    """A text as a number in Python, which accepts more digits and forms than SQL."""
    try:
        return float(text)
    except ValueError:
        return None


_FORMS: Mapping[str, Callable[[Condition, str], SqlCondition | None]] = {
    "text": _text,
    "texts": _texts,
    "number": _number,
}
