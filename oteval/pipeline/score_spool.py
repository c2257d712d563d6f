"""Files in which a worker keeps the scores of a large file, until they are read in order.

A worker writes: ``runs-N-M``, JSON lines with the scores of runs, each file sorted by the start of
the runs; ``groups-N``, a JSON line for each group of traces; ``keys-N``, the keys of the groups;
``left-N``, the numbers of groups that are left to a store; and at the end ``report-N``.
"""

from __future__ import annotations

import heapq
import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ..ingest import Batch, Problem
from ..jsontext import dumps_exact, restore
from ..model import Score, Trajectory
from .trace_groups import KEY_FORMAT, GroupKey, TraceGroup

if TYPE_CHECKING:
    from .prepared import PreparedEvaluator

__all__ = ["GroupPlace", "RunScores", "ScoreSpool", "SpoolReader", "UnitReport"]

_MAX_PROBLEMS = 1000
# The bytes of lines that are sorted together.
_SORTED_BYTES = 16 << 20
_KEYS_AT_ONCE = 4096
# Keys of which the reader keeps about one pass at a time.
_PASS_KEYS = 250_000
_WORKER = 40  # bits of a group's number below the number of its worker
_PLAIN = ("status", "score", "passed", "label", "comment", "metadata")


@dataclass
class UnitReport:
    """The content of one unit, counted.

    Attributes:
        path: The file.
        spans: The number of spans.
        logs: The number of log records.
        runs: The number of exported runs, which only a store can score.
        lines: The number of lines.
        problems: The lines and reasons of the first 1,000 parts that could not be read; lines count
            from the beginning of the unit.
        problem_count: The number of all parts that could not be read.
        error: Why the file could not be read, or "".
    """

    path: str
    spans: int = 0
    logs: int = 0
    runs: int = 0
    lines: int = 0
    problems: list[tuple[int | None, str]] = field(default_factory=list)
    problem_count: int = 0
    error: str = ""

    def take(self, batch: Batch) -> None:
        """Count a batch. The lines of its problems count from the line that `lines` names."""
        self.spans += len(batch.spans)
        self.logs += len(batch.logs)
        self.runs += len(batch.runs)
        self.problem_count += len(batch.problems)
        for problem in batch.problems[: _MAX_PROBLEMS - len(self.problems)]:
            line = None if problem.line is None else problem.line + self.lines
            self.problems.append((line, problem.reason))

    def located(self, before: int) -> list[Problem]:
        """Return the problems, their lines counted from the beginning of the file.

        Args:
            before: The number of lines before the unit.
        """
        return [
            Problem(self.path, None if line is None else line + before, reason)
            for line, reason in self.problems
        ]


class GroupPlace(NamedTuple):
    """A group, and the pieces of files in which it was found.

    Attributes:
        group: Its number.
        traces: The ids of its traces.
        worker: The number of the worker.
        unit: The number of the worker's unit.
        first: The first piece of the unit.
        last: The last piece.
    """

    group: int
    traces: Sequence[str]
    worker: int
    unit: int
    first: int
    last: int


class RunScores(NamedTuple):
    """The scores of a run, in the order of runs.

    Attributes:
        start_ns: When the run begins.
        trajectory_id: The run.
        scores: Its scores, in the order of the evaluators.
    """

    start_ns: int
    trajectory_id: str
    scores: Sequence[Score]


class ScoreSpool:
    """Writes the files of one worker.

    Attributes:
        reports: The report of each unit that is done.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._keys: IO[bytes] = (folder / f"keys-{number}").open("wb")
        self._groups: IO[bytes] = (folder / f"groups-{number}").open("wb")
        self._left = array("Q")
        self._lines: list[tuple[int, str, bytes]] = []
        self._size = self._files = 0
        self._count = 0
        self.reports: list[UnitReport] = []

    def add_group(self, group: TraceGroup, unit: int, keys: Iterable[GroupKey]) -> None:
        """Add the group with the next number."""
        for key in keys:
            self._keys.write(KEY_FORMAT.pack(*key))
        place = [group.traces, unit, group.first, group.last]
        self._groups.write(dumps_exact(place).encode() + b"\n")
        if group.is_left:
            self._left.append(self._count)
        self._count += 1

    def add_run(self, run: Trajectory, group: int, scores: Iterable[tuple[int, Score]]) -> None:
        """Add a run of a group, with the scores by the evaluators that have these places."""
        root = run.root_span
        found = [
            (order, one.time_ns, [getattr(one, name) for name in _PLAIN]) for order, one in scores
        ]
        line = dumps_exact([run.start_ns, run.id, group, root.trace_id, root.span_id, found])
        data = line.encode() + b"\n"
        self._lines.append((run.start_ns, run.id, data))
        self._size += len(data)
        if self._size >= _SORTED_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._lines.sort()
        with (self._folder / f"runs-{self._number}-{self._files}").open("wb") as file:
            file.writelines(data for _, _, data in self._lines)
        self._lines, self._size = [], 0
        self._files += 1

    def close(self) -> None:
        """Write the rest, and the report."""
        self._flush()
        self._keys.close()
        self._groups.close()
        (self._folder / f"left-{self._number}").write_bytes(self._left.tobytes())
        report = {"groups": self._count, "units": [asdict(one) for one in self.reports]}
        (self._folder / f"report-{self._number}").write_text(json.dumps(report))


class SpoolReader:
    """Reads the files of all workers.

    Args:
        folder: Their folder.
        workers: The number of workers.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder, self._workers = folder, range(workers)

    def is_complete(self) -> bool:
        """Return whether every worker has finished."""
        return all((self._folder / f"report-{number}").exists() for number in self._workers)

    def reports(self) -> list[list[UnitReport]]:
        """Return the reports of each worker."""
        return [
            [UnitReport(**one) for one in self._report(number)["units"]] for number in self._workers
        ]

    def group_count(self) -> int:
        """Return the number of all groups."""
        return sum(self._report(number)["groups"] for number in self._workers)

    def _report(self, worker: int) -> Any:
        return json.loads((self._folder / f"report-{worker}").read_bytes())

    def left(self) -> set[int]:
        """Return the groups that workers left to a store."""
        found: set[int] = set()
        for worker in self._workers:
            numbers = array("Q")
            numbers.frombytes((self._folder / f"left-{worker}").read_bytes())
            found.update(worker << _WORKER | number for number in numbers)
        return found

    def all_keys(self) -> Iterator[GroupKey]:
        """Yield the keys of all groups."""
        size = KEY_FORMAT.size * _KEYS_AT_ONCE
        for worker in self._workers:
            with (self._folder / f"keys-{worker}").open("rb") as file:
                while data := file.read(size):
                    for value, group, *rest in KEY_FORMAT.iter_unpack(data):
                        yield GroupKey(value, worker << _WORKER | group, *rest)

    def passes(self) -> int:
        """Return how often the keys are to be read, so that few are in memory at once."""
        size = sum((self._folder / f"keys-{worker}").stat().st_size for worker in self._workers)
        return 1 + size // (KEY_FORMAT.size * _PASS_KEYS)

    def places(self, groups: Collection[int]) -> Iterator[GroupPlace]:
        """Yield some groups."""
        for worker in self._workers:
            with (self._folder / f"groups-{worker}").open("rb") as file:
                for number, line in enumerate(file, worker << _WORKER):
                    if number in groups:
                        traces, *place = restore(line)
                        yield GroupPlace(number, traces, worker, *place)

    def runs(
        self, prepared: Sequence[PreparedEvaluator], without: Collection[int]
    ) -> Iterator[RunScores]:
        """Yield the scores of the runs by start.

        Args:
            prepared: The evaluators.
            without: Groups whose runs are left out.
        """
        files = [
            self._sorted(path, worker << _WORKER, prepared, without)
            for worker in self._workers
            for path in self._folder.glob(f"runs-{worker}-*")
        ]
        return heapq.merge(*files, key=lambda one: one[:2])

    def _sorted(
        self,
        path: Path,
        first: int,
        prepared: Sequence[PreparedEvaluator],
        without: Collection[int],
    ) -> Iterator[RunScores]:
        with path.open("rb") as file:
            for line in file:
                start_ns, name, group, trace_id, span_id, found = restore(line)
                if first + group not in without:
                    scores = [
                        _score(prepared[order], (name, trace_id, span_id), time_ns, values)
                        for order, time_ns, values in found
                    ]
                    yield RunScores(start_ns, name, scores)


def _score(
    one: PreparedEvaluator, names: tuple[str, str, str], time_ns: int, values: Sequence[Any]
) -> Score:
    scorer = one.scorer
    return Score(
        *names,
        scorer.name,
        scorer.version,
        sample_p=scorer.sample,
        time_ns=time_ns,
        **dict(zip(_PLAIN, values, strict=True)),
    )
