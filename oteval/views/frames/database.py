"""A database to read in Python: its tables, its runs and its experiments."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from ...model import Trajectory
from ...scoring import (
    Comparison,
    ExperimentResults,
    compare as compare_experiments,
    database_paths,
    load_experiment,
    open_databases,
)
from ...store import Relation, RowTables, Store
from .frame import Frame
from .rows import schema_of

__all__ = ["Database", "open"]

_DEFAULT = "oteval.duckdb"
# Rows are read once, page by page, so that DuckDB need not keep those of earlier pages.
_MEMORY_LIMIT = "128MB"


def open(*paths: str | Path) -> Database:  # noqa: A001  read as oteval.open
    """A database, or several as one, to read in Python.

    The files are open only while rows are read, so that commands can write meanwhile. A database
    that a server has open is read through the server.

    Args:
        *paths: Database files, folders of databases, or folders of results of Spark; by default
            the path in ``OTEVAL_DB``, or else ``oteval.duckdb``, as on the command line.

    Raises:
        InputError: A folder has no database.
    """
    names = [str(path) for path in paths] or [os.environ.get("OTEVAL_DB", _DEFAULT)]
    return Database(database_paths(names, _warn))


class Database:
    """A database to read in Python; see `oteval.open`.

    Each table is a `Frame`: lazy, filtered with `Frame.where`, and read as rows, as a data frame of
    pandas or polars, as a table of Arrow, or as a relation of DuckDB.

    Attributes:
        paths: The files and folders.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        self._lock = threading.Lock()
        self._opened: Store | None = None
        self._readers = 0
        self._closing = ExitStack()

    def runs(self) -> Frame:
        """The runs, with the columns of ``--where``."""
        return Frame("runs", self)

    def messages(self) -> Frame:
        """The messages of runs, without those of earlier turns."""
        return Frame("messages", self)

    def calls(self) -> Frame:
        """The tool calls of runs, with their results."""
        return Frame("calls", self)

    def scores(self, *evaluators: str) -> Frame:
        """The current scores of runs: the newest of each evaluator.

        Args:
            *evaluators: Only scores of these evaluators.
        """
        return Frame("scores", self, names=evaluators)

    def experiments(self, *names: str) -> Frame:
        """The results of experiments: a row for each run and result.

        A filter selects results of runs whose trajectories are stored.

        Args:
            *names: Only these experiments; a prefix means the newest one with it.
        """
        return Frame("experiments", self, names=names)

    def labels(self) -> Frame:
        """The labels that people gave runs."""
        return Frame("labels", self)

    def run(self, name: str) -> Trajectory:
        """The run whose id is, or begins with, a name; or else the run of a trace.

        Raises:
            NotFound: No run, or several, have the name.
        """
        with self.reading() as store:
            return store.trajectories.get(name)

    def experiment(self, name: str) -> ExperimentResults:
        """The results of an experiment.

        Args:
            name: Its name or id, or a prefix for the newest experiment with it.

        Raises:
            NotFound: The experiment does not exist.
        """
        with self.reading() as store:
            return load_experiment(name, store)

    def compare(self, before: str, after: str) -> Comparison:
        """The comparison of two experiments, as of ``oteval compare``.

        Args:
            before: The name of the baseline.
            after: The name of the other experiment.

        Raises:
            NotFound: The experiment does not exist.
            NothingEvaluated: They have no score of the same example.
        """
        with self.reading() as store:
            return compare_experiments(before, after, store=store)

    @contextmanager
    def reading(self) -> Iterator[Store]:
        """Open the database for a block; blocks may be nested, and run in several threads.

        Raises:
            StoreError: It cannot be opened; the subclass says why.
        """
        with self._lock:
            if self._opened is None:
                self._opened = self._closing.enter_context(open_databases(self.paths, _warn))
                self._opened.set_memory_limit(_MEMORY_LIMIT)
            store = self._opened.sibling()
            self._readers += 1
        try:
            with store:
                yield store
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    self._opened = None
                    self._closing.close()

    def relation(self, frame: Frame) -> Relation:
        """Copy a frame to a table of DuckDB; see `Frame.relation`."""
        return self._tables.add(frame.table, schema_of(frame.table), frame.to_batches())

    @cached_property
    def _tables(self) -> RowTables:
        return RowTables()

    def __repr__(self) -> str:
        """The paths; nothing is read."""
        return f"oteval.open({', '.join(map(repr, self.paths))})"


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
