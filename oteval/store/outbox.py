"""The outbox of monitors' notifications, by rows of the table ``notifications``.

`Monitors.queue` appends to it, in the transaction of a check; here, deliveries are noted. A
notification that its destination refused is due at `NEVER_NS`. A program claims a notification
before it sends it, so that only one of two concurrent programs sends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields

import duckdb

from .monitor_rows import Notification
from .query import is_conflict, repeated, transaction

__all__ = ["NEVER_NS", "NotificationOutbox"]

NEVER_NS = 2**63 - 1
_COLUMNS = ", ".join(f"n.{one.name}" for one in fields(Notification))
_ROW = "notification_id = ? AND destination = ?"
# An update that sets a list makes DuckDB replace the whole row. It then conflicts with another
# transaction that replaces the row, such as a deletion. Otherwise the deletion would undo the
# update.
_UPDATE = "UPDATE notifications SET runs = runs"


class NotificationOutbox:
    """The notifications of a store that wait for delivery."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def waiting(self) -> list[Notification]:
        """The notifications that are neither delivered nor refused, the oldest first."""
        return self._read("sent_ns IS NULL AND next_ns < ?", NEVER_NS)

    def refused(self) -> list[Notification]:
        """The notifications that their destinations refused, the oldest first."""
        return self._read("sent_ns IS NULL AND next_ns = ?", NEVER_NS)

    def firing(self) -> list[Notification]:
        """The alerts that were delivered and whose episodes last."""
        return self._read(
            "sent_ns IS NOT NULL AND event = ? AND episode_id IN "
            "(SELECT episode_id FROM monitor_episodes WHERE ended_ns IS NULL)",
            "alert",
        )

    def split(self, notification: Notification, destinations: Sequence[str]) -> None:
        """Replace a notification by one for each of several destinations."""
        try:
            with transaction(self._connection):
                self._split(notification, destinations)
        except duckdb.Error as error:
            # Another process has split it.
            if not is_conflict(error):
                raise

    def _split(self, notification: Notification, destinations: Sequence[str]) -> None:
        ((count,),) = self._connection.execute(
            f"DELETE FROM notifications WHERE {_ROW}",  # noqa: S608
            [notification.notification_id, notification.destination],
        ).fetchall()
        places = ", ".join("?" * len(fields(Notification)))
        for name in destinations if count else ():
            row = list(astuple(notification))
            row[1] = name
            self._connection.execute(f"INSERT INTO notifications VALUES ({places})", row)  # noqa: S608

    def claim(self, notification: Notification, until_ns: int) -> bool:
        """Reserve a notification for an attempt; return whether nobody else has it.

        Args:
            notification: The notification as it was read.
            until_ns: When (ns) others may try, if this process ends without a note.
        """
        try:
            ((count,),) = self._connection.execute(
                f"{_UPDATE}, next_ns = ? WHERE {_ROW} AND sent_ns IS NULL AND next_ns = ?",
                [
                    until_ns,
                    notification.notification_id,
                    notification.destination,
                    notification.next_ns,
                ],
            ).fetchall()
        except duckdb.Error as error:
            if is_conflict(error):
                return False
            raise
        return bool(count)

    def send_again(self, now_ns: int) -> int:
        """Make the refused notifications due at a time (ns), and return their number."""
        rows = repeated(
            lambda: self._connection.execute(
                f"{_UPDATE}, next_ns = ? WHERE sent_ns IS NULL AND next_ns = ?",
                [now_ns, NEVER_NS],
            ).fetchall()
        )
        return int(rows[0][0])

    def sent(self, notification: Notification, now_ns: int) -> None:
        """Note that a notification was delivered at a time (ns)."""
        self._update(
            f"{_UPDATE}, sent_ns = ?, error = NULL, attempts = attempts + 1 WHERE {_ROW}",
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
        self._update(
            f"{_UPDATE}, next_ns = ?, error = ?, attempts = attempts + 1 WHERE {_ROW}",
            [due, error, notification.notification_id, notification.destination],
        )

    def _update(self, query: str, params: list[object]) -> None:
        # A deletion may be changing the payload.
        repeated(lambda: self._connection.execute(query, params))

    def _read(self, condition: str, value: object) -> list[Notification]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM notifications n WHERE {condition} "  # noqa: S608
            "ORDER BY created_ns, event, notification_id, destination",
            [value],
        ).fetchall()
        return [Notification(*row) for row in rows]
