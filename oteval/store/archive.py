"""Old spans and log records out of the database, into Parquet files.

``FOLDER/date=YYYY-MM-DD/bucket=NN/spans-N.parquet`` and ``logs-N.parquet``: zstd, sorted by trace,
whole traces, under the UTC day on which the trace began; the bucket is ``md5_number_lower(trace_id)
% 16``. Trajectories and scores stay in the database.

A part of some thousand rows at a time: its files are noted as being written, written, synced and
read back; when they hold what the database does, one transaction deletes the rows and makes the
files count. Killed at any moment, the rows are in the one or in the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..errors import StoreError
from ..files import exclusive_lock, sync_folder
from .cold import SCHEMAS, Cold, key_table
from .query import number, row, transaction

__all__ = ["BUCKETS", "Archive", "Archived"]

BUCKETS = 16
DAY = 86_400 * 1_000_000_000
_ROWS = 8192
_BYTES = 128 << 20
_ROW_GROUP = 1024
_ATTEMPTS = 3
_LOG_TIME = "coalesce(nullif(time_ns, 0), observed_ns, 0)"
_SIZE = " + ".join(
    f"coalesce(strlen({name}), 0)" for name in ("input", "output", "attributes", "events")
)


@dataclass
class Archived:
    """What was moved.

    Attributes:
        traces: Traces.
        spans: Spans, those that the archive had already among them.
        logs: Log records, likewise.
        files: Files written.
        bytes: Their size.
        duplicates: Rows that the archive had already.
    """

    traces: int = 0
    spans: int = 0
    logs: int = 0
    files: int = 0
    bytes: int = 0
    duplicates: int = 0


class _Part(NamedTuple):
    """What is moved in one transaction.

    Attributes:
        day: The day, counted from 1970.
        bucket: The bucket.
        traces: The traces; "" stands for log records of none.
        first: No span of them begins before (ns).
        last: No span of them begins after (ns).
        mark: No row of a higher number is moved.
    """

    day: int
    bucket: int
    traces: list[str]
    first: int
    last: int
    mark: int


class _File(NamedTuple):
    number: int
    path: Path
    kind: str


def _nothing(_step: str) -> None:
    pass


class Archive:
    """Moves what is old out of a store.

    Args:
        connection: The store's connection.
        cold: The archive's reading side.
        on_step: Told of each step; for tests.

    Attributes:
        done_before: Everything from before this time (ns) was looked at by this process.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        cold: Cold,
        on_step: Callable[[str], None] = _nothing,
    ) -> None:
        self._connection = connection
        self._cold = cold
        self.on_step = on_step
        self.done_before = 0

    def move(
        self,
        folder: str | Path,
        before_ns: int,
        on_progress: Callable[[Archived], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Archived:
        """Move all traces that ended before a time, and were reconstructed, into files.

        Args:
            folder: The archive; made where it is not there.
            before_ns: The time; best the beginning of a day.
            on_progress: Called after each part.
            should_stop: Asked before each part.

        Returns:
            What was moved.

        Raises:
            StoreError: The folder cannot be written, a file does not hold what was written to it,
                or another process archives into the folder. What was moved before stays moved.
        """
        total = Archived()
        root = Path(folder).absolute()
        try:
            with _locked(root):
                self._take_back(root)
                for part in self._parts(before_ns):
                    if should_stop():
                        break
                    self._move(root, part, total)
                    if on_progress:
                        on_progress(total)
        except OSError as error:
            raise StoreError(f"{root}: cannot be written: {error.strerror or error}") from error
        return total

    def remove(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """Delete the rows of some traces from the archive.

        Each file that holds some of them is replaced by one without them. Killed at any moment,
        the next call removes the files that were left over.

        Returns:
            The number of ``spans`` and ``logs`` deleted.

        Raises:
            ArchiveMissing: One of the files is missing; nothing more was deleted.
            StoreError: A file cannot be written, or another process archives into its folder.
        """
        removed = dict.fromkeys(SCHEMAS, 0)
        self._take_back_unlocked()
        for kind in SCHEMAS:
            for path, _ in self._cold.files(kind, trace_ids):
                place = self._cold.base / path
                try:
                    with _locked(_root_of(place)):
                        removed[kind] += self._rewrite(kind, path, trace_ids)
                except OSError as error:
                    reason = error.strerror or error
                    raise StoreError(f"{place}: cannot be replaced: {reason}") from error
        return removed

    def holds(self, trace_ids: Sequence[str]) -> bool:
        """Return whether the archive has rows of some traces."""
        return any(self._cold.files(kind, trace_ids) for kind in SCHEMAS)

    def _rewrite(self, kind: str, path: str, trace_ids: Sequence[str]) -> int:
        """Replace a file by one without some traces; return how many rows fewer that has."""
        root = _root_of(self._cold.base / path)
        import pyarrow.compute as pc  # takes a tenth of a second, which few commands need

        table = self._cold.read(path, kind)
        wanted = pa.array(trace_ids, pa.string())
        kept = table.filter(pc.invert(pc.is_in(table["trace_id"], value_set=wanted)))
        fresh = self._replacement(kind, path) if kept.num_rows else None
        try:
            with transaction(self._connection):
                self._exchange(kept, fresh, path)
                self.on_step("committing")
        except BaseException:
            self._take_back(root)
            raise
        self.on_step("committed")
        self._take_back(root)
        return int(table.num_rows - kept.num_rows)

    def _exchange(self, kept: pa.Table, fresh: _File | None, path: str) -> None:
        """Write a file's remaining rows to another, which counts in its place."""
        if fresh is not None:
            self._keep(fresh, kept, Archived())
        self._connection.execute(
            "DELETE FROM archived_traces WHERE file IN "
            "(SELECT file FROM archived_files WHERE path = ?)",
            [path],
        )
        self._connection.execute(
            "UPDATE archived_files SET state = 'deleting' WHERE path = ?", [path]
        )

    def _replacement(self, kind: str, path: str) -> _File:
        """Note a new file beside another, so that a crash leaves none behind."""
        first = number(self._connection, "SELECT coalesce(max(file), 0) + 1 FROM archived_files")
        file = _File(first, _free((self._cold.base / path).parent, kind, first), kind)
        self._connection.execute(
            "INSERT INTO archived_files VALUES (?, ?, ?, 'writing', 0, 0, 0)",
            [file.number, self._relative(file.path), kind],
        )
        self.on_step("announced")
        return file

    def _take_back(self, root: Path) -> None:
        """Remove files that were being written when a run ended, and files that were replaced.

        Args:
            root: The folder; it must be locked, since another process may write files just now.
        """
        for file, place in self._unfinished():
            if _root_of(place) != root:
                continue
            for leftover in (place, _partial(place)):
                leftover.unlink(missing_ok=True)
            self._connection.execute("DELETE FROM archived_files WHERE file = ?", [file])

    def _take_back_unlocked(self) -> None:
        """Take back in all folders but those that another process archives into."""
        for root in {_root_of(place) for _, place in self._unfinished()}:
            if root.is_dir():
                with suppress(StoreError), _locked(root):
                    self._take_back(root)

    def _unfinished(self) -> list[tuple[int, Path]]:
        rows = self._connection.execute(
            "SELECT file, path FROM archived_files WHERE state IN ('writing', 'deleting')"
        ).fetchall()
        return [(file, self._cold.base / path) for file, path in rows]

    def _mark(self) -> int:
        """Return the number up to which every stage is done with all rows."""
        return number(
            self._connection,
            "SELECT coalesce(min(done), 0) FROM "
            "(SELECT max(seq) AS done FROM progress GROUP BY stage)",
        )

    def _parts(self, before: int) -> Iterator[_Part]:
        mark = self._mark()
        days = self._connection.execute(
            f"""
            SELECT DISTINCT day FROM (
                SELECT start_ns // {DAY} AS day FROM spans
                WHERE start_ns < $before AND seq <= $mark
                UNION ALL
                SELECT {_LOG_TIME} // {DAY} FROM logs
                WHERE {_LOG_TIME} < $before AND seq <= $mark
            ) ORDER BY day
            """,  # noqa: S608
            {"before": before, "mark": mark},
        ).fetchall()
        for (day,) in days:
            yield from self._parts_of_spans(day, before, mark)
            yield from self._parts_of_logs(day, before, mark)

    def _parts_of_spans(self, day: int, before: int, mark: int) -> Iterator[_Part]:
        """Yield the parts of the traces that began on a day and are all old."""
        rows = self._connection.execute(
            f"""
            SELECT md5_number_lower(trace_id) % {BUCKETS} AS bucket, trace_id,
                   min(start_ns), max(start_ns), count(*), sum({_SIZE})
            FROM spans SEMI JOIN (
                SELECT DISTINCT trace_id FROM spans WHERE start_ns >= $from AND start_ns < $to
            ) USING (trace_id)
            GROUP BY trace_id
            HAVING min(start_ns) >= $from AND max(seq) <= $mark
               AND max(greatest(start_ns, coalesce(end_ns, 0))) < $before
            ORDER BY bucket, trace_id
            """,  # noqa: S608
            {"from": day * DAY, "to": (day + 1) * DAY, "before": before, "mark": mark},
        ).fetchall()
        yield from _grouped(rows, day, mark)

    def _parts_of_logs(self, day: int, before: int, mark: int) -> Iterator[_Part]:
        """Yield the parts of log records whose traces have no spans here, or that have no trace."""
        values = {
            "from": day * DAY,
            "to": min((day + 1) * DAY, before),
            "mark": mark,
        }
        times = f"{_LOG_TIME} >= $from AND {_LOG_TIME} < $to AND seq <= $mark"
        rows = self._connection.execute(
            f"""
            SELECT md5_number_lower(trace_id) % {BUCKETS} AS bucket, trace_id, 0, 0, count(*), 0
            FROM logs ANTI JOIN (SELECT trace_id FROM spans) s USING (trace_id)
            WHERE trace_id <> '' AND {times}
            GROUP BY trace_id ORDER BY bucket, trace_id
            """,  # noqa: S608
            values,
        ).fetchall()
        yield from _grouped(rows, day, mark)
        loose = f"coalesce(trace_id, '') = '' AND {_LOG_TIME} >= ? AND {_LOG_TIME} < ? AND seq <= ?"
        while upto := number(
            self._connection,
            f"SELECT coalesce(max(seq), 0) FROM (SELECT seq FROM logs WHERE {loose} "  # noqa: S608
            f"ORDER BY seq LIMIT {_ROWS})",
            list(values.values()),
        ):
            yield _Part(day, 0, [""], values["from"], values["to"] - 1, upto)

    def _move(self, root: Path, part: _Part, total: Archived) -> None:
        for attempt in range(_ATTEMPTS):
            files = self._announced(root, part)
            try:
                with transaction(self._connection):
                    moved = self._write_and_delete(files, part)
                    self.on_step("committing")
            except duckdb.TransactionException:
                # Another process changed the same rows.
                self._take_back(root)
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            except Exception:
                self._take_back(root)
                raise
            self.on_step("committed")
            for name, count in vars(moved).items():
                setattr(total, name, getattr(total, name) + count)
            return

    def _announced(self, root: Path, part: _Part) -> list[_File]:
        """Note the files that are going to be written, so that a crash leaves none behind."""
        date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=part.day)
        folder = root / f"date={date:%Y-%m-%d}" / f"bucket={part.bucket:02}"
        first = number(self._connection, "SELECT coalesce(max(file), 0) + 1 FROM archived_files")
        files = []
        for index, kind in enumerate(SCHEMAS):
            path = _free(folder, kind, first + index)
            files.append(_File(first + index, path, kind))
            self._connection.execute(
                "INSERT INTO archived_files VALUES (?, ?, ?, 'writing', 0, 0, 0)",
                [first + index, self._relative(path), kind],
            )
        self.on_step("announced")
        return files

    def _relative(self, path: Path) -> str:
        base = self._cold.base
        return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)

    def _write_and_delete(self, files: Sequence[_File], part: _Part) -> Archived:
        moved = Archived(traces=sum(name != "" for name in part.traces))
        for file in files:
            where, values = _where(file.kind, part)
            self._connection.register("wanted", key_table(part.traces))
            table = self._connection.sql(
                f"SELECT * FROM {file.kind} WHERE {where}",  # noqa: S608
                params=values,
            ).to_arrow_table()
            self._connection.unregister("wanted")
            table = table.cast(SCHEMAS[file.kind])
            setattr(moved, file.kind, table.num_rows)
            fresh = self._cold.without_archived(file.kind, table) if table.num_rows else table
            moved.duplicates += table.num_rows - fresh.num_rows
            if fresh.num_rows:
                self._keep(file, fresh, moved)
            else:
                self._connection.execute("DELETE FROM archived_files WHERE file = ?", [file.number])
            self._delete(file.kind, part, table.num_rows)
        return moved

    def _keep(self, file: _File, table: pa.Table, moved: Archived) -> None:
        """Write a file, and make it count when the transaction does."""
        table = table.sort_by([("trace_id", "ascending"), ("seq", "ascending")])
        size = _write(file.path, table, self.on_step)
        moved.files += 1
        moved.bytes += size
        last = max(table["seq"].to_pylist())
        self._connection.execute(
            "UPDATE archived_files SET state = 'kept', \"rows\" = ?, bytes = ?, last_seq = ? "
            "WHERE file = ?",
            [table.num_rows, size, last, file.number],
        )
        conversation, start = _INDEXED[file.kind]
        columns = table.select([name for name in ("trace_id", conversation, start) if name])
        self._connection.register("incoming", columns)
        self._connection.execute(
            f"INSERT INTO archived_traces SELECT md5_number_lower(trace_id), trace_id, "  # noqa: S608
            f"{conversation or 'NULL'}, min({start}), ? "
            "FROM incoming WHERE trace_id <> '' GROUP BY ALL",
            [file.number],
        )
        self._connection.unregister("incoming")

    def _delete(self, kind: str, part: _Part, expected: int) -> None:
        where, values = _where(kind, part)
        self._connection.register("wanted", key_table(part.traces))
        found = row(self._connection, f"DELETE FROM {kind} WHERE {where}", values)  # noqa: S608
        self._connection.unregister("wanted")
        deleted = int(found[0]) if found else 0
        if deleted != expected:
            raise StoreError(f"{kind}: {expected} rows archived, {deleted} would be deleted")


# The columns of the conversation and of the time.
_INDEXED = {"spans": ("conversation_id", "start_ns"), "logs": (None, "time_ns")}


def _where(kind: str, part: _Part) -> tuple[str, list[Any]]:
    """Return the condition of a part's rows; the same to read and to delete them."""
    if part.traces == [""]:
        if kind == "spans":
            return "FALSE", []
        times = f"{_LOG_TIME} BETWEEN ? AND ?"
        return f"coalesce(trace_id, '') = '' AND {times} AND seq <= ?", list(part[3:])
    where = "trace_id IN (SELECT trace_id FROM wanted) AND seq <= ?"
    if kind == "spans":
        return f"{where} AND start_ns BETWEEN ? AND ?", [part.mark, part.first, part.last]
    return where, [part.mark]


def _grouped(rows: Sequence[tuple[Any, ...]], day: int, mark: int) -> Iterator[_Part]:
    """Yield parts of so many traces of one bucket as one transaction should move."""
    group: list[tuple[Any, ...]] = []
    count = size = 0
    for found in rows:
        is_other = group and group[0][0] != found[0]
        if group and (is_other or count + found[4] > _ROWS or size + found[5] > _BYTES):
            yield _part(group, day, mark)
            group, count, size = [], 0, 0
        group.append(found)
        count += found[4]
        size += found[5]
    if group:
        yield _part(group, day, mark)


def _part(group: Sequence[tuple[Any, ...]], day: int, mark: int) -> _Part:
    first, last = min(found[2] for found in group), max(found[3] for found in group)
    return _Part(day, int(group[0][0]), [found[1] for found in group], first, last, mark)


def _free(folder: Path, kind: str, number: int) -> Path:
    """Return a path that no file has: the folder may hold those of another database."""
    path = folder / f"{kind}-{number:08}.parquet"
    extra = 0
    while path.exists():
        extra += 1
        path = folder / f"{kind}-{number:08}-{extra}.parquet"
    return path


def _partial(path: Path) -> Path:
    return path.with_suffix(".partial")


def _write(path: Path, table: pa.Table, on_step: Callable[[str], None]) -> int:
    """Write a file that is there whole or not at all, and holds what it was given.

    Returns:
        Its size (bytes).

    Raises:
        OSError: It cannot be written.
        StoreError: What is read back is something else.
    """
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(path)
    with partial.open("wb") as file:
        pq.write_table(table, file, compression="zstd", row_group_size=_ROW_GROUP)
        file.flush()
        on_step("written")
        os.fsync(file.fileno())
    with partial.open("rb") as file:
        if not pq.ParquetFile(file).read().equals(table):
            raise StoreError(f"{partial}: does not hold what was written; nothing was deleted")
    partial.replace(path)
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        sync_folder(folder)
    on_step("verified")
    return path.stat().st_size


def _root_of(place: Path) -> Path:
    """Return the archive's folder, in which a file lies below its date and its bucket."""
    return place.parent.parent.parent


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Keep every other process from archiving into a folder."""
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(root / ".lock"))
        except BlockingIOError:
            raise StoreError(
                f"{root}: another process is archiving into it; try again later"
            ) from None
        yield
