"""Scores that wait to be written together, in the order of their runs.

Some scores of a page are made before the scores of earlier runs, which have to be read first. The
scores are still written in the order of the runs, because monitors read them in the order of
storage.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc

from ..model import Score
from ..store import Store, score_rows

__all__ = ["ScoreWriter"]

_SECONDS = 5.0


class ScoreWriter:
    """Writes scores to a store in batches, by their positions.

    Attributes:
        reached: The highest position that is finished. Rows after it wait.
    """

    def __init__(self, store: Store, size: int) -> None:
        self._store, self._size = store, size
        self._scores: list[tuple[int, Score]] = []
        self._waiting: list[pa.Table] = []
        self._time = time.monotonic()
        self.reached = -1

    def add(self, score: Score, position: int) -> None:
        """Add a score, which finishes its position."""
        self.reached = position
        self._scores.append((position, score))
        if len(self._scores) >= self._size or time.monotonic() - self._time > _SECONDS:
            self.flush()

    def add_rows(self, rows: pa.Table) -> None:
        """Add rows of scores with the column ``position``."""
        if len(rows):
            self._waiting.append(rows)

    def flush(self) -> None:
        """Write the scores up to the position that is reached."""
        written = []
        if self._scores:
            positions = pa.array([position for position, _ in self._scores], pa.int64())
            rows = score_rows([score for _, score in self._scores])
            written.append(rows.append_column("position", positions))
        for rows in self._waiting:
            written.append(rows.filter(pc.less_equal(rows["position"], self.reached)))
        if written:
            rows_to_write = pa.concat_tables(
                rows.select(written[0].column_names) for rows in written
            )
            if len(rows_to_write):
                self._store.scores.append(
                    rows_to_write.sort_by("position").drop_columns(["position"])
                )
        waiting = [
            rows.filter(pc.greater(rows["position"], self.reached)) for rows in self._waiting
        ]
        self._waiting = [rows for rows in waiting if len(rows)]
        self._scores, self._time = [], time.monotonic()
