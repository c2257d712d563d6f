"""Conditions of ``--where`` as SQL, for the fields that have a column.

The SQL of a condition has the same result as `Condition.holds`, or selects more runs, which Python
then tests; see `SqlCondition.is_exact`. Regular expressions and attributes are left to Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..jsontext import encodable
from ..selection import Condition

__all__ = ["AGENTS", "FAILURES", "PAIRED", "SqlCondition", "sql_condition"]

_TEXTS = {
    "service": "service",
    "conversation": "conversation_id",
    "parent": "parent_id",
}
# NULL in older rows, whose attributes tell.
_NEWER_TEXTS = {"user": "user_id", "version": "agent_version"}
# A run that was handed over is each of its agents'. Python compares str(None).
AGENTS = "list_transform(coalesce(agents, [agent]), lambda a: coalesce(a, 'None'))"
_LISTS = {
    "agent": AGENTS,
    "model": "models",
    "dialect": "dialects",
    "gap": "gap_codes",
    "finish_reason": "finish_reasons",
    "tool": "call_names",
}
_NUMBERS = {
    "turn": "turn",
    "calls": "len(call_names)",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "seconds": "(end_ns::HUGEINT - start_ns) / 1e9",
}
FAILURES = "len(list_filter(call_errors, lambda e: e))"
# Whether each tool message is the result of a call. Others may report failures as well, and only
# the messages tell.
PAIRED = "len(list_filter(roles, lambda r: r = 'tool')) = list_count(call_errors)"
# From here on, a double does not hold every integer, and Python compares more exactly than SQL.
_INEXACT = 2.0**53


class SqlCondition(NamedTuple):
    """A condition on the columns of ``trajectories``.

    Attributes:
        text: The SQL, which is never NULL.
        values: Its parameters.
        is_exact: Whether it selects exactly the runs for which the condition holds. Otherwise it
            selects these and others.
    """

    text: str
    values: tuple[Any, ...]
    is_exact: bool = True


def sql_condition(condition: Condition) -> SqlCondition | None:
    """Return a condition in SQL, or None if only Python can test it."""
    if condition.operator == "~" or encodable(condition.value) != condition.value:
        return None
    for fields, form in _FORMS:
        if condition.name in fields:
            return form(condition)
    return None


def _text(condition: Condition) -> SqlCondition | None:
    if condition.operator not in ("=", "!="):
        return None
    operator = "=" if condition.operator == "=" else "<>"
    column = _TEXTS[condition.name]
    # Python compares str(None).
    return SqlCondition(f"coalesce({column}, 'None') {operator} ?", (condition.value,))


def _newer_text(condition: Condition) -> SqlCondition | None:
    if condition.operator not in ("=", "!="):
        return None
    operator = "=" if condition.operator == "=" else "<>"
    column = _NEWER_TEXTS[condition.name]
    text = f"coalesce({column} {operator} ?, TRUE)"
    return SqlCondition(text, (condition.value,), is_exact=False)


def _list(condition: Condition) -> SqlCondition | None:
    # Tools are stored with lone surrogates escaped.
    if condition.operator not in ("=", "!=") or "\\u" in condition.value:
        return None
    found = f"coalesce(list_contains({_LISTS[condition.name]}, ?), FALSE)"
    return SqlCondition(found if condition.operator == "=" else f"NOT {found}", (condition.value,))


def _number(condition: Condition) -> SqlCondition | None:
    return _compared(condition, _NUMBERS[condition.name])


def _errors(condition: Condition) -> SqlCondition | None:
    compared = _compared(condition, FAILURES)
    if compared is None:
        return None
    return SqlCondition(f"({compared.text} OR NOT {PAIRED})", compared.values, is_exact=False)


def _compared(condition: Condition, column: str) -> SqlCondition | None:
    """Return the comparison of a numeric column, as DOUBLE."""
    try:
        wanted = float(condition.value)
    except ValueError:
        return None
    if not math.isfinite(wanted) or abs(wanted) >= _INEXACT:
        return None
    operator = "<>" if condition.operator == "!=" else condition.operator
    missing = "TRUE" if operator == "<>" else "FALSE"
    return SqlCondition(f"coalesce(({column})::DOUBLE {operator} ?::DOUBLE, {missing})", (wanted,))


_FORMS: tuple[tuple[Any, Callable[[Condition], SqlCondition | None]], ...] = (
    (_TEXTS, _text),
    (_NEWER_TEXTS, _newer_text),
    (_LISTS, _list),
    (_NUMBERS, _number),
    (("errors",), _errors),
)
