"""The archive: old spans and log records in Parquet files instead of the database.

The files are ``FOLDER/date=YYYY-MM-DD/bucket=NN/spans-N.parquet`` and ``logs-N.parquet``,
compressed with zstd and sorted by trace. A trace is archived whole, under the UTC day on which it
began; its bucket is ``md5_number_lower(trace_id) % 16``. Trajectories and scores stay in the
database.

Rows move in parts of a few thousand (`archive_parts`). The files of a part are announced in the
database, written, synced and read back. If they contain exactly the rows of the part, one
transaction deletes these rows and makes the files count. A process may be killed at any moment:
each row is then either in the database or in a file that counts. `archive_files` writes and reads
the files.

Tables: ``archived_files`` and ``archived_traces``; rows leave ``spans`` and ``logs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..base.errors import StoreError
from .archive_files import (
    SCHEMAS,
    ArchiveFile,
    ArchiveFolder,
    ArchiveReader,
    root_of,
    unfinished_files,
)
from .progress import done_by_all_stages
from .query import column, number, registered, transaction, wanted

__all__ = [
    "Archive",
    "ArchivePart",
    "ArchiveReader",
    "ArchiveReport",
    "archive_parts",
    "day_folder",
]

_ATTEMPTS = 3
# For each table, the columns of a conversation's id and of a time.
_INDEXED = {"spans": ("conversation_id", "start_ns"), "logs": (None, "time_ns")}


@dataclass
class ArchiveReport:
    """Counts of the rows that were moved to the archive.

    Attributes:
        traces: Traces.
        spans: Spans, including duplicates.
        logs: Log records, including duplicates.
        files: Files written.
        bytes: Size of these files.
        duplicates: Rows that the archive had already.
    """

    traces: int = 0
    spans: int = 0
    logs: int = 0
    files: int = 0
    bytes: int = 0
    duplicates: int = 0

    def add(self, later: ArchiveReport) -> None:
        """Add the counts of another report."""
        for name, count in vars(later).items():
            setattr(self, name, getattr(self, name) + count)


def _no_step(_step: str) -> None:
    pass


class Archive:
    """Moves old rows of a store into the archive, and deletes rows from it.

    Args:
        connection: The store's connection.
        reader: Reads the store's archived rows.
        on_step: Called with the name of each step; for tests.

    Attributes:
        done_before: This process has archived everything that ended before this time (ns).
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        reader: ArchiveReader,
        on_step: Callable[[str], None] = _no_step,
    ) -> None:
        self._connection = connection
        self._reader = reader
        self.on_step = on_step
        self.done_before = 0

    def move(
        self,
        folder: str | Path,
        before_ns: int,
        on_progress: Callable[[ArchiveReport], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ArchiveReport:
        """Move all traces that ended before a time and are reconstructed into the archive.

        Args:
            folder: The archive's folder; it is created if missing.
            before_ns: The time (ns), preferably the beginning of a day.
            on_progress: Called after each part.
            should_stop: Called before each part; a true result ends the move.

        Raises:
            StoreError: The folder cannot be written, a file does not contain the rows written to
                it, or another process archives into the folder. Parts moved before stay moved.
        """
        total = ArchiveReport()
        root = Path(folder).absolute()
        try:
            with self._folder(root) as archive_folder:
                for part in archive_parts(self._connection, before_ns):
                    if should_stop():
                        break
                    total.add(self._move(archive_folder, part))
                    if on_progress:
                        on_progress(total)
        except OSError as error:
            raise StoreError(f"{root}: cannot be written: {error.strerror or error}") from error
        return total

    def remove(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """Delete the rows of some traces from the archive.

        Each file with such rows is replaced by a file without them. If the process is killed, the
        next call removes the leftover files.

        Returns:
            The number of ``spans`` and ``logs`` deleted.

        Raises:
            ArchiveMissing: One of the files is missing; the files after it are unchanged.
            StoreError: A file cannot be written, or another process archives into its folder.
        """
        removed = dict.fromkeys(SCHEMAS, 0)
        self._recover_idle_folders()
        for kind in SCHEMAS:
            for path, _ in self._reader.files(kind, trace_ids):
                file_path = self._reader.base / path
                try:
                    with self._folder(root_of(file_path)) as folder:
                        removed[kind] += self._rewrite(folder, kind, path, trace_ids)
                except OSError as error:
                    reason = error.strerror or error
                    raise StoreError(f"{file_path}: cannot be replaced: {reason}") from error
        return removed

    def holds(self, trace_ids: Sequence[str]) -> bool:
        """Whether the archive has rows of some traces."""
        return any(self._reader.files(kind, trace_ids) for kind in SCHEMAS)

    def _folder(self, root: Path) -> ArchiveFolder:
        return ArchiveFolder(self._connection, self._reader.base, root, self.on_step)

    def _recover_idle_folders(self) -> None:
        """Remove leftover files, except in folders that another process archives into."""
        leftover = unfinished_files(self._connection, self._reader.base)
        for root in {root_of(path) for _, path in leftover}:
            if root.is_dir():
                with suppress(StoreError), self._folder(root):
                    pass

    def _move(self, folder: ArchiveFolder, part: ArchivePart) -> ArchiveReport:
        """Move a part; retry when another process changed its rows meanwhile."""
        attempts_left = _ATTEMPTS
        while True:
            files = folder.announce(folder.root / day_folder(part), SCHEMAS)
            try:
                with transaction(self._connection):
                    moved = self._write_and_delete(folder, files, part)
                    self.on_step("committing")
            except Exception as error:
                folder.recover()
                attempts_left -= 1
                if isinstance(error, duckdb.TransactionException) and attempts_left:
                    continue
                raise
            self.on_step("committed")
            return moved

    def _write_and_delete(
        self, folder: ArchiveFolder, files: Sequence[ArchiveFile], part: ArchivePart
    ) -> ArchiveReport:
        moved = ArchiveReport(traces=sum(name != "" for name in part.traces))
        for file in files:
            condition, values = part.condition(file.kind)
            with wanted(self._connection, "trace_id", part.traces):
                table = self._connection.sql(
                    f"SELECT * FROM {file.kind} WHERE {condition}",  # noqa: S608
                    params=values,
                ).to_arrow_table()
            table = table.cast(SCHEMAS[file.kind])
            setattr(moved, file.kind, table.num_rows)
            new = self._reader.without_archived(file.kind, table) if table.num_rows else table
            moved.duplicates += table.num_rows - new.num_rows
            if new.num_rows:
                moved.files += 1
                moved.bytes += self._keep(folder, file, new)
            else:
                folder.withdraw(file)
            self._delete(file.kind, part, expected=table.num_rows)
        return moved

    def _delete(self, kind: str, part: ArchivePart, expected: int) -> None:
        """Delete the rows of a part from the database.

        Raises:
            StoreError: There are more or fewer of them than were archived.
        """
        condition, values = part.condition(kind)
        with wanted(self._connection, "trace_id", part.traces):
            query = f"DELETE FROM {kind} WHERE {condition}"  # noqa: S608
            deleted = number(self._connection, query, values)
        if deleted != expected:
            raise StoreError(f"{kind}: {expected} rows archived, {deleted} would be deleted")

    def _keep(self, folder: ArchiveFolder, file: ArchiveFile, table: pa.Table) -> int:
        """Write a file that counts once the current transaction commits; return its size."""
        table = table.sort_by([("trace_id", "ascending"), ("seq", "ascending")])
        size = folder.write(file, table)
        last = max(table["seq"].to_pylist())
        self._connection.execute(
            "UPDATE archived_files SET state = 'kept', \"rows\" = ?, bytes = ?, last_seq = ? "
            "WHERE file = ?",
            [table.num_rows, size, last, file.number],
        )
        conversation, start = _INDEXED[file.kind]
        columns = [name for name in ("trace_id", conversation, start) if name]
        with registered(self._connection, "incoming", table.select(columns)):
            self._connection.execute(
                f"INSERT INTO archived_traces SELECT md5_number_lower(trace_id), trace_id, "  # noqa: S608
                f"{conversation or 'NULL'}, min({start}), ? "
                "FROM incoming WHERE trace_id <> '' GROUP BY ALL",
                [file.number],
            )
        return size

    def _rewrite(
        self, folder: ArchiveFolder, kind: str, path: str, trace_ids: Sequence[str]
    ) -> int:
        """Replace a file by a file without some traces; return the number of rows removed."""
        import pyarrow.compute as pc  # takes a tenth of a second, and few commands need it

        table = self._reader.read(path, kind)
        removed = pc.is_in(table["trace_id"], value_set=pa.array(trace_ids, pa.string()))
        remaining = table.filter(pc.invert(removed))
        file_path = self._reader.base / path
        new = folder.announce(file_path.parent, [kind]) if remaining.num_rows else []
        try:
            with transaction(self._connection):
                for file in new:
                    self._keep(folder, file, remaining)
                self._connection.execute(
                    "DELETE FROM archived_traces WHERE file IN "
                    "(SELECT file FROM archived_files WHERE path = ?)",
                    [path],
                )
                self._connection.execute(
                    "UPDATE archived_files SET state = 'deleting' WHERE path = ?", [path]
                )
                self.on_step("committing")
        except BaseException:
            folder.recover()
            raise
        self.on_step("committed")
        folder.recover()
        return int(table.num_rows - remaining.num_rows)


_BUCKETS = 16
_DAY = 86_400 * 1_000_000_000
# The most rows, and the most bytes of content, of a part, which is moved in one transaction.
_MAX_ROWS = 8192
_MAX_BYTES = 128 << 20
_LOG_TIME = "coalesce(nullif(time_ns, 0), observed_ns, 0)"
_SIZE = " + ".join(
    f"coalesce(strlen({name}), 0)" for name in ("input", "output", "attributes", "events")
)


class ArchivePart(NamedTuple):
    """Rows that are moved in one transaction.

    Attributes:
        day: The day, counted from 1970.
        bucket: The bucket.
        traces: The ids of the traces; [""] for log records without a trace.
        first_ns: No span of them begins earlier.
        last_ns: No span of them begins later.
        last_seq: Rows with higher numbers stay.
    """

    day: int
    bucket: int
    traces: list[str]
    first_ns: int
    last_ns: int
    last_seq: int

    def condition(self, kind: str) -> tuple[str, list[Any]]:
        """The condition on the part's rows of ``spans`` or ``logs``, and its parameters.

        The query also needs the traces as the table ``wanted``.
        """
        if self.traces == [""]:
            if kind == "spans":
                return "FALSE", []
            condition = f"coalesce(trace_id, '') = '' AND {_LOG_TIME} BETWEEN ? AND ? AND seq <= ?"
            return condition, [self.first_ns, self.last_ns, self.last_seq]
        condition = "trace_id IN (SELECT trace_id FROM wanted) AND seq <= ?"
        if kind == "spans":
            values = [self.last_seq, self.first_ns, self.last_ns]
            return f"{condition} AND start_ns BETWEEN ? AND ?", values
        return condition, [self.last_seq]


def day_folder(part: ArchivePart) -> str:
    """The folder of a part, relative to the archive's."""
    date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=part.day)
    return f"date={date:%Y-%m-%d}/bucket={part.bucket:02}"


def archive_parts(connection: duckdb.DuckDBPyConnection, before_ns: int) -> Iterator[ArchivePart]:
    """Yield the parts of everything that ended before a time and is reconstructed.

    Each part is looked up when it is requested, so that the previous part may be moved before.
    """
    last_seq = done_by_all_stages(connection)
    days = column(
        connection,
        f"""
        SELECT DISTINCT day FROM (
            SELECT start_ns // {_DAY} AS day FROM spans
            WHERE start_ns < $before AND seq <= $last_seq
            UNION ALL
            SELECT {_LOG_TIME} // {_DAY} FROM logs
            WHERE {_LOG_TIME} < $before AND seq <= $last_seq
        ) ORDER BY day
        """,  # noqa: S608
        {"before": before_ns, "last_seq": last_seq},
    )
    for day in days:
        yield from _parts_of_traces(connection, day, before_ns, last_seq)
        yield from _parts_of_logs(connection, day, before_ns, last_seq)


def _parts_of_traces(
    connection: duckdb.DuckDBPyConnection, day: int, before_ns: int, last_seq: int
) -> Iterator[ArchivePart]:
    """Yield the parts of the traces that began on a day and have only old spans."""
    rows = connection.execute(
        f"""
        SELECT md5_number_lower(trace_id) % {_BUCKETS} AS bucket, trace_id,
               min(start_ns), max(start_ns), count(*), sum({_SIZE})
        FROM spans SEMI JOIN (
            SELECT DISTINCT trace_id FROM spans WHERE start_ns >= $from AND start_ns < $to
        ) USING (trace_id)
        GROUP BY trace_id
        HAVING min(start_ns) >= $from AND max(seq) <= $last_seq
           AND max(greatest(start_ns, coalesce(end_ns, 0))) < $before
        ORDER BY bucket, trace_id
        """,  # noqa: S608
        {
            "from": day * _DAY,
            "to": (day + 1) * _DAY,
            "before": before_ns,
            "last_seq": last_seq,
        },
    ).fetchall()
    yield from _grouped(rows, day, last_seq)


def _parts_of_logs(
    connection: duckdb.DuckDBPyConnection, day: int, before_ns: int, last_seq: int
) -> Iterator[ArchivePart]:
    """Yield the parts of log records of a day without a trace, or without spans of it here."""
    first_ns, until_ns = day * _DAY, min((day + 1) * _DAY, before_ns)
    rows = connection.execute(
        f"""
        SELECT md5_number_lower(trace_id) % {_BUCKETS} AS bucket, trace_id, 0, 0, count(*), 0
        FROM logs ANTI JOIN (SELECT trace_id FROM spans) s USING (trace_id)
        WHERE trace_id <> '' AND {_LOG_TIME} >= ? AND {_LOG_TIME} < ? AND seq <= ?
        GROUP BY trace_id ORDER BY bucket, trace_id
        """,  # noqa: S608
        [first_ns, until_ns, last_seq],
    ).fetchall()
    yield from _grouped(rows, day, last_seq)
    without_trace = f"""
        SELECT coalesce(max(seq), 0) FROM (
            SELECT seq FROM logs
            WHERE coalesce(trace_id, '') = '' AND {_LOG_TIME} >= ? AND {_LOG_TIME} < ? AND seq <= ?
            ORDER BY seq LIMIT {_MAX_ROWS}
        )
        """  # noqa: S608
    while upto := number(connection, without_trace, [first_ns, until_ns, last_seq]):
        yield ArchivePart(day, 0, [""], first_ns, until_ns - 1, upto)


def _grouped(rows: Sequence[tuple[Any, ...]], day: int, last_seq: int) -> Iterator[ArchivePart]:
    """Yield parts of as many traces of one bucket as one transaction should move.

    Args:
        rows: Bucket, trace, first and last start (ns), number of rows and bytes, by bucket.
        day: The day.
        last_seq: Rows with higher numbers stay.
    """
    group: list[tuple[Any, ...]] = []
    count = size = 0
    for trace_row in rows:
        is_other_bucket = group and group[0][0] != trace_row[0]
        is_full = count + trace_row[4] > _MAX_ROWS or size + trace_row[5] > _MAX_BYTES
        if group and (is_other_bucket or is_full):
            yield _part(group, day, last_seq)
            group, count, size = [], 0, 0
        group.append(trace_row)
        count += trace_row[4]
        size += trace_row[5]
    if group:
        yield _part(group, day, last_seq)


def _part(group: Sequence[tuple[Any, ...]], day: int, last_seq: int) -> ArchivePart:
    first_ns, last_ns = (
        min(trace_row[2] for trace_row in group),
        max(trace_row[3] for trace_row in group),
    )
    bucket, traces = int(group[0][0]), [trace_row[1] for trace_row in group]
    return ArchivePart(day, bucket, traces, first_ns, last_ns, last_seq)
