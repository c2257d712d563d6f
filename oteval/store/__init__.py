"""Spans, trajectories and scores in DuckDB: the only stage with SQL.

Rows are only ever added. A `Store` is what others use; its parts each hold one kind of thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from .connection import BUFFERS, FEW_BUFFERS, MEMORY, connect
from .matching import Matching
from .pending import Pending, Range
from .references import References
from .scores import Scores
from .spans import Spans, Written
from .trajectories import Trajectories

__all__ = ["MEMORY", "Range", "Store", "Written"]


class Store:
    """An oteval database.

    Attributes:
        spans: Spans and log records.
        pending: What is still to be reconstructed.
        trajectories: Trajectories.
        matching: Matching them in SQL.
        scores: Scores.
        references: References by name.
    """

    def __init__(self, path: str | Path = MEMORY, *, create: bool = True) -> None:
        """Open a database, and bring it to the newest schema.

        Args:
            path: Its file, or ":memory:".
            create: Whether to make the file when it is not there.

        Raises:
            StoreError: It cannot be used; the subclass says why.
        """
        self.path = str(path)
        self._connection = connect(path, create=create)
        self.spans = Spans(self._connection)
        self.pending = Pending(self._connection)
        self.trajectories = Trajectories(self._connection)
        self.matching = Matching(self._connection)
        self.scores = Scores(self._connection)
        self.references = References(self._connection)

    @contextmanager
    def few_buffers(self) -> Iterator[None]:
        """Keep DuckDB's memory small while much is written that is not read again soon."""
        if self.path == MEMORY:
            yield
            return
        self._connection.execute(f"SET memory_limit = '{FEW_BUFFERS}'")
        try:
            yield
        finally:
            self._connection.execute(f"SET memory_limit = '{BUFFERS}'")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def __enter__(self) -> Store:
        """Return the store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the database."""
        self.close()
