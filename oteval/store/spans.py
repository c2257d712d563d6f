"""Spans and log records in the store: written once each, read by trace, archived or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock

import duckdb
import pyarrow as pa

from ..model import LogRecord, Span
from .cold import Cold, without
from .query import number, reader, row
from .ranges import Range, rows_in
from .rows import SPAN_COLUMNS, log_of, log_table, rows_of, span_table, spans_of
from .wide import MOST, Allowance

__all__ = ["NEWEST", "SpanBatch", "Spans", "Written"]

MAX_CONFLICTS = 20
_MAX_REPEATED = 1000

# Only stored spans of the same time can be the same span: DuckDB skips all row groups of other
# times, so that loading stays linear.
_SAME_TIME = (
    "start_ns BETWEEN (SELECT min(start_ns) FROM incoming) AND (SELECT max(start_ns) FROM incoming)"
)
# What was archived has numbers too, which are not given again.
NEWEST = (
    "SELECT greatest((SELECT coalesce(max(seq), 0) FROM spans), "
    "(SELECT coalesce(max(seq), 0) FROM logs), "
    "(SELECT coalesce(max(last_seq), 0) FROM archived_files))"
)


@dataclass
class Written:
    """What became of spans or log records that were to be stored.

    Attributes:
        stored: How many are new.
        duplicate: How many the store had.
        conflicts: ``trace/span`` ids of duplicates whose content differs from what is stored; the
            first 20.
        runs: How many of the new ones are runs that were reconstructed elsewhere.
    """

    stored: int = 0
    duplicate: int = 0
    conflicts: list[str] = field(default_factory=list)
    runs: int = 0

    def add(self, other: Written) -> None:
        """Count another write in."""
        self.stored += other.stored
        self.duplicate += other.duplicate
        self.runs += other.runs
        self.conflicts = (self.conflicts + other.conflicts)[:MAX_CONFLICTS]


class SpanBatch:
    """Spans on their way into the store, kept as columns; those given twice are kept once.

    Attributes:
        repeated: Spans given again, to be compared with the first; the first 1,000.
        repeated_tables: Those among tables.
        written: How many were given again.
    """

    def __init__(self, next_seq: Callable[[int], int]) -> None:
        self._next_seq = next_seq
        self._seen: set[tuple[str, str]] = set()
        self._tables: list[pa.Table] = []
        self.repeated: list[Span] = []
        self.repeated_tables: list[pa.Table] = []
        self.written = Written()

    def __len__(self) -> int:
        """Return the number of spans to insert."""
        return sum(table.num_rows for table in self._tables)

    def add(self, spans: Iterable[Span]) -> None:
        """Take spans in; of several with the same trace and span id, the first counts."""
        fresh = []
        for span in spans:
            key = (span.trace_id, span.span_id)
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(span)
                continue
            self.written.duplicate += 1
            if len(self.repeated) < _MAX_REPEATED:
                self.repeated.append(span)
        if fresh:
            self._tables.append(span_table(fresh, self._next_seq(len(fresh))))

    def add_table(self, table: pa.Table) -> None:
        """Take in spans that are a table already, whatever their numbers."""
        ids = zip(table["trace_id"].to_pylist(), table["span_id"].to_pylist(), strict=True)
        is_new = []
        for key in ids:
            is_new.append(key not in self._seen)
            self._seen.add(key)
        count = sum(is_new)
        if count < table.num_rows:
            self.written.duplicate += table.num_rows - count
            self.repeated_tables.append(table.filter(pa.array([not new for new in is_new])))
            table = table.filter(pa.array(is_new))
        first = self._next_seq(count)
        seq = pa.array(range(first, first + count), pa.int64())
        self._tables.append(table.set_column(table.schema.get_field_index("seq"), "seq", seq))

    def table(self) -> pa.Table:
        """Return the spans as one table."""
        return pa.concat_tables(self._tables) if self._tables else span_table((), 0)


class Spans:
    """The spans and log records of a store.

    Attributes:
        most: Bytes of spans and log records that are reconstructed together, at the most.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, cold: Cold) -> None:
        self.most = MOST
        self._connection = connection
        self._cold = cold
        self._seq = number(connection, NEWEST)
        self._lock = Lock()

    def write(self, spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> Written:
        """Store spans and log records that the store does not have.

        Args:
            spans: Spans; of several with the same trace and span id, the first counts.
            logs: Log records; of several that are alike in everything, one counts.
        """
        written = Written()
        if spans:
            batch = self.batch()
            batch.add(spans)
            written.add(self.insert(batch))
        if logs:
            written.add(self._insert_logs(log_table(logs, self._next(len(logs)))))
        return written

    def _next(self, count: int) -> int:
        # Loading numbers spans in one thread and log records in another.
        with self._lock:
            first = self._seq + 1
            self._seq += count
        return first

    def batch(self) -> SpanBatch:
        """Return an empty batch to `insert` once it is filled."""
        return SpanBatch(self._next)

    def insert(self, batch: SpanBatch) -> Written:
        """Insert a batch of spans less those the store has."""
        connection = self._connection
        table = batch.table()
        connection.register("incoming", table)
        stored = number(
            connection,
            f"""
            INSERT INTO spans
            SELECT i.* FROM incoming i
            ANTI JOIN (SELECT trace_id, span_id FROM spans WHERE {_SAME_TIME}) s
            USING (trace_id, span_id)
            """,  # noqa: S608
        )
        connection.unregister("incoming")
        total = Written(stored, table.num_rows - stored)
        total.add(batch.written)
        if stored < table.num_rows:
            total.conflicts += self._conflicts(table)
        if batch.repeated:
            total.conflicts += self._conflicts(span_table(batch.repeated, 0))
        for repeated in batch.repeated_tables:
            total.conflicts += self._conflicts(repeated)
        del total.conflicts[MAX_CONFLICTS:]
        return total

    def _conflicts(self, table: pa.Table) -> list[str]:
        """Return the ids of those spans of a table that are not stored as they are there."""
        self._connection.register("incoming", table)
        rows = self._connection.execute(
            f"""
            SELECT DISTINCT trace_id || '/' || span_id FROM (
                SELECT * EXCLUDE (seq) FROM incoming
                EXCEPT
                SELECT * EXCLUDE (seq) FROM spans SEMI JOIN incoming USING (trace_id, span_id)
                WHERE {_SAME_TIME}
            )
            ORDER BY ALL LIMIT {MAX_CONFLICTS}
            """  # noqa: S608
        ).fetchall()
        self._connection.unregister("incoming")
        return [name for (name,) in rows]

    def insert_log_table(self, table: pa.Table) -> Written:
        """Insert log records that are a table already, whatever their numbers."""
        first = self._next(table.num_rows)
        seq = pa.array(range(first, first + table.num_rows), pa.int64())
        place = table.schema.get_field_index("seq")
        return self._insert_logs(table.set_column(place, "seq", seq))

    def _insert_logs(self, table: pa.Table) -> Written:
        connection = self._connection
        connection.register("incoming", table)
        stored = number(
            connection,
            """
            INSERT INTO logs
            SELECT i.* FROM incoming i
            ANTI JOIN (
                SELECT fingerprint FROM logs
                WHERE observed_ns BETWEEN (SELECT min(observed_ns) FROM incoming)
                                      AND (SELECT max(observed_ns) FROM incoming)
            ) s USING (fingerprint)
            QUALIFY row_number() OVER (PARTITION BY i.fingerprint ORDER BY i.seq) = 1
            """,
        )
        connection.unregister("incoming")
        return Written(stored, table.num_rows - stored)

    def count(self) -> tuple[int, int]:
        """Return how many spans and log records are stored, the archived among them."""
        spans = number(self._connection, "SELECT count(*) FROM spans") + self._cold.count("spans")
        logs = number(self._connection, "SELECT count(*) FROM logs") + self._cold.count("logs")
        return spans, logs

    def archived(self) -> int:
        """Return how many rows are archived."""
        return self._cold.count("spans") + self._cold.count("logs")

    def of_traces(
        self,
        trace_ids: Sequence[str],
        numbers: Sequence[Range] | None = None,
        archived: Sequence[str] | None = None,
        allowance: Allowance | None = None,
    ) -> tuple[list[Span], list[LogRecord]]:
        """Return all spans and log records of some traces.

        Args:
            trace_ids: The traces.
            numbers: Between which numbers they lie in the database, where that is known.
            archived: Those of the traces that may be archived; all by default.
            allowance: How many bytes they may have; None for any number.

        Raises:
            ArchiveMissing: Some were archived, and a file of the archive is not there.
            TooLarge: They have more.
        """
        wanted = pa.table({"trace_id": pa.array(trace_ids, pa.string())})
        self._connection.register("wanted", wanted)
        if numbers is None:
            numbers = self._numbers()
        among = "SEMI JOIN wanted USING (trace_id) WHERE seq BETWEEN {first} AND {last}"
        query = f"SELECT {SPAN_COLUMNS} FROM spans {among}"  # noqa: S608
        spans = rows_in(self._connection, query, numbers, allowance)
        query = f"SELECT l.* FROM logs l {among}"  # noqa: S608
        logs = rows_in(self._connection, query, numbers, allowance)
        self._connection.unregister("wanted")
        # The archive last: what moves there meanwhile is found twice, rather than not at all.
        cold = trace_ids if archived is None else archived
        cold_spans = self._cold.of_traces("spans", cold)
        cold_logs = self._cold.of_traces("logs", cold)
        if allowance is not None:
            allowance.take([*cold_spans.to_batches(), *cold_logs.to_batches()])
        found = spans_of(cold_spans.select(SPAN_COLUMNS.split(", ")))
        found += spans_of(without("spans", spans, cold_spans))
        records = [log_of(row) for row in rows_of(cold_logs)]
        records += [log_of(row) for row in rows_of(without("logs", logs, cold_logs))]
        return found, records

    def first_of_traces(self, trace_ids: Sequence[str]) -> list[Span]:
        """Return the span that begins first of each of some traces, without its content.

        Of traces that are archived there is none.
        """
        self._connection.register(
            "wanted", pa.table({"trace_id": pa.array(trace_ids, pa.string())})
        )
        rows = self._connection.execute(
            "SELECT trace_id, span_id, start_ns, end_ns, service FROM spans "
            "SEMI JOIN wanted USING (trace_id) "
            "QUALIFY row_number() OVER (PARTITION BY trace_id ORDER BY start_ns, seq) = 1"
        ).fetchall()
        self._connection.unregister("wanted")
        return [
            Span(name, span, start_ns=start, end_ns=end, resource={"service.name": service})
            for name, span, start, end, service in rows
        ]

    def _numbers(self) -> list[Range]:
        """Return between which numbers the traces that are `wanted` lie.

        From two narrow columns: DuckDB then skips all other row groups.
        """
        found = row(
            self._connection,
            "SELECT min(seq), max(seq) FROM (SELECT seq FROM spans SEMI JOIN wanted "
            "USING (trace_id) UNION ALL SELECT seq FROM logs SEMI JOIN wanted USING (trace_id))",
        )
        return [Range(*found)] if found and found[0] is not None else []

    def unreachable(self, trace_ids: Sequence[str]) -> set[str]:
        """Return those of some traces that were archived into files which are not there."""
        return self._cold.unreachable(trace_ids)

    def traces_of(self, name: str) -> list[str]:
        """Return the traces (5 at most) that the beginning of their id or a span's id means."""
        rows = self._connection.execute(
            "SELECT trace_id FROM spans "
            "WHERE starts_with(trace_id, $name) OR starts_with(span_id, $name) "
            "UNION SELECT trace_id FROM archived_traces WHERE starts_with(trace_id, $name) "
            "ORDER BY ALL LIMIT 5",
            {"name": name},
        ).fetchall()
        found = [trace_id for (trace_id,) in rows]
        return [name] if name in found else found

    def export(self) -> pa.RecordBatchReader:
        """Return all spans, the archived among them, to be read batch by batch."""
        return self._exported("spans")

    def export_logs(self) -> pa.RecordBatchReader:
        """Return all log records, the archived among them, to be read batch by batch."""
        return self._exported("logs")

    def pages(self) -> Iterator[list[Span]]:
        """Yield all spans, the archived among them, some thousands at a time."""
        for batch in self._exported("spans"):
            yield spans_of(pa.Table.from_batches([batch]).select(SPAN_COLUMNS.split(", ")))

    def log_pages(self) -> Iterator[list[LogRecord]]:
        """Yield all log records, the archived among them, some thousands at a time."""
        for batch in self._exported("logs"):
            yield [log_of(row) for row in rows_of(pa.Table.from_batches([batch]))]

    def _exported(self, kind: str) -> pa.RecordBatchReader:
        hot = reader(self._connection, f"SELECT * FROM {kind}")  # noqa: S608
        return pa.RecordBatchReader.from_batches(hot.schema, self._all(kind, hot))

    def _all(self, kind: str, hot: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        yield from hot
        for batch in self._cold.batches(kind):
            yield from pa.Table.from_batches([batch]).cast(hot.schema).to_batches()
