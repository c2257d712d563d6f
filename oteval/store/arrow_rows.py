"""Rows of values as Arrow tables.

Processes that only decode telemetry make rows as well, so this imports no database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ..base.jsontext import encodable

__all__ = ["encodable_array", "table_of"]

# Unlike Arrow's default pool, this pool returns freed memory to the system.
_POOL = pa.system_memory_pool()


def table_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return rows of values as an Arrow table.

    Lone surrogates, which UTF-8 cannot encode, are replaced in text.

    Args:
        rows: The rows, each with a value for every column.
        schema: The columns.
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        arrays.append(encodable_array(column, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def encodable_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array, with lone surrogates replaced in text."""
    try:
        return pa.array(values, kind, memory_pool=_POOL)
    except UnicodeEncodeError:
        return pa.array([_encodable(value) for value in values], kind)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    return [_encodable(item) for item in value] if isinstance(value, list) else value
