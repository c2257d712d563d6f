"""Reference data: the examples and messages that runs are compared with.

Tables: ``datasets`` and ``examples`` (the examples of a version are stored once, for any number of
names and versions), and ``references`` (the newest of a name counts).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from ..base.errors import NotFound
from ..base.jsontext import dumps, dumps_exact, restore
from ..model import Dataset, Example, Message, Reference
from .arrow_rows import table_of
from .memory import fetch
from .query import column, first_row, insert, number, rows_of, transaction
from .trajectory_rows import message_fields, message_of

__all__ = ["Datasets", "StoredReferences"]

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
        """Store a dataset, unless the newest version of its name has the same content.

        Returns:
            Whether it is a new version of its name.
        """
        connection, version = self._connection, dataset.version
        newest = first_row(
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
                insert(connection, "examples", table_of(rows, _EXAMPLES))
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?)",
                [dataset.name, version, dataset.source, dataset.created_ns],
            )
        return True

    def get(self, name: str, version: str | None = None) -> Dataset:
        """A dataset.

        Args:
            name: Its name.
            version: Its version, or the beginning of one. By default the newest.

        Raises:
            NotFound: No dataset has the name, or it has no such version.
        """
        dataset_row = first_row(
            self._connection,
            "SELECT version, source, created_ns FROM datasets "
            "WHERE name = ? AND starts_with(version, ?) "
            "ORDER BY created_ns DESC, rowid DESC LIMIT 1",
            [name, version or ""],
        )
        if dataset_row is None:
            what = f"dataset {name!r}" + (f" of version {version!r}" if version else "")
            raise NotFound(f"no {what}; oteval dataset list shows them")
        return Dataset(
            name, self.examples(dataset_row[0]), dataset_row[1] or "", dataset_row[2] or 0
        )

    def examples(self, version: str) -> tuple[Example, ...]:
        """The examples of a version, in their order."""
        table = fetch(
            self._connection,
            "SELECT * FROM examples WHERE version = ? ORDER BY position",
            [version],
        )
        return tuple(
            Example(
                example_row["example_id"],
                restore(example_row["inputs"]),
                restore(example_row["reference_outputs"]),
                restore(example_row["metadata"]),
            )
            for example_row in rows_of(table)
        )

    def names(self) -> list[str]:
        """The names of all datasets."""
        return column(self._connection, "SELECT DISTINCT name FROM datasets ORDER BY name")

    def list(self) -> list[dict[str, Any]]:
        """The name, version, source, number of examples and time of each version."""
        rows = self._connection.execute(
            "SELECT d.name, d.version, d.source, d.created_ns, "
            "(SELECT count(*) FROM examples e WHERE e.version = d.version) "
            "FROM datasets d ORDER BY d.name, d.created_ns, d.rowid"
        ).fetchall()
        names = ("name", "version", "source", "created_ns", "examples")
        return [dict(zip(names, dataset_row, strict=True)) for dataset_row in rows]


class StoredReferences:
    """The references of a store, by name."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, name: str, messages: Sequence[Message], source: str, created_ns: int) -> None:
        """Store messages as the reference of a name.

        Args:
            name: The name. Older references of it no longer count.
            messages: The messages that a trajectory should have.
            source: The file or trajectory of the messages.
            created_ns: The time (ns).
        """
        text = dumps_exact([message_fields(message) for message in messages])
        self._connection.execute(
            'INSERT INTO "references" VALUES (?, ?, ?, ?)', [name, text, source, created_ns]
        )

    def get(self, name: str) -> Reference:
        """The reference of a name.

        Raises:
            NotFound: No reference has the name.
        """
        reference_row = first_row(
            self._connection,
            'SELECT messages, source FROM "references" WHERE name = ? '
            "ORDER BY created_ns DESC, rowid DESC LIMIT 1",
            [name],
        )
        if reference_row is None:
            raise NotFound(f"no reference {name!r}; oteval reference list shows them")
        return Reference(
            name,
            tuple(message_of(fields) for fields in restore(reference_row[0])),
            reference_row[1],
        )

    def stamp(self) -> tuple[int, int]:
        """A value that changes when a reference is added or removed."""
        stamp_row = first_row(
            self._connection, 'SELECT count(*), coalesce(max(created_ns), 0) FROM "references"', []
        )
        assert stamp_row is not None
        return int(stamp_row[0]), int(stamp_row[1])

    def sources(self) -> dict[str, str]:
        """The file or trajectory of each reference, by its name."""
        rows = self._connection.execute(
            'SELECT name, arg_max(source, created_ns) FROM "references" GROUP BY name ORDER BY name'
        ).fetchall()
        return {name: source or "" for name, source in rows}

    def list(self) -> list[dict[str, Any]]:
        """The name, source, number of messages and time of each reference."""
        rows = self._connection.execute(
            'SELECT name, source, messages, created_ns FROM "references" QUALIFY row_number() '
            "OVER (PARTITION BY name ORDER BY created_ns DESC, rowid DESC) = 1 ORDER BY name"
        ).fetchall()
        return [
            {"name": name, "source": source, "messages": len(restore(text)), "created_ns": time}
            for name, source, text, time in rows
        ]
