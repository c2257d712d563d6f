"""Outlines of spans: the tree and the times of a trace, without the content of its spans.

A trace may have 100,000 spans; a page shows a few hundred of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from ..model import Span
from .memory import fetch, with_memory
from .query import first_row, number, wanted
from .telemetry_rows import SPAN_COLUMNS, spans_of

__all__ = ["SpanOutlines"]


class SpanOutlines:
    """Reads the outlines of stored spans; archived spans are left out."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def count(self, trace_id: str) -> int:
        """The number of spans of a trace."""
        return number(self._connection, "SELECT count(*) FROM spans WHERE trace_id = ?", [trace_id])

    def of(self, trace_id: str) -> list[Span]:
        """The spans of a trace with their ids, names, times and status alone."""
        rows = with_memory(
            self._connection,
            lambda: self._connection.execute(
                "SELECT trace_id, span_id, coalesce(parent_id, ''), coalesce(name, ''), "
                "coalesce(kind, 0), coalesce(start_ns, 0), coalesce(end_ns, 0), "
                "coalesce(status_code, 0), seq FROM spans WHERE trace_id = ?",
                [trace_id],
            ).fetchall(),
        )
        return [
            Span(trace, span, parent, name, kind, start_ns, end_ns, status, seq=seq)
            for trace, span, parent, name, kind, start_ns, end_ns, status, seq in rows
        ]

    def one(self, trace_id: str, span_id: str) -> Span | None:
        """A span of a trace, complete, or None."""
        seq_row = first_row(
            self._connection,
            "SELECT seq FROM spans WHERE span_id = ? AND trace_id = ?",
            [span_id, trace_id],
        )
        return self.whole(trace_id, [seq_row[0]]).get(span_id) if seq_row else None

    def whole(self, trace_id: str, seqs: Sequence[int]) -> dict[str, Span]:
        """Some spans of a trace, complete, by their ids.

        Args:
            trace_id: The trace.
            seqs: The numbers of the spans.
        """
        if not seqs:
            return {}
        with wanted(self._connection, "trace_id", [trace_id]):
            table = fetch(
                self._connection,
                f"SELECT {SPAN_COLUMNS} FROM spans SEMI JOIN wanted USING (trace_id) "  # noqa: S608
                f"WHERE seq IN ({', '.join(str(int(seq)) for seq in seqs)})",
            )
        return {span.span_id: span for span in spans_of(table)}
