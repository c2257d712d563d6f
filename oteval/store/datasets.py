"""Datasets in the store: examples once per version, any number of names and versions."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from ..errors import NotFound
from ..jsontext import dumps, dumps_exact, restore
from ..model import Dataset, Example
from .query import number, row, transaction
from .rows import rows_of, table_of

__all__ = ["Datasets"]

_TEXT = pa.string()
_EXAMPLES = pa.schema(
    [
        ("version", _TEXT),
        ("position", pa.int32()),
        *[(name, _TEXT) for name in ("example_id", "inputs", "reference_outputs", "metadata")],
    ]
)


class Datasets:
    """The datasets of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, dataset: Dataset) -> bool:
        """Keep a dataset, unless its content is the newest version of its name already.

        Returns:
            Whether it is a new version of its name.
        """
        connection, version = self._connection, dataset.version
        newest = row(
            connection,
            "SELECT version FROM datasets WHERE name = ? "
            "ORDER BY created_ns DESC, rowid DESC LIMIT 1",
            [dataset.name],
        )
        if newest is not None and newest[0] == version:
            return False
        with transaction(connection):
            if not number(connection, "SELECT count(*) FROM examples WHERE version = ?", [version]):
                rows = [
                    (
                        version,
                        position,
                        example.id,
                        dumps(example.inputs),
                        dumps_exact(example.reference_outputs),
                        dumps(dict(example.metadata)),
                    )
                    for position, example in enumerate(dataset.examples)
                ]
                connection.register("incoming", table_of(rows, _EXAMPLES))
                connection.execute("INSERT INTO examples SELECT * FROM incoming")
                connection.unregister("incoming")
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?)",
                [dataset.name, version, dataset.source, dataset.created_ns],
            )
        return True

    def get(self, name: str, version: str | None = None) -> Dataset:
        """Return a dataset.

        Args:
            name: Its name.
            version: Its version, or how that begins; by default the newest.

        Raises:
            NotFound: No dataset has the name, or it has no such version.
        """
        found = row(
            self._connection,
            "SELECT version, source, created_ns FROM datasets "
            "WHERE name = ? AND starts_with(version, ?) "
            "ORDER BY created_ns DESC, rowid DESC LIMIT 1",
            [name, version or ""],
        )
        if found is None:
            what = f"dataset {name!r}" + (f" of version {version!r}" if version else "")
            raise NotFound(f"no {what}; oteval dataset list shows them")
        return Dataset(name, self.examples(found[0]), found[1] or "", found[2] or 0)

    def examples(self, version: str) -> tuple[Example, ...]:
        """Return the examples of a version, in their order."""
        table = self._connection.sql(
            "SELECT * FROM examples WHERE version = ? ORDER BY position", params=[version]
        ).to_arrow_table()
        return tuple(
            Example(
                found["example_id"],
                restore(found["inputs"]),
                restore(found["reference_outputs"]),
                restore(found["metadata"]),
            )
            for found in rows_of(table)
        )

    def list(self) -> list[dict[str, Any]]:
        """Return name, version, source, number of examples and time of each version."""
        rows = self._connection.execute(
            "SELECT d.name, d.version, d.source, d.created_ns, "
            "(SELECT count(*) FROM examples e WHERE e.version = d.version) "
            "FROM datasets d ORDER BY d.name, d.created_ns, d.rowid"
        ).fetchall()
        names = ("name", "version", "source", "created_ns", "examples")
        return [dict(zip(names, found, strict=True)) for found in rows]
