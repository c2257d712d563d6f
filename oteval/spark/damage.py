"""Find the files that end a job because they are damaged behind their beginning.

Files with a wrong format or without a Parquet footer are found before a job. Damage inside a file
shows only when it is read. Then all files are read once, by tasks that pass over damage, and their
rows are counted: a file with too few is damaged. Files without damage are never read in that way,
so a network that fails for a moment loses nothing silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .failures import cause_of, unreadable_file
from .files import list_files
from .parquet_files import parquet_tables
from .raw_files import raw_files
from .telemetry import plain_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["find_damage"]


def find_damage(
    session: SparkSession, paths: Sequence[str | Path], error: Exception
) -> dict[str, str]:
    """Return the files that cannot be read to their end, each with the reason.

    Args:
        session: The Spark session.
        paths: The paths that were read.
        error: The failure of a job. If it does not come from a file, the result is empty.
    """
    named = unreadable_file(error)
    if named is None:
        return {}
    files = list_files(session, paths)
    names = {plain_path(file.path): "" for file in files}
    tables = parquet_tables(session, [f for f in files if f.path.endswith(".parquet")], names)
    raw = raw_files(session, [f for f in files if not f.path.endswith(".parquet")], names)
    counts: dict[str, int] = {}
    for frame in (*tables.spans, *tables.logs, *(frame for frame, _ in tables.others)):
        counts |= _rows_read(frame)
    damage: dict[str, str] = {}
    for path, rows in tables.rows.items():
        lost = rows - counts.get(plain_path(path), 0)
        if lost > 0 and path not in tables.faults:
            damage[plain_path(path)] = f"{lost:,} of its {rows:,} rows are lost"
    if raw.whole is not None:
        # The length makes Spark read the content.
        contents = raw.whole.selectExpr("path", "length(content)").collect()
        readable = {plain_path(path) for path, _ in contents}
        missing = [file for file in raw.whole_files if plain_path(file.path) not in readable]
        damage |= dict.fromkeys((plain_path(file.path) for file in missing), "it cannot be opened")
    spellings = (plain_path(named, is_quoted=True), plain_path(named))
    culprit = next((spelling for spelling in spellings if spelling in names), spellings[0])
    reason = cause_of(error).removeprefix(f"{named}: ")
    damage[culprit] = f"{damage.get(culprit, 'it cannot be read to its end')} ({reason})"
    return damage


def _rows_read(frame: DataFrame) -> dict[str, int]:
    """Return the number of rows of each file; all their columns are read.

    Rows are counted by their numbers, because Spark may give the rows before the damage twice.
    """
    from pyspark.sql import functions as sql

    numbers = frame.mapInArrow(_numbers, "path string, row long")
    counted = numbers.groupBy("path").agg(sql.count_distinct("row"))
    return {plain_path(path, is_quoted=True): rows for path, rows in counted.collect()}


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.select(["path", "row"]) for batch in batches)
