"""Export trajectories, scores, spans and log records for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from ..base.errors import InputError
from ..base.files import make_folder, open_private
from ..base.jsontext import dumps
from ..base.text import printable_json
from ..model import EVERYTHING, Score, Selection, Trajectory
from ..store import Store, is_short_of_memory

__all__ = ["export_jsonl", "export_parquet", "scored_trajectories"]

# Trajectories whose scores are looked up together: on the first page, and on later pages. A look-up
# reads the ids of all stored scores, so small pages would take time quadratic in the runs.
_FIRST_PAGE, _PAGE = 500, 8_000


def scored_trajectories(
    store: Store, selection: Selection = EVERYTHING
) -> Iterator[tuple[Trajectory, list[Score]]]:
    """Yield trajectories by start, each with the newest score of each evaluator."""
    for number, keys in enumerate(store.trajectories.keys(selection, _PAGE)):
        parts = (keys,) if number else (keys.slice(0, _FIRST_PAGE), keys.slice(_FIRST_PAGE))
        for part in filter(len, parts):
            scores = store.scores.of(part["trajectory_id"].to_pylist())
            for trajectory in store.trajectories.at(part):
                yield trajectory, scores[trajectory.id]


def export_jsonl(store: Store, out: IO[str], selection: Selection = EVERYTHING) -> int:
    """Write trajectories with their scores, one JSON object per line.

    An object has the keys of ``oteval trajectories --json``, and ``scores``.

    Args:
        store: The store.
        out: The text stream to write to.
        selection: The trajectories to export.

    Returns:
        The number of lines written.
    """
    count = 0
    for trajectory, scores in scored_trajectories(store, selection):
        count += 1
        own = [score.as_dict() for score in scores]
        text = dumps({**trajectory.as_dict(), "scores": own})
        out.write(printable_json(text) + "\n")
    return count


def export_parquet(store: Store, folder: Path) -> dict[str, int]:
    """Write spans, log records, trajectories and scores to Parquet files (zstd) in a folder.

    Returns:
        The number of rows written, by file name.

    Raises:
        InputError: The folder cannot be written.
    """
    # Queries start one after the other: each takes memory until its rows are written.
    parts = {
        "spans.parquet": store.spans.export,
        "logs.parquet": store.spans.export_logs,
        "trajectories.parquet": store.trajectories.export,
        "scores.parquet": store.scores.export,
    }
    try:
        make_folder(folder)
        return {name: _written(store, folder / name, read) for name, read in parts.items()}
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _written(store: Store, path: Path, read: Callable[[], pa.RecordBatchReader]) -> int:
    """Write rows to a file; start again with more memory if DuckDB has too little."""
    while True:
        try:
            return _write(path, read())
        except Exception as error:
            if not is_short_of_memory(error) or not store.raise_memory_limit(2):
                raise


def _write(path: Path, batches: pa.RecordBatchReader) -> int:
    """Write batches to a file, which appears only once it is complete."""
    partial = path.with_suffix(".partial")
    count = 0
    with (
        open_private(partial) as file,
        pq.ParquetWriter(file, batches.schema, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    partial.replace(path)
    return count
