"""Export trajectories, scores, spans and log records for other tools."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError
from ..jsontext import dumps
from ..selection import EVERYTHING, Selection
from ..store import Store
from ..text import printable_json

__all__ = ["export_jsonl", "export_parquet"]

_PAGE = 1000


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
    trajectories = store.trajectories.read(selection)
    while page := list(islice(trajectories, _PAGE)):
        scores = store.scores.of([trajectory.id for trajectory in page])
        for trajectory in page:
            own = [score.as_dict() for score in scores[trajectory.id]]
            text = dumps({**trajectory.as_dict(), "scores": own})
            out.write(printable_json(text) + "\n")
        count += len(page)
    return count


def export_parquet(store: Store, folder: Path) -> dict[str, int]:
    """Write spans, log records, trajectories and scores to Parquet files (zstd) in a folder.

    Returns:
        The number of rows written, by file name.

    Raises:
        InputError: The folder cannot be written.
    """
    parts = {
        "spans.parquet": store.spans.export(),
        "logs.parquet": store.spans.export_logs(),
        "trajectories.parquet": store.trajectories.export(),
        "scores.parquet": store.scores.export(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return {name: _write(folder / name, batches) for name, batches in parts.items()}
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _write(path: Path, batches: pa.RecordBatchReader) -> int:
    """Write batches to a file, which appears only once it is complete."""
    partial = path.with_suffix(".partial")
    count = 0
    with pq.ParquetWriter(partial, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    partial.replace(path)
    return count
