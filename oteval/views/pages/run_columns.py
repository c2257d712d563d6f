"""The columns of the list of runs, which the address of the page chooses: ``columns=calls,cost``.

When a run began, its question and its scores are always shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from ..run_cells import CHOICES, check_choices

__all__ = ["DEFAULT_COLUMNS", "chosen_columns", "columns_text", "kept_columns"]

DEFAULT_COLUMNS = ("calls", "seconds", "tokens", "cost", "gap")
# Their names in addresses of older versions.
_OLDER_NAMES = {
    "time": "seconds",
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cached_tokens",
    "gaps": "gap",
}
_ORDERED = tuple(dict.fromkeys((*DEFAULT_COLUMNS, *CHOICES)))
# The form sends it together with the ticked columns, so that a person can also choose none.
_NONE = "none"


def chosen_columns(parameter_values: Sequence[str]) -> tuple[str, ...]:
    """The columns that an address chooses, in the order of the list.

    Args:
        parameter_values: Names of columns, separated by commas. No value chooses the usual
            columns, and ``none`` alone chooses no column.

    Raises:
        ConfigError: A name is unknown.
    """
    names = {
        _OLDER_NAMES.get(name, name)
        for text in parameter_values
        for name in text.split(",")
        if name
    }
    check_choices(names - {_NONE}, "columns")
    if not names:
        return DEFAULT_COLUMNS
    return tuple(name for name in _ORDERED if name in names)


def kept_columns(request: Request) -> str:
    """The parameter of an address that chooses columns, for the way back to the list.

    Raises:
        ConfigError: A name is unknown.
    """
    return columns_text(chosen_columns(request.query_params.getlist("columns")))


def columns_text(columns: Sequence[str]) -> str:
    """The value of the parameter that chooses columns; "" for the usual columns."""
    if tuple(columns) == DEFAULT_COLUMNS:
        return ""
    return ",".join(columns) or _NONE
