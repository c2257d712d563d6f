"""The outbox of monitors' notifications, by rows of the table ``notifications``.

`MonitorStore.queue` appends to it, in the transaction of a check; here, deliveries are noted. A
notification that its destination refused is due at `NEVER_NS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields

import duckdb

from .monitor_rows import Notification
from .query import transaction

__all__ = ["NEVER_NS", "NotificationOutbox"]

NEVER_NS = 2**63 - 1
_COLUMNS = ", ".join(f"n.{one.name}" for one in fields(Notification))
_ROW = "notification_id = ? AND destination = ?"


class NotificationOutbox:
    """The notifications of a store that wait for delivery."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def waiting(self) -> list[Notification]:
        """Return the notifications that are neither delivered nor refused, the oldest first."""
        return self._read("sent_ns IS NULL AND next_ns < ?", NEVER_NS)

    def refused(self) -> list[Notification]:
        """Return the notifications that their destinations refused, the oldest first."""
        return self._read("sent_ns IS NULL AND next_ns = ?", NEVER_NS)

    def firing(self) -> list[Notification]:
        """Return the alerts that were delivered and whose episodes last."""
        return self._read(
            "sent_ns IS NOT NULL AND event = ? AND episode_id IN "
            "(SELECT episode_id FROM monitor_episodes WHERE ended_ns IS NULL)",
            "alert",
        )

    def split(self, notification: Notification, destinations: Sequence[str]) -> None:
        """Replace a notification by one for each of several destinations."""
        places = ", ".join("?" * len(fields(Notification)))
        with transaction(self._connection):
            self._connection.execute(
                f"DELETE FROM notifications WHERE {_ROW}",  # noqa: S608
                [notification.notification_id, notification.destination],
            )
            for name in destinations:
                row = list(astuple(notification))
                row[1] = name
                self._connection.execute(f"INSERT INTO notifications VALUES ({places})", row)  # noqa: S608

    def sent(self, notification: Notification, now_ns: int) -> None:
        """Note that a notification was delivered at a time (ns)."""
        self._connection.execute(
            f"UPDATE notifications SET sent_ns = ?, error = NULL, attempts = attempts + 1 "  # noqa: S608
            f"WHERE {_ROW}",
            [now_ns, notification.notification_id, notification.destination],
        )

    def failed(self, notification: Notification, error: str, next_ns: int | None) -> None:
        """Note a failed attempt.

        Args:
            notification: The notification.
            error: Why it failed.
            next_ns: When (ns) the next attempt is due; None if the destination refused it.
        """
        due = NEVER_NS if next_ns is None else next_ns
        self._connection.execute(
            f"UPDATE notifications SET next_ns = ?, error = ?, attempts = attempts + 1 "  # noqa: S608
            f"WHERE {_ROW}",
            [due, error, notification.notification_id, notification.destination],
        )

    def _read(self, condition: str, value: object) -> list[Notification]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM notifications n WHERE {condition} "  # noqa: S608
            "ORDER BY created_ns, event, notification_id, destination",
            [value],
        ).fetchall()
        return [Notification(*row) for row in rows]
