"""Load files of traces and logs into a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..decoder_pool import DecodedPart, decode_parts
from ..errors import InputError
from ..ingest import Batch, FilePart, Problem, Table, file_size, read, split_file
from ..machine import infrequent_gc
from ..model import ScoredRun, Span
from ..store import Store, WriteResult
from ..store.exported_rows import LOG_NAMES, SPAN_NAMES, exported_logs, exported_spans

__all__ = ["FileReport", "LoadReport", "load"]

# Rows of an insert: exactly a row group of the store. DuckDB writes a full group once, in a third
# of the time that two halves take.
BATCH = 16_384
_MAX_PROBLEMS = 1000
_MAX_QUEUED = 1
# The least spans and log records that are read at once.
CHUNK = 1024
# Bytes of a file from which on starting processes that decode its parts pays off.
PARALLEL_SIZE = 64 << 20
PART_SIZE = 4 << 20
# The tables of the Parquet files that `exporter` writes.
EXPORTED = (
    Table(frozenset(SPAN_NAMES), exported_spans),
    Table(frozenset(LOG_NAMES), exported_logs),
)

Progress = Callable[[int, int | None], None]


@dataclass
class FileReport:
    """The result of loading one file.

    Attributes:
        path: The file.
        spans: The number of spans read.
        logs: The number of log records read.
        runs: The number of exported runs read.
        written: How many of them were new, and how many the store already had.
        problems: The first 1,000 parts that could not be read.
        problem_count: The number of all parts that could not be read.
        error: Why the file as a whole could not be read, or "".
    """

    path: str
    spans: int = 0
    logs: int = 0
    runs: int = 0
    written: WriteResult = field(default_factory=WriteResult)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    error: str = ""


@dataclass
class LoadReport:
    """The result of loading several files.

    Attributes:
        files: The report of each file, in the order given.
    """

    files: list[FileReport] = field(default_factory=list)

    @property
    def read(self) -> int:
        """The number of spans, log records and runs that were read."""
        return sum(file.spans + file.logs + file.runs for file in self.files)

    @property
    def stored(self) -> int:
        """How many of them are new in the store."""
        return sum(file.written.stored for file in self.files)

    @property
    def duplicate(self) -> int:
        """How many of them the store already had."""
        return sum(file.written.duplicate for file in self.files)

    @property
    def new_runs(self) -> int:
        """How many exported runs are new in the store."""
        return sum(file.written.runs for file in self.files)

    @property
    def bad(self) -> int:
        """The number of parts, including whole files, that could not be read."""
        return sum(file.problem_count + bool(file.error) for file in self.files)


def load(
    store: Store, paths: Iterable[str | Path], on_progress: Progress | None = None
) -> LoadReport:
    """Load the spans, log records and exported runs of files that a store does not have yet.

    Files are read and stored in batches, so memory does not grow with their size. Parts that
    cannot be read are reported, and everything else is loaded.

    Args:
        store: The store.
        paths: Files of traces or logs; "-" is standard input.
        on_progress: Called with the bytes read of the current file, and its size if it is known.
    """
    report = LoadReport()
    for path in paths:
        file = FileReport(str(path))
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
        file.runs += len(batch.runs)
        _note(file, batch.problems)
        inserter.take(batch)
        yield batch.bytes_read


def _take_parts(inserter: _Inserter, file: FileReport, parts: Sequence[FilePart]) -> Iterator[int]:
    """Read a file in several processes, and yield the number of bytes read so far."""
    for part, found in decode_parts(file.path, parts):
        file.spans += found.spans.num_rows
        file.logs += found.logs.num_rows
        _note(file, found.problems)
        inserter.take_part(found)
        yield part.end


def _note(file: FileReport, problems: Sequence[Problem]) -> None:
    file.problem_count += len(problems)
    file.problems.extend(problems[: max(0, _MAX_PROBLEMS - len(file.problems))])


class _Inserter:
    """Inserts batches in another thread while the next ones are read."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor, written: WriteResult) -> None:
        self._store = store
        self._executor = executor
        self._written = written
        self._queued: deque[Future[WriteResult]] = deque()
        self._batch = store.spans.batch()

    def take(self, batch: Batch) -> None:
        spans: Sequence[Span] = batch.spans
        while spans:
            room = BATCH - len(self._batch)
            self._batch.add(spans[:room])
            spans = spans[room:]
            if len(self._batch) == BATCH:
                self._insert()
        if batch.logs:
            self._submit(self._executor.submit(self._store.spans.write, (), batch.logs))
        if batch.runs:
            self._submit(self._executor.submit(_add_runs, self._store, batch.runs))

    def take_part(self, found: DecodedPart) -> None:
        spans = found.spans
        while spans.num_rows:
            room = BATCH - len(self._batch)
            self._batch.add_table(spans.slice(0, room))
            spans = spans.slice(room)
            if len(self._batch) == BATCH:
                self._insert()
        if found.logs.num_rows:
            self._submit(self._executor.submit(self._store.spans.insert_log_table, found.logs))

    def _insert(self) -> None:
        self._submit(self._executor.submit(self._store.spans.insert, self._batch))
        self._batch = self._store.spans.batch()

    def _submit(self, future: Future[WriteResult]) -> None:
        self._queued.append(future)
        while len(self._queued) > _MAX_QUEUED:
            self._written.add(self._queued.popleft().result())

    def finish(self) -> None:
        if len(self._batch):
            self._insert()
        else:
            self._written.add(self._batch.written)
        while self._queued:
            self._written.add(self._queued.popleft().result())


def _add_runs(store: Store, runs: Sequence[ScoredRun]) -> WriteResult:
    """Store exported runs with their scores, unless the store already has them."""
    by_id = {run.trajectory.id: run for run in reversed(runs)}
    added = store.trajectories.add([run.trajectory for run in by_id.values()])
    store.scores.write([score for name in added for score in by_id[name].scores])
    return WriteResult(len(added), len(runs) - len(added), runs=len(added))
