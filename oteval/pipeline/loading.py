"""Files into a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..decoding import DecodedPart, decode_parts
from ..errors import InputError
from ..ingest import Batch, Part, Problem, Table, read, size, split
from ..model import ScoredRun, Span
from ..store import Store, Written
from ..store.exported import LOG_NAMES, SPAN_NAMES, exported_logs, exported_spans
from .memory import rare_cycle_search

__all__ = ["FileReport", "LoadReport", "load"]

# As many rows as a row group of the store has: then DuckDB writes each once, in a third of the
# time that half ones take.
BATCH = 16_384
_MAX_PROBLEMS = 1000
_QUEUED = 1
CHUNK = 1024
# From this size on (bytes) the processes that decode a file's parts pay for their start.
BIG = 64 << 20
PART = 4 << 20
# The Parquet files that `exporting` writes.
EXPORTED = (
    Table(frozenset(SPAN_NAMES), exported_spans),
    Table(frozenset(LOG_NAMES), exported_logs),
)

Progress = Callable[[int, int | None], None]


@dataclass
class FileReport:
    """What became of one file.

    Attributes:
        path: The file.
        spans: Spans read.
        logs: Log records read.
        runs: Runs read that were reconstructed before.
        written: How many of both were new, and how many the store had.
        problems: Parts that were not read; the first 1,000.
        problem_count: How many there were.
        error: Why the file as a whole could not be read, or "".
    """

    path: str
    spans: int = 0
    logs: int = 0
    runs: int = 0
    written: Written = field(default_factory=Written)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    error: str = ""


@dataclass
class LoadReport:
    """What became of some files.

    Attributes:
        files: Each file's report, in the order given.
    """

    files: list[FileReport] = field(default_factory=list)

    @property
    def read(self) -> int:
        """How many spans, log records and runs were read."""
        return sum(file.spans + file.logs + file.runs for file in self.files)

    @property
    def stored(self) -> int:
        """How many of them are new in the store."""
        return sum(file.written.stored for file in self.files)

    @property
    def duplicate(self) -> int:
        """How many the store had already."""
        return sum(file.written.duplicate for file in self.files)

    @property
    def new_runs(self) -> int:
        """How many runs are new that were reconstructed elsewhere."""
        return sum(file.written.runs for file in self.files)

    @property
    def bad(self) -> int:
        """How many parts could not be read, whole files among them."""
        return sum(file.problem_count + bool(file.error) for file in self.files)


def load(
    store: Store, paths: Iterable[str | Path], on_progress: Progress | None = None
) -> LoadReport:
    """Store what some files hold; what is in the store already is not stored again.

    Files are read and stored in parts, so that memory does not grow with them. What cannot be
    read is reported; the rest goes on.

    Args:
        store: Where to.
        paths: Files of traces or logs; "-" is standard input.
        on_progress: Called with the bytes read of the current file and its size.
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
    total = size(file.path)
    parts = split(file.path, PART) if (total or 0) >= BIG else []
    # One thread decodes and builds rows, another inserts: DuckDB works without the interpreter.
    with ThreadPoolExecutor(1) as executor, rare_cycle_search(), store.few_buffers():
        writer = _Writer(store, executor, file.written)
        try:
            done = _take_parts(writer, file, parts) if parts else _take_batches(writer, file)
            for bytes_read in done:
                if on_progress:
                    on_progress(bytes_read, total)
        finally:
            # What came before a fault, or before Ctrl-C, is kept.
            writer.finish()


def _take_batches(writer: _Writer, file: FileReport) -> Iterator[int]:
    """Read a file, and yield how many of its bytes are read."""
    for batch in read(file.path, chunk=CHUNK, tables=EXPORTED):
        file.spans += len(batch.spans)
        file.logs += len(batch.logs)
        file.runs += len(batch.runs)
        _note(file, batch.problems)
        writer.take(batch)
        yield batch.bytes_read


def _take_parts(writer: _Writer, file: FileReport, parts: Sequence[Part]) -> Iterator[int]:
    """Read a file on all processors, and yield how many of its bytes are read."""
    for part, found in decode_parts(file.path, parts):
        file.spans += found.spans.num_rows
        file.logs += found.logs.num_rows
        _note(file, found.problems)
        writer.take_part(found)
        yield part.end


def _note(file: FileReport, problems: Sequence[Problem]) -> None:
    file.problem_count += len(problems)
    file.problems.extend(problems[: max(0, _MAX_PROBLEMS - len(file.problems))])


class _Writer:
    """Inserts in a thread of its own, a few batches behind."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor, written: Written) -> None:
        self._store = store
        self._executor = executor
        self._written = written
        self._queued: deque[Future[Written]] = deque()
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

    def _submit(self, future: Future[Written]) -> None:
        self._queued.append(future)
        while len(self._queued) > _QUEUED:
            self._written.add(self._queued.popleft().result())

    def finish(self) -> None:
        if len(self._batch):
            self._insert()
        else:
            self._written.add(self._batch.written)
        while self._queued:
            self._written.add(self._queued.popleft().result())


def _add_runs(store: Store, runs: Sequence[ScoredRun]) -> Written:
    """Store runs that were reconstructed before, with their scores, unless they are known."""
    by_id = {run.trajectory.id: run for run in reversed(runs)}
    added = store.trajectories.add([run.trajectory for run in by_id.values()])
    store.scores.write([score for name in added for score in by_id[name].scores])
    return Written(len(added), len(runs) - len(added), runs=len(added))
