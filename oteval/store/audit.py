"""The audit log: who deleted what, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from ..jsontext import dumps, restore

__all__ = ["AuditEntry", "AuditLog"]


@dataclass(frozen=True)
class AuditEntry:
    """An entry of the audit log.

    Attributes:
        time_ns: When it was done.
        actor: Who did it: a user of this machine, or ``retention``.
        action: ``delete`` or ``retention``.
        detail: The selection and the numbers of deleted rows, as JSON values, without content.
    """

    time_ns: int
    actor: str
    action: str
    detail: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "time_ns": self.time_ns,
            "actor": self.actor,
            "action": self.action,
            "detail": dict(self.detail),
        }


class AuditLog:
    """The audit log of a store; entries are only added."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, entry: AuditEntry) -> None:
        """Add an entry."""
        self._connection.execute(
            "INSERT INTO audit_log VALUES (?, ?, ?, ?)",
            [entry.time_ns, entry.actor, entry.action, dumps(entry.detail)],
        )

    def entries(self) -> list[AuditEntry]:
        """Return all entries, the oldest first."""
        rows = self._connection.execute(
            "SELECT time_ns, actor, action, detail FROM audit_log ORDER BY time_ns, rowid"
        ).fetchall()
        return [
            AuditEntry(time, actor, action, restore(text)) for time, actor, action, text in rows
        ]
