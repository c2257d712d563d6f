"""A folder of results with the runs and scores of a store, as a Spark job writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from oteval.store import RESULTS, Store


def write_results(store: Store, folder: Path) -> None:
    """Write the trajectories and scores of a store, each in two files."""
    tables = {}
    for name, batches in (
        ("trajectories", store.trajectories.export()),
        ("scores", store.scores.export()),
    ):
        table = pa.Table.from_batches(list(batches))
        half = len(table) // 2
        files = []
        for number, part in enumerate((table.slice(0, half), table.slice(half))):
            file = f"{name}/date=2026-11-2{number}/part.parquet"
            (folder / "results-1" / file).parent.mkdir(parents=True)
            pq.write_table(part, folder / "results-1" / file)
            files.append(file)
        tables[name] = {"files": files, "rows": len(table)}
    found = {"format": 1, "folder": "results-1", "tables": tables}
    (folder / RESULTS).write_text(json.dumps(found))
