"""Spans and log records: each is stored once, and read by trace from the database and the archive.

Tables: ``spans``, ``logs``, and ``spool_position``. The server's spool is stored up to this
position. Every span and log record has a number, `seq`, in the order in which they were stored;
numbers of archived rows are not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock

import duckdb
import pyarrow as pa

from ..model import MAX_CONFLICTS, LogRecord, Span, WriteResult, is_completed_by
from .archive_files import ArchiveReader
from .connection import ROW_GROUP_ROWS
from .memory import MAX_READ_BYTES, ReadLimit, is_wide, with_memory
from .progress import newest_seq
from .query import (
    column,
    first_row,
    number,
    reader,
    registered,
    rows_of,
    transaction,
    wanted,
)
from .ranges import Range, values_in
from .telemetry_rows import (
    LOG_SCHEMA,
    SPAN_COLUMNS,
    SPAN_SCHEMA,
    log_of,
    log_table,
    span_table,
    spans_of,
    spans_of_rows,
)

__all__ = ["SpanBatch", "Spans", "WriteResult"]

_MAX_REPEATED = 1000
_LOG_COLUMNS = ", ".join(LOG_SCHEMA.names)


def _same_time(incoming: pa.Table) -> str:
    """The condition that a stored span begins in the times when spans of a table begin.

    A duplicate begins at the same time as its original. With this condition DuckDB skips the row
    groups of other times, so that loading stays linear.
    """
    times = incoming["start_ns"].to_pylist()
    return f"start_ns BETWEEN {min(times)} AND {max(times)}" if times else "false"


class SpanBatch:
    """Spans to insert, in columns. Of several with the same ids only the first is inserted.

    The others are compared with it afterwards. If a span was exported again when it was complete,
    it replaces the first.

    Attributes:
        repeated: Repeated spans: all that may be more complete, and up to 1,000 others.
        repeated_tables: Repeated spans that were added as tables.
        written: Counts the repeated spans as duplicates.
    """

    def __init__(self, next_seq: Callable[[int], int]) -> None:
        self._next_seq = next_seq
        # The end and the number of attributes of the most complete span with these ids.
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}
        self._tables: list[pa.Table] = []
        # The first table, while its ids are not in `_seen`: it is often the only table.
        self._first: pa.Table | None = None
        self.repeated: list[Span] = []
        self.repeated_tables: list[pa.Table] = []
        self.written = WriteResult()

    def __len__(self) -> int:
        """The number of spans to insert."""
        return sum(table.num_rows for table in self._tables)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows to insert."""
        return sum(table.nbytes for table in self._tables)

    @property
    def is_wide(self) -> bool:
        """Whether its spans are so long that DuckDB needs more memory to store them."""
        return is_wide(self.nbytes, len(self))

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans."""
        self._see_first()
        new = []
        for span in spans:
            key, extent = (span.trace_id, span.span_id), (span.end_ns, len(span.attributes))
            stored_extent = self._seen.get(key)
            if stored_extent is None:
                self._seen[key] = extent
                new.append(span)
                continue
            self.written.duplicate += 1
            if extent > stored_extent:
                self._seen[key] = extent
            if extent > stored_extent or len(self.repeated) < _MAX_REPEATED:
                self.repeated.append(span)
        if new:
            self._tables.append(span_table(new, self._next_seq(len(new))))

    def add_table(self, table: pa.Table) -> None:
        """Add spans that are rows of ``spans`` already; their numbers are replaced."""
        if not self._tables and not self._seen and _has_distinct_ids(table):
            self._first = table
            self._tables.append(_renumbered(table, self._next_seq(table.num_rows)))
            return
        self._see_first()
        is_new = []
        for key in _ids(table):
            is_new.append(key not in self._seen)
            self._seen.setdefault(key, (0, 0))
        count = sum(is_new)
        if count < table.num_rows:
            self.written.duplicate += table.num_rows - count
            self.repeated_tables.append(table.filter(pa.array([not new for new in is_new])))
            table = table.filter(pa.array(is_new))
        self._tables.append(_renumbered(table, self._next_seq(count)))

    def _see_first(self) -> None:
        if self._first is not None:
            self._seen.update(dict.fromkeys(_ids(self._first), (0, 0)))
            self._first = None

    def table(self) -> pa.Table:
        """The spans as one table."""
        return pa.concat_tables(self._tables) if self._tables else span_table((), 0)

    def split(self, max_bytes: int) -> list[SpanBatch]:
        """Return batches of about as many bytes, at most, with the spans of this batch.

        The first of the returned batches has the repeated spans.
        """
        table, count = self.table(), -(-self.nbytes // max_bytes)
        rows = -(-len(self) // max(1, count)) or 1
        parts = []
        for start in range(rows, len(self), rows):
            parts.append(SpanBatch(self._next_seq))
            parts[-1]._tables = [table.slice(start, rows)]
        self._tables = [table.slice(0, rows)]
        return [self, *parts]


class Spans:
    """The spans and log records of a store.

    Args:
        connection: The store's connection.
        archive: Reads the archived spans and log records.

    Attributes:
        max_bytes: The most bytes of spans and log records that are reconstructed together.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, archive: ArchiveReader) -> None:
        self.max_bytes = MAX_READ_BYTES
        self._connection = connection
        self._archive = archive
        self._seq = newest_seq(connection)
        self._lock = Lock()

    def write(self, spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> WriteResult:
        """Store the spans and log records that are new.

        Args:
            spans: Spans. Of several with the same trace and span id, the most complete is stored.
            logs: Log records. If several are equal, one of them is stored.
        """
        written = WriteResult()
        if spans:
            batch = self.batch()
            batch.add(spans)
            written.add(self.insert(batch))
        if logs:
            table = log_table(logs, self._next(len(logs)))
            written.add(with_memory(self._connection, lambda: self._insert_logs(table)))
        return written

    def renumber(self) -> None:
        """Continue after the newest row that any process has stored."""
        newest = newest_seq(self._connection)
        with self._lock:
            self._seq = max(self._seq, newest)

    def _next(self, count: int) -> int:
        # Spans and log records that are loaded are numbered in different threads.
        with self._lock:
            first = self._seq + 1
            self._seq += count
        return first

    def batch(self) -> SpanBatch:
        """An empty batch, to be filled and then inserted."""
        return SpanBatch(self._next)

    def insert(self, batch: SpanBatch) -> WriteResult:
        """Insert the spans of a batch that are new, with as much memory as it needs."""
        return with_memory(self._connection, lambda: self._insert(batch))

    def _insert(self, batch: SpanBatch) -> WriteResult:
        table = batch.table()
        # DuckDB inserts the batches of a table in parallel.
        batches = pa.Table.from_batches(table.to_batches(ROW_GROUP_ROWS), table.schema)
        with registered(self._connection, "incoming", batches):
            stored = number(
                self._connection,
                f"""
                INSERT INTO spans BY NAME
                SELECT i.* FROM incoming i
                ANTI JOIN (SELECT trace_id, span_id FROM spans WHERE {_same_time(table)}) s
                USING (trace_id, span_id)
                """,  # noqa: S608
            )
        total = WriteResult(stored, table.num_rows - stored)
        total.add(batch.written)
        if stored < table.num_rows:
            self._settle(table, total)
        for repeated in (span_table(batch.repeated, 0), *batch.repeated_tables):
            if repeated.num_rows:
                self._settle(repeated, total)
        del total.conflicts[MAX_CONFLICTS:]
        return total

    def _settle(self, table: pa.Table, written: WriteResult) -> None:
        """Compare spans with stored spans of the same ids, and keep the more complete of each pair.

        Args:
            table: The spans.
            written: The counts to update with spans that replaced others, and with conflicts.
        """
        with registered(self._connection, "incoming", table):
            ids = self._connection.sql(
                f"""
                SELECT DISTINCT trace_id, span_id FROM (
                    SELECT * EXCLUDE (seq) FROM incoming SEMI JOIN (
                        SELECT trace_id, span_id FROM spans WHERE {_same_time(table)}
                    ) USING (trace_id, span_id)
                    EXCEPT
                    SELECT * EXCLUDE (seq) FROM spans SEMI JOIN incoming USING (trace_id, span_id)
                    WHERE {_same_time(table)}
                )
                """  # noqa: S608
            ).to_arrow_table()
            if not ids.num_rows:
                return
            with registered(self._connection, "differing", ids):
                again, stored = (
                    self._connection.sql(
                        f"SELECT * FROM {name} SEMI JOIN differing USING (trace_id, span_id) "  # noqa: S608
                        f"WHERE {_same_time(table)}"
                    ).to_arrow_table()
                    for name in ("incoming", "spans")
                )
        places, conflicts = _more_complete(again, stored)
        written.conflicts += conflicts
        if places:
            self._replace(again.take(pa.array(places)).cast(SPAN_SCHEMA))
            written.add(WriteResult(len(places), -len(places)))

    def _replace(self, table: pa.Table) -> None:
        """Replace the stored spans that have the same ids, with new numbers."""
        numbered = _renumbered(table, self._next(table.num_rows))
        with registered(self._connection, "incoming", numbered):
            self._connection.execute(
                "DELETE FROM spans USING incoming i "  # noqa: S608
                "WHERE spans.trace_id = i.trace_id AND spans.span_id = i.span_id "
                f"AND spans.{_same_time(table)}"
            )
            self._connection.execute("INSERT INTO spans BY NAME SELECT * FROM incoming")

    def insert_log_table(self, table: pa.Table) -> WriteResult:
        """Insert log records that are rows of ``logs`` already; their numbers are replaced."""
        numbered = _renumbered(table, self._next(table.num_rows))
        return with_memory(self._connection, lambda: self._insert_logs(numbered))

    def _insert_logs(self, table: pa.Table) -> WriteResult:
        with registered(self._connection, "incoming", table):
            stored = number(
                self._connection,
                """
                INSERT INTO logs BY NAME
                SELECT i.* FROM incoming i
                ANTI JOIN (
                    SELECT fingerprint FROM logs
                    WHERE observed_ns BETWEEN (SELECT min(observed_ns) FROM incoming)
                                          AND (SELECT max(observed_ns) FROM incoming)
                ) s USING (fingerprint)
                QUALIFY row_number() OVER (PARTITION BY i.fingerprint ORDER BY i.seq) = 1
                """,
            )
        return WriteResult(stored, table.num_rows - stored)

    def spool_position(self) -> tuple[int, int]:
        """The segment and offset after the stored part of the spool."""
        position_row = first_row(self._connection, 'SELECT segment, "offset" FROM spool_position')
        return (int(position_row[0]), int(position_row[1])) if position_row else (0, 0)

    def commit_from_spool(
        self, spans: SpanBatch, logs: pa.Table | None, position: tuple[int, int]
    ) -> tuple[WriteResult, WriteResult]:
        """Store new spans and log records from the spool together with the position after them.

        Only one connection may do so.

        Args:
            spans: The spans.
            logs: The log records as rows of ``logs``; their numbers are replaced.
            position: The segment and offset after the requests that contained them.

        Returns:
            The counts of the spans, and the counts of the log records.
        """
        numbered = None
        if logs is not None and logs.num_rows:
            numbered = _renumbered(logs, self._next(logs.num_rows))
        return with_memory(self._connection, lambda: self._commit(spans, numbered, position))

    def _commit(
        self, spans: SpanBatch, logs: pa.Table | None, position: tuple[int, int]
    ) -> tuple[WriteResult, WriteResult]:
        with transaction(self._connection):
            written = self._insert(spans) if len(spans) else spans.written
            logs_written = WriteResult() if logs is None else self._insert_logs(logs)
            self._connection.execute(
                'UPDATE spool_position SET segment = ?, "offset" = ?', list(position)
            )
        return written, logs_written

    def pull_position(self, source: str) -> str | None:
        """The text that `commit_pulled` stored last for a source, or None."""
        query = "SELECT position FROM pull_positions WHERE source = ?"
        position_row = first_row(self._connection, query, [source])
        return str(position_row[0]) if position_row else None

    def commit_pulled(self, spans: Sequence[Span], source: str, position: str) -> WriteResult:
        """Store the new spans of a page, together with the position after the page.

        Args:
            spans: The spans.
            source: The backend and project of the page.
            position: The position, in a form that only its reader understands.
        """
        batch = self.batch()
        batch.add(spans)

        def commit() -> WriteResult:
            with transaction(self._connection):
                written = self._insert(batch) if len(batch) else batch.written
                self._connection.execute("DELETE FROM pull_positions WHERE source = ?", [source])
                self._connection.execute(
                    "INSERT INTO pull_positions VALUES (?, ?)", [source, position]
                )
            return written

        return with_memory(self._connection, commit)

    def count(self) -> tuple[int, int]:
        """The number of spans and of log records, including archived rows."""
        spans = number(self._connection, "SELECT count(*) FROM spans") + self._archive.count(
            "spans"
        )
        logs = number(self._connection, "SELECT count(*) FROM logs") + self._archive.count("logs")
        return spans, logs

    def archived(self) -> int:
        """The number of archived rows."""
        return self._archive.count("spans") + self._archive.count("logs")

    def of_traces(
        self,
        trace_ids: Sequence[str],
        row_ranges: Sequence[Range] | None = None,
        archived: Sequence[str] | None = None,
        limit: ReadLimit | None = None,
    ) -> tuple[list[Span], list[LogRecord]]:
        """Return all spans and log records of some traces.

        Args:
            trace_ids: The traces.
            row_ranges: The ranges of `seq` of their rows in the database, if they are known.
            archived: The traces that may be archived; all of them by default.
            limit: Limits the bytes that are read.

        Raises:
            ArchiveMissing: Some rows are archived in a missing file.
            TooLarge: The rows exceed the limit.
        """
        with wanted(self._connection, "trace_id", trace_ids):
            if row_ranges is None:
                row_ranges = self._row_ranges()
            condition = "SEMI JOIN wanted USING (trace_id) WHERE seq BETWEEN {first} AND {last}"
            query = f"SELECT {SPAN_COLUMNS} FROM spans {condition}"  # noqa: S608
            spans = values_in(self._connection, query, row_ranges, limit)
            query = f"SELECT {_LOG_COLUMNS} FROM logs {condition}"  # noqa: S608
            logs = values_in(self._connection, query, row_ranges, limit)
        # The archive is read last: a row that moves there meanwhile is found twice, but not missed.
        traces = trace_ids if archived is None else archived
        archived_spans = self._archive.of_traces("spans", traces)
        archived_logs = self._archive.of_traces("logs", traces)
        if limit is not None:
            batches = [*archived_spans.to_batches(), *archived_logs.to_batches()]
            limit.take(batches, lambda batch: int(batch.nbytes))
        read_spans = spans_of(archived_spans.select(SPAN_COLUMNS.split(", ")))
        spans_by_key = {(span.trace_id, span.span_id): span for span in read_spans}
        for span in spans_of_rows(spans):
            archived_span = spans_by_key.get((span.trace_id, span.span_id))
            if archived_span is None or is_completed_by(archived_span, span):
                spans_by_key[span.trace_id, span.span_id] = span
        read_spans = list(spans_by_key.values())
        archived_rows = list(rows_of(archived_logs))
        fingerprints = {row["fingerprint"] for row in archived_rows}
        stored_rows = (dict(zip(LOG_SCHEMA.names, row, strict=True)) for row in logs)
        archived_rows += [row for row in stored_rows if row["fingerprint"] not in fingerprints]
        return read_spans, [log_of(row) for row in archived_rows]

    def first_of_traces(self, trace_ids: Sequence[str]) -> list[Span]:
        """The first span of each of some traces, without its content.

        Archived traces are left out.
        """
        with wanted(self._connection, "trace_id", trace_ids):
            rows = self._connection.execute(
                "SELECT trace_id, span_id, start_ns, end_ns, service FROM spans "
                "SEMI JOIN wanted USING (trace_id) "
                "QUALIFY row_number() OVER (PARTITION BY trace_id ORDER BY start_ns, seq) = 1"
            ).fetchall()
        return [
            Span(name, span, start_ns=start, end_ns=end, resource={"service.name": service})
            for name, span, start, end, service in rows
        ]

    def _row_ranges(self) -> list[Range]:
        """The range of `seq` of the rows of the traces in the table ``wanted``.

        Only two narrow columns are read. The range lets DuckDB skip row groups of wide columns.
        """
        bounds = first_row(
            self._connection,
            "SELECT min(seq), max(seq) FROM (SELECT seq FROM spans SEMI JOIN wanted "
            "USING (trace_id) UNION ALL SELECT seq FROM logs SEMI JOIN wanted USING (trace_id))",
        )
        return [Range(*bounds)] if bounds and bounds[0] is not None else []

    def unreachable(self, trace_ids: Sequence[str]) -> set[str]:
        """Return which of some traces have archived rows in missing files."""
        return self._archive.unreachable(trace_ids)

    def find_traces(self, name: str) -> list[str]:
        """Return up to 5 traces whose id, or the id of one of their spans, begins with a text."""
        rows = column(
            self._connection,
            "SELECT trace_id FROM spans "
            "WHERE starts_with(trace_id, $name) OR starts_with(span_id, $name) "
            "UNION SELECT trace_id FROM archived_traces WHERE starts_with(trace_id, $name) "
            "ORDER BY ALL LIMIT 5",
            {"name": name},
        )
        matches = rows
        return [name] if name in matches else matches

    def export(self) -> pa.RecordBatchReader:
        """All spans, including archived spans, batch by batch."""
        return self._exported("spans")

    def export_logs(self) -> pa.RecordBatchReader:
        """All log records, including archived records, batch by batch."""
        return self._exported("logs")

    def pages(self) -> Iterator[list[Span]]:
        """Yield all spans, including archived spans, in batches."""
        for batch in self._exported("spans"):
            yield spans_of(pa.Table.from_batches([batch]).select(SPAN_COLUMNS.split(", ")))

    def log_pages(self) -> Iterator[list[LogRecord]]:
        """Yield all log records, including archived records, in batches."""
        for batch in self._exported("logs"):
            yield [log_of(row) for row in rows_of(pa.Table.from_batches([batch]))]

    def _exported(self, kind: str) -> pa.RecordBatchReader:
        stored = reader(self._connection, f"SELECT * FROM {kind}")  # noqa: S608
        return pa.RecordBatchReader.from_batches(stored.schema, self._all(kind, stored))

    def _all(self, kind: str, stored: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        yield from stored
        for batch in self._archive.batches(kind):
            yield from pa.Table.from_batches([batch]).cast(stored.schema).to_batches()


def _more_complete(again: pa.Table, stored: pa.Table) -> tuple[list[int], list[str]]:
    """Compare spans that were exported again with the stored spans.

    Returns:
        The rows of `again` that replace a stored span, and the ids (``TRACE/SPAN``) of spans that
        differ, though neither is more complete.
    """
    spans_by_key = {(span.trace_id, span.span_id): span for span in _spans_of_table(stored)}
    places: dict[tuple[str, str], int] = {}
    conflicts: dict[str, None] = {}
    for position, span in enumerate(_spans_of_table(again)):
        key = (span.trace_id, span.span_id)
        if is_completed_by(spans_by_key[key], span):
            spans_by_key[key], places[key] = span, position
        elif not is_completed_by(span, spans_by_key[key]):
            conflicts[f"{span.trace_id}/{span.span_id}"] = None
    return list(places.values()), sorted(conflicts)


def _spans_of_table(table: pa.Table) -> list[Span]:
    return spans_of(table.select(SPAN_COLUMNS.split(", ")))


def _ids(table: pa.Table) -> Iterator[tuple[str, str]]:
    """The trace and span id of each row."""
    return zip(table["trace_id"].to_pylist(), table["span_id"].to_pylist(), strict=True)


def _has_distinct_ids(table: pa.Table) -> bool:
    """Whether no two rows have the same span id, so no two are the same span."""
    ids = table["span_id"].to_pylist()
    return len(set(ids)) == len(ids)


def _renumbered(table: pa.Table, first: int) -> pa.Table:
    """Return rows with the numbers from `first` on."""
    seq = pa.array(range(first, first + table.num_rows), pa.int64())
    return table.set_column(table.schema.get_field_index("seq"), "seq", seq)
