"""Reports of files: the number of spans in them, and the parts that could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ingest import Problem
from ..model import WriteResult

__all__ = ["FileReport", "LoadReport"]

_MAX_PROBLEMS = 1000


@dataclass
class FileReport:
    """The result of loading one file.

    Attributes:
        path: The file.
        spans: The number of spans read.
        logs: The number of log records read.
        traceless_logs: How many log records have no trace id, so that no run can have them.
        runs: The number of exported runs read.
        written: How many of the items were new, and how many the store already had.
        problems: The first 1,000 parts that could not be read.
        problem_count: The number of all parts that could not be read.
        error: Why the file as a whole could not be read, or "".
    """

    path: str
    spans: int = 0
    logs: int = 0
    traceless_logs: int = 0
    runs: int = 0
    written: WriteResult = field(default_factory=WriteResult)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    error: str = ""

    def note(self, problems: Sequence[Problem], count: int | None = None) -> None:
        """Count problems, and keep the first 1,000.

        Args:
            problems: The problems.
            count: Their number, if not all of them are given.
        """
        self.problem_count += len(problems) if count is None else count
        self.problems.extend(problems[: max(0, _MAX_PROBLEMS - len(self.problems))])


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
        """How many of the items that were read are new in the store."""
        return sum(file.written.stored for file in self.files)

    @property
    def duplicate(self) -> int:
        """How many of the items that were read the store already had."""
        return sum(file.written.duplicate for file in self.files)

    @property
    def new_runs(self) -> int:
        """How many exported runs are new in the store."""
        return sum(file.written.runs for file in self.files)

    @property
    def bad(self) -> int:
        """The number of parts, including whole files, that could not be read."""
        return sum(file.problem_count + bool(file.error) for file in self.files)
