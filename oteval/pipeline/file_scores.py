"""Score large files without storing all of their spans.

One process a core reads, reconstructs and scores the traces of its part of the files
(`score_worker`). Traces that may belong together with others elsewhere (`trace_groups`) are read
again into a store, and scored from there as any stored runs are. The scores of both are merged in
the order of the runs' starts.
"""

from __future__ import annotations

import heapq
import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from ..child_process import ChildProcess
from ..config import Config, StoredReference
from ..errors import InputError
from ..evaluators.gates import Tally
from ..ingest import Batch, FilePart, file_size, read, read_part
from ..model import Score
from ..selection import EVERYTHING, Selection
from .file_reports import FileReport, LoadReport
from .prepared import prepare
from .score_counts import ScoreRun
from .score_spool import RunScores, SpoolReader
from .score_units import ScoringJob, units_of
from .trace_groups import GroupKey, keys_of_run, shared_groups

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["FileScores", "can_score_files"]

# Bytes of all files from which on processes that score them pay off.
LEAST_SIZE = 32 << 20
# The least spans and log records that are read at once from parts that are read again.
_CHUNK = 1024
# The share of groups from which on all is stored, and how often the traces of a store may turn out
# to belong together with others before all is stored.
_MAX_SHARED, _MAX_ROUNDS = 0.5, 5
# The number of all groups in the store when their keys are compared with others.
_STORED = 1 << 62

Progress = Callable[[int, int | None], None]


def can_score_files(config: Config, selection: Selection, paths: Sequence[str]) -> bool:
    """Return whether `FileScores` can score files: large ones, by evaluators without a store.

    Args:
        config: The configuration.
        selection: The runs to score.
        paths: The files.
    """
    plain = replace(selection, since_ns=None, until_ns=None, services=(), agents=())
    plain = replace(plain, conversations=(), models=(), conditions=())
    sizes = [file_size(path) for path in paths]
    if plain != EVERYTHING or None in sizes or sum(filter(None, sizes)) < LEAST_SIZE:
        return False
    if len({Path(path).resolve() for path in paths}) < len(paths):
        return False
    return not any(
        settings.evaluator.asks_models
        or settings.evaluator.is_slow
        or settings.evaluator.concurrency > 1
        or isinstance(settings.reference, StoredReference)
        for settings in config.evaluators
    )


class FileScores:
    """The scores of large files.

    Args:
        paths: The files.
        config: The configuration.
        base: The folder that paths of the configuration are relative to.
        selection: The runs to score.

    Attributes:
        report: The number of spans in the files, and their unreadable parts, after `read`.
    """

    def __init__(
        self, paths: Sequence[str], config: Config, base: Path, selection: Selection
    ) -> None:
        self._paths, self._config, self._base, self._selection = paths, config, base, selection
        self._prepared = prepare(config, None, base)
        self._units = units_of(paths)
        self._temporary = TemporaryDirectory(prefix="oteval-")
        self._folder = Path(self._temporary.name)
        self._spool = SpoolReader(self._folder, len(self._units))
        self._shared: set[int] = set()
        self._store: Store | None = None
        self.report = LoadReport()

    def __enter__(self) -> Self:
        """Return the scores themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the temporary files."""
        if self._store is not None:
            self._store.close()
        for one in self._prepared:
            one.close()
        self._temporary.cleanup()

    def read(self, on_progress: Progress) -> bool:
        """Read the files, and score most of their runs.

        Args:
            on_progress: Called with the bytes that were read, and those of all files.

        Returns:
            Whether that was possible. If not, the files have to be loaded into a store, which also
            reports why a file cannot be read.

        Raises:
            InputError: A process ended unexpectedly.
        """
        self._run_workers(on_progress)
        if any(one.error or one.runs for reports in self._spool.reports() for one in reports):
            return False
        self._report()
        groups = self._spool.group_count()
        self._shared = self._spool.left() | shared_groups(
            self._spool.all_keys, self._spool.passes()
        )
        for _ in range(_MAX_ROUNDS):
            if not self._shared:
                return True
            if len(self._shared) > _MAX_SHARED * groups:
                return False
            self._store_shared()
            more = self._related_to_stored()
            if not more:
                return True
            self._shared |= more
        return False

    def _run_workers(self, on_progress: Progress) -> None:
        job = ScoringJob(
            *(str(self._folder), self._units, self._prepared, self._config.salt, self._selection)
        )
        path = self._folder / "job"
        path.write_bytes(pickle.dumps(job))
        total = sum(file_size(path) or 0 for path in self._paths)
        child = ChildProcess("oteval.pipeline.score_worker", waits_with_interrupts=True)
        try:
            child.send(str(path))
            done = 0
            for line in child.output:
                done += json.loads(line)
                on_progress(done, total)
        except EOFError:
            pass
        finally:
            child.close()
        if not self._spool.is_complete():
            raise InputError("a scoring process ended unexpectedly")

    def _report(self) -> None:
        """Fill `report`: the units of a file are in the order of the file."""
        files = {path: FileReport(path) for path in self._paths}
        lines: dict[str, int] = defaultdict(int)
        for reports in self._spool.reports():
            for one in reports:
                file = files[one.path]
                file.spans += one.spans
                file.logs += one.logs
                file.note(one.located(lines[one.path]), one.problem_count)
                lines[one.path] += one.lines
        self.report = LoadReport(list(files.values()))

    def _store_shared(self) -> None:
        """Read the traces that may belong together into a new store, and reconstruct them."""
        from ..store import Store
        from .reconstruction import refresh

        if self._store is not None:
            self._store.close()
            for old in self._folder.glob("shared.duckdb*"):
                old.unlink()
        self._store = store = Store(self._folder / "shared.duckdb")
        traces: set[str] = set()
        pieces: dict[str, set[FilePart | None]] = defaultdict(set)
        for place in self._spool.places(self._shared):
            traces.update(place.traces)
            path, parts = self._units[place.worker][place.unit]
            pieces[path].update([None] if parts is None else parts[place.first : place.last + 1])
        files = {file.path: file for file in self.report.files}
        for path in (path for path in files if path in pieces):
            file = files[path]
            file.written.conflicts = []
            for batch in _batches(path, pieces[path]):
                spans = [span for span in batch.spans if span.trace_id in traces]
                logs = [log for log in batch.logs if log.trace_id in traces]
                file.written.add(store.spans.write(spans, logs))
        refresh(store)

    def _related_to_stored(self) -> set[int]:
        """Return further groups that may belong together with the traces of the store."""
        assert self._store is not None
        stored = [
            key for run in self._store.trajectories.read() for key in keys_of_run(run, _STORED)
        ]

        def keys() -> Iterator[GroupKey]:
            yield from stored
            yield from (key for key in self._spool.all_keys() if key.group not in self._shared)

        return shared_groups(keys, self._spool.passes()) - {_STORED}

    def scores(self, run: ScoreRun, on_progress: Callable[[int], None]) -> Iterator[Score]:
        """Yield the scores in the order of the runs.

        Args:
            run: The counts to update.
            on_progress: Called with the number of runs done.
        """
        run.tallies.update({one.scorer.name: Tally(one.scorer.name) for one in self._prepared})
        run.versions.update({one.scorer.name: one.scorer.version for one in self._prepared})
        found = self._spool.runs(self._prepared, self._shared)
        merged = heapq.merge(found, self._stored_scores(), key=lambda one: one[:2])
        for one in merged:
            run.trajectories += 1
            for score in one.scores:
                run.add(score)
                yield score
            on_progress(run.trajectories)

    def _stored_scores(self) -> Iterator[RunScores]:
        """Yield the scores of the runs in the store."""
        if self._store is None:
            return
        from .evaluation import score

        store = self._store
        found = score(store, self._config, self._base, self._selection, ScoreRun())
        waiting = next(found, None)
        for keys in store.trajectories.keys(self._selection):
            for name, start_ns in zip(*(c.to_pylist() for c in keys.columns), strict=True):
                scores = []
                while waiting is not None and waiting.trajectory_id == name:
                    scores.append(waiting)
                    waiting = next(found, None)
                yield RunScores(start_ns, name, scores)


def _batches(path: str, pieces: Collection[FilePart | None]) -> Iterator[Batch]:
    """Yield the content of some parts of a file, or of all of it."""
    if None in pieces:
        yield from read(path)
        return
    for part in sorted(part for part in pieces if part is not None):
        for batch, _ in read_part(path, part, chunk=_CHUNK):
            yield batch
