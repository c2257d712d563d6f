"""What came by way of the spool: stored in one transaction with how far the spool was read."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from .query import row, transaction
from .spans import SpanBatch, Spans, Written

__all__ = ["Spooled"]


class Spooled:
    """The spool's side of a store; only one connection writes by it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, spans: Spans) -> None:
        self._connection = connection
        self._spans = spans

    def position(self) -> tuple[int, int]:
        """Return up to which segment and offset the spool is stored."""
        found = row(self._connection, 'SELECT segment, "offset" FROM spool_position')
        return (int(found[0]), int(found[1])) if found else (0, 0)

    def commit(
        self, spans: SpanBatch, logs: pa.Table | None, position: tuple[int, int]
    ) -> tuple[Written, Written]:
        """Store spans and log records that the store does not have, and the position after them.

        Args:
            spans: The spans.
            logs: The log records as a table of the schema of ``logs``, whatever their numbers.
            position: The segment and offset after what they were read from.

        Returns:
            What became of the spans, and of the log records.
        """
        connection = self._connection
        with transaction(connection):
            written = self._spans.insert(spans) if len(spans) else spans.written
            of_logs = Written()
            if logs is not None and logs.num_rows:
                of_logs = self._spans.insert_log_table(logs)
            connection.execute(
                'UPDATE spool_position SET segment = ?, "offset" = ?', list(position)
            )
        return written, of_logs
