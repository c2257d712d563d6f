"""Conditions of ``--where`` as SQL, for columns with a value in the row (`column_sql`).

The SQL of a condition has the same result as `Condition.holds`, or selects more runs, which Python
then tests; see `SqlCondition.is_exact`. Regular expressions are left to Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..base.jsontext import encodable
from ..model import COLUMNS, Condition
from .column_sql import COLUMN_SQL, attribute_pointer

__all__ = ["SqlCondition", "sql_condition"]

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
