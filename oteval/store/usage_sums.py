"""Sums of the tokens of runs in SQL, for the cost of many runs at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..model import Usage

__all__ = [
    *("HAS_TOKENS", "ONE_MODEL", "TOKEN_COLUMNS", "TOKEN_SUMS"),
    *("all_input", "usage_of", "usages_of"),
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
