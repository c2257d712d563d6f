"""The outbox of monitors' notifications, by rows of the table ``notifications``.

`NotificationOutbox.queue` appends to it, in the transaction of a check. A notification that its
destination refused is due at `NEVER_NS`. A program claims a notification
before it sends it, so that only one of two concurrent programs sends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import duckdb
import pyarrow as pa

from .arrow_rows import table_of
from .query import column, insert, is_conflict, repeated, transaction

__all__ = ["NEVER_NS", "Notification", "NotificationOutbox"]

NEVER_NS = 2**63 - 1
_TEXT, _BIG = pa.string(), pa.int64()
_SCHEMA = pa.schema(
    [
        *[(name, _TEXT) for name in ("notification_id", "destination", "episode_id", "event")],
        ("payload", _TEXT),
        ("runs", pa.list_(_TEXT)),
        ("created_ns", _BIG),
        ("attempts", pa.int32()),
        *[(name, _BIG) for name in ("next_ns", "sent_ns")],
        ("error", _TEXT),
    ]
)


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification for one destination.

    Attributes:
        notification_id: Its id, the same for all destinations.
        destination: A name in ``notify`` of oteval.yaml.
        episode_id: The episode.
        event: ``alert`` or ``resolved``.
        payload: JSON text.
        runs: The ids of runs that the payload names.
        created_ns: When it was queued.
        attempts: How often it was tried.
        next_ns: When it is to be tried next.
        sent_ns: When it was delivered; None before.
        error: Why the last attempt failed.
    """

    notification_id: str
    destination: str
    episode_id: str
    event: str
    payload: str
    runs: list[str]
    created_ns: int
    attempts: int = 0
    next_ns: int = 0
    sent_ns: int | None = None
    error: str | None = None


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

    def queue(self, notifications: Sequence[Notification]) -> None:
        """Append notifications to the outbox."""
        if notifications:
            rows = [astuple(notification) for notification in notifications]
            insert(self._connection, "notifications", table_of(rows, _SCHEMA))

    def destinations(self, notification_id: str) -> list[str]:
        """The destinations of a notification, by their names in oteval.yaml."""
        return column(
            self._connection,
            r"SELECT DISTINCT regexp_replace(destination, '\[\d+\]$', '') FROM notifications "
            "WHERE notification_id = ? ORDER BY 1",
            [notification_id],
        )

    def payload(self, notification_id: str) -> str | None:
        """The payload of a notification as JSON text, or None if there is none."""
        rows = self._connection.execute(
            "SELECT any_value(payload) FROM notifications WHERE notification_id = ?",
            [notification_id],
        ).fetchall()
        return None if rows[0][0] is None else str(rows[0][0])

    def notifications(self) -> list[Notification]:
        """The notifications in the outbox, the oldest first."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM notifications n "  # noqa: S608
            "ORDER BY created_ns, notification_id, destination"
        ).fetchall()
        return [Notification(*row) for row in rows]

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
