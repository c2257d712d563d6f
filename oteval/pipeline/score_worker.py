"""Processes that score the traces of large files: from bytes to scores, without a store.

``python -m oteval.pipeline.score_worker`` reads the path of a pickled `ScoringJob` as a line of
JSON. It forks a process for each further worker, so that modules are imported once. Every worker
reads its pieces of files, and writes scores to files in the job's folder; see `score_spool`.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..child_process import ignore_interrupts
from ..errors import InputError
from ..ingest import Batch, read, read_part
from ..machine import infrequent_gc
from ..model import Trajectory
from ..reconstruct import reconstruct
from .score_spool import ScoreSpool, UnitReport
from .score_units import ScoringJob, Unit
from .trace_groups import TraceGroup, TraceGroups, keys_of_group, keys_of_run

__all__ = ["main", "run_all"]

Say = Callable[[bytes], object]

# The least spans and log records that are decoded at once.
_CHUNK = 256


class _Worker:
    def __init__(self, job: ScoringJob, number: int, say: Say) -> None:
        self._job, self._number, self._say = job, number, say
        self._spool = ScoreSpool(Path(job.folder), number)
        self._group = 0

    def run(self) -> None:
        """Do the units, and write the results."""
        with infrequent_gc():
            for unit in self._job.units[self._number]:
                self._spool.reports.append(self._scored(unit))
        self._spool.close()

    def _scored(self, unit: Unit) -> UnitReport:
        report, groups = UnitReport(unit.path), TraceGroups()
        try:
            for piece, batch in _pieces(unit, report, self._say):
                report.take(batch)
                groups.add(batch.spans, batch.logs, piece)
                batch.spans = []
                for group in groups.closed(piece):
                    self._score(group, len(self._spool.reports))
        except InputError as error:
            report.error = str(error)
        for group in groups.closed():
            self._score(group, len(self._spool.reports))
        return report

    def _score(self, group: TraceGroup, unit: int) -> None:
        number = self._group
        self._group += 1
        runs: Sequence[Trajectory] = ()
        if not group.is_left:
            try:
                runs = reconstruct(group.spans)
            except Exception:  # a store reconstructs each trace by itself
                group.leave()
        keys = [*keys_of_group(group, number)]
        for run in runs:
            keys += keys_of_run(run, number)
        self._spool.add_group(group, unit, keys)
        now = time.time_ns()
        for run in runs:
            if self._job.selection.matches(run):
                scores = [
                    (order, one.score(run, now))
                    for order, one in enumerate(self._job.prepared)
                    if one.scorer.wants(run, self._job.salt)
                ]
                self._spool.add_run(run, number, scores)


def _pieces(unit: Unit, report: UnitReport, say: Say) -> Iterator[tuple[int, Batch]]:
    """Yield the content of a unit with the numbers of its pieces, and report the progress."""
    if unit.parts is None:
        before = 0
        for piece, batch in enumerate(read(unit.path, chunk=4 * _CHUNK)):
            yield piece, batch
            say(b"%d\n" % (batch.bytes_read - before))
            before = batch.bytes_read
        return
    for piece, part in enumerate(unit.parts):
        before, lines = report.lines, 0
        for batch, lines in read_part(unit.path, part, chunk=_CHUNK):  # noqa: B007  the last counts
            yield piece, batch
        report.lines = before + lines
        say(b"%d\n" % (part.end - part.start))


def run_all(path: str, say: Say) -> None:
    """Do the work of all workers of a job in this process.

    Args:
        path: The pickled job.
        say: Takes a line for each piece that was read: its bytes.
    """
    job: ScoringJob = pickle.loads(Path(path).read_bytes())  # noqa: S301  our own file
    for number in range(len(job.units)):
        _Worker(job, number, say).run()


def _print(line: bytes) -> None:
    """Print a line; a short one in a pipe is never mixed with others."""
    os.write(1, line)


def main() -> None:
    """Do the job that standard input names."""
    ignore_interrupts()
    path = json.loads(sys.stdin.readline())
    job: ScoringJob = pickle.loads(Path(path).read_bytes())  # noqa: S301  our own file
    gc.freeze()
    others = []
    for number in range(1, len(job.units)):
        if child := os.fork():
            others.append(child)
            continue
        try:
            _run(job, number)
        except BaseException:  # else the other workers would be forked here as well
            traceback.print_exc()
        finally:
            os._exit(0)  # without the report, the parent knows that it failed
    try:
        _run(job, 0)
    finally:
        for child in others:
            os.waitpid(child, 0)


def _run(job: ScoringJob, number: int) -> None:
    """Do the work of a worker, unless the parent stops reading because of Ctrl-C."""
    with suppress(BrokenPipeError):
        _Worker(job, number, _print).run()


if __name__ == "__main__":
    main()
