"""References kept in the store by name; the newest of a name counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from ..errors import NotFound
from ..jsontext import dumps_exact, restore
from ..model import Message, Reference
from .messages import message_fields, message_of
from .query import row

__all__ = ["References"]


class References:
    """The references of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, name: str, messages: Sequence[Message], source: str, created_ns: int) -> None:
        """Keep messages as the reference of a name.

        Args:
            name: The name; an older reference of it no longer counts.
            messages: What a trajectory should be.
            source: Where they came from.
            created_ns: When.
        """
        text = dumps_exact([message_fields(message) for message in messages])
        self._connection.execute(
            'INSERT INTO "references" VALUES (?, ?, ?, ?)', [name, text, source, created_ns]
        )

    def get(self, name: str) -> Reference:
        """Return the reference of a name.

        Raises:
            NotFound: No reference has the name.
        """
        found = row(
            self._connection,
            'SELECT messages, source FROM "references" WHERE name = ? '
            "ORDER BY created_ns DESC, rowid DESC LIMIT 1",
            [name],
        )
        if found is None:
            raise NotFound(f"no reference {name!r}; oteval reference list shows them")
        return Reference(name, tuple(message_of(fields) for fields in restore(found[0])), found[1])

    def list(self) -> list[dict[str, Any]]:
        """Return name, source, number of messages and time of each reference."""
        rows = self._connection.execute(
            'SELECT name, source, messages, created_ns FROM "references" QUALIFY row_number() '
            "OVER (PARTITION BY name ORDER BY created_ns DESC, rowid DESC) = 1 ORDER BY name"
        ).fetchall()
        return [
            {"name": name, "source": source, "messages": len(restore(text)), "created_ns": time}
            for name, source, text, time in rows
        ]
