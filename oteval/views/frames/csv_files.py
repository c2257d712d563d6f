"""Tables as CSV files that spreadsheets open without running anything.

A spreadsheet reads a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, and traces
contain whatever users and websites write. Such a text gets an apostrophe in front; numbers stay as
they are.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from ...base.errors import InputError
from ...base.files import make_folder, open_private
from ...base.jsontext import dumps, encodable
from ...model import EVERYTHING, TABLES, Selection, TableName
from ...store import Store
from .rows import read_rows

__all__ = ["export_csv", "write_csv"]

# Also the wide forms, which spreadsheets read alike, and white space, which they skip.
_FORMULA = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|[\t\r\n]")


def export_csv(store: Store, folder: Path, selection: Selection = EVERYTHING) -> dict[str, int]:
    """Write each table to a CSV file in a folder.

    Args:
        store: The store.
        folder: The folder, which is made if it is missing.
        selection: Only rows of these runs.

    Returns:
        The number of rows by file name.

    Raises:
        InputError: The folder cannot be written.
    """
    try:
        make_folder(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return {
        f"{table}.csv": write_csv(
            folder / f"{table}.csv", table, read_rows(store, table, selection)
        )
        for table in TABLES
    }


def write_csv(path: Path, table: TableName, rows: Iterable[Sequence[Any]]) -> int:
    """Write the rows of a table to a file, one at a time.

    Unknown values are empty, times are in ISO 8601, flags are ``true`` and ``false``, and lists are
    JSON. The file (RFC 4180, UTF-8) appears once it is complete.

    Args:
        path: The file.
        table: The table.
        rows: The cells of each row.

    Returns:
        The number of rows.

    Raises:
        InputError: The file cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open_private(partial, "w", encoding="utf-8", newline="") as file:
            count = _write(file, [column.name for column in TABLES[table]], rows)
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return count


def _write(file: IO[str], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(names)
    count = 0
    for row in rows:
        writer.writerow(_texts(row))
        count += 1
    return count


def _texts(row: Sequence[Any]) -> Iterator[Any]:
    for value in row:
        if isinstance(value, str):
            # Many spreadsheets end a file at a NUL.
            text = encodable(value).replace("\0", "\ufffd")
            yield f"'{text}" if _FORMULA.match(text) else text
        elif isinstance(value, bool):
            yield "true" if value else "false"
        elif isinstance(value, datetime):
            yield value.isoformat()
        else:
            yield dumps(value) if isinstance(value, list) else value
