"""Load files of traces and logs into a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.machine import infrequent_gc
from ..ingest import Batch, FilePart, Table, file_size, files_of, read, split_file
from ..model import ScoredRun, Span, WriteResult
from ..store import (
    LOG_NAMES,
    ONE_THREAD_ROW,
    ROW_GROUP,
    SPAN_NAMES,
    WIDE_MEMORY_FACTOR,
    SpanBatch,
    Store,
    exported_logs,
    exported_spans,
)
from .decoder_pool import DecodedPart, decode_parts
from .file_reports import FileReport, LoadReport

__all__ = ["FileReport", "LoadReport", "load"]

# Rows of an insert: whole row groups of the store. DuckDB writes a full group once, in a third of
# the time that two halves take.
BATCH = 16_384
# An insert with at least this size (bytes) ends at the next full row group.
_BATCH_BYTES = 32 << 20
# The most inserts that wait or run while the next batch is read, and the most bytes of their rows
# together: while wide rows are inserted, no others are read.
_MAX_QUEUED, _MAX_QUEUED_BYTES = 1, 48 << 20
# Bytes of an insert of less than a row group. DuckDB copies all of it twice more for its log.
_REST_BYTES = 32 << 20
# The least spans and log records that are read at once.
CHUNK = 1024
# From this file size (bytes) on, starting processes to decode its parts pays off.
PARALLEL_SIZE = 64 << 20
PART_SIZE = 4 << 20
# The tables of the Parquet files that `exporter` writes.
EXPORTED = (
    Table(frozenset(SPAN_NAMES), exported_spans),
    Table(frozenset(LOG_NAMES), exported_logs),
)

Progress = Callable[[int, int | None], None]


def load(
    store: Store, paths: Iterable[str | Path], on_progress: Progress | None = None
) -> LoadReport:
    """Load the spans, log records and exported runs of files that a store does not have yet.

    Files are read and stored in batches, so memory does not grow with their size. Parts that
    cannot be read are reported, and everything else is loaded.

    Args:
        store: The store.
        paths: Files of traces, logs or conversations, and folders of them; "-" is standard input.
        on_progress: Called with the bytes read of the current file, and its size if it is known.
    """
    report = LoadReport()
    for path in map(str, paths):
        try:
            files = files_of(path)
        except InputError as error:
            report.files.append(FileReport(path, error=str(error)))
            continue
        for name in files:
            file = FileReport(name)
            report.files.append(file)
            try:
                _load_file(store, file, on_progress)
            except InputError as error:
                file.error = str(error)
    return report


def _load_file(store: Store, file: FileReport, on_progress: Progress | None) -> None:
    total = file_size(file.path)
    parts = split_file(file.path, PART_SIZE) if (total or 0) >= PARALLEL_SIZE else []
    # One thread decodes while another inserts; DuckDB releases the interpreter lock.
    with ThreadPoolExecutor(1) as executor, infrequent_gc(), store.reduced_memory():
        inserter = _Inserter(store, executor, file.written)
        try:
            done = _take_parts(inserter, file, parts) if parts else _take_batches(inserter, file)
            for bytes_read in done:
                if on_progress:
                    on_progress(bytes_read, total)
        finally:
            # Batches read before an error or Ctrl-C are kept.
            inserter.finish()


def _take_batches(inserter: _Inserter, file: FileReport) -> Iterator[int]:
    """Read a file, and yield the number of bytes read so far."""
    for batch in read(file.path, chunk=CHUNK, tables=EXPORTED):
        file.spans += len(batch.spans)
        file.logs += len(batch.logs)
        file.traceless_logs += sum(not record.trace_id for record in batch.logs)
        file.runs += len(batch.runs)
        file.note(batch.problems)
        inserter.take(batch)
        yield batch.bytes_read


def _take_parts(inserter: _Inserter, file: FileReport, parts: Sequence[FilePart]) -> Iterator[int]:
    """Read a file in several processes, and yield the number of bytes read so far."""
    for part, decoded in decode_parts(file.path, parts):
        file.spans += decoded.spans.num_rows
        file.logs += decoded.logs.num_rows
        file.traceless_logs += decoded.logs.column("trace_id").to_pylist().count("")
        file.note(decoded.problems)
        inserter.take_part(decoded)
        yield part.end


class _Inserter:
    """Inserts batches in another thread while the next batches are read."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor, written: WriteResult) -> None:
        self._store = store
        self._executor = executor
        self._written = written
        self._queued: deque[tuple[Future[WriteResult], int]] = deque()
        self._batch = store.spans.batch()
        self._has_wide_rows = False

    def take(self, batch: Batch) -> None:
        spans: Sequence[Span] = batch.spans
        while spans:
            room = self._room()
            self._batch.add(spans[:room])
            spans = spans[room:]
            if not self._room():
                self._insert()
        if batch.logs:
            self._submit(self._store.spans.write, (), batch.logs)
        if batch.runs:
            self._submit(_add_runs, self._store, batch.runs)

    def take_part(self, decoded: DecodedPart) -> None:
        spans = decoded.spans
        while spans.num_rows:
            room = self._room()
            self._batch.add_table(spans.slice(0, room))
            spans = spans.slice(room)
            if not self._room():
                self._insert()
        if decoded.logs.num_rows:
            self._submit(self._store.spans.insert_log_table, decoded.logs, size=decoded.logs.nbytes)

    def _room(self) -> int:
        """How many more rows the batch takes."""
        count = len(self._batch)
        if count and self._batch.nbytes >= _BATCH_BYTES:
            return min(BATCH - count, -count % ROW_GROUP)
        return BATCH - count

    def _insert(self) -> None:
        self._insert_batch(self._batch)
        self._batch = self._store.spans.batch()

    def _insert_batch(self, batch: SpanBatch) -> None:
        if batch.is_wide and not self._has_wide_rows:
            self._has_wide_rows = True
            self._store.raise_memory_limit(WIDE_MEMORY_FACTOR)
        is_narrow = batch.nbytes < ONE_THREAD_ROW * len(batch)
        insert = self._store.spans.insert if is_narrow else self._insert_with_one_thread
        self._submit(insert, batch, size=batch.nbytes)

    def _insert_with_one_thread(self, batch: SpanBatch) -> WriteResult:
        with self._store.one_thread():
            return self._store.spans.insert(batch)

    def _submit(self, insert: Callable[..., WriteResult], *rows: Any, size: int = 0) -> None:
        self._queued.append((self._executor.submit(insert, *rows), size))
        while len(self._queued) > _MAX_QUEUED or (
            sum(size for _, size in self._queued) > _MAX_QUEUED_BYTES
        ):
            self._take_result()

    def _take_result(self) -> None:
        self._written.add(self._queued.popleft()[0].result())

    def finish(self) -> None:
        if len(self._batch):
            for part in self._batch.split(_REST_BYTES):
                self._insert_batch(part)
        else:
            self._written.add(self._batch.written)
        while self._queued:
            self._take_result()


def _add_runs(store: Store, runs: Sequence[ScoredRun]) -> WriteResult:
    """Store exported runs with their scores, unless the store already has them."""
    by_id = {run.trajectory.id: run for run in reversed(runs)}
    added = store.trajectories.add([run.trajectory for run in by_id.values()])
    store.scores.write([score for name in added for score in by_id[name].scores])
    return WriteResult(len(added), len(runs) - len(added), runs=len(added))
