"""Find the files that end a job because they are damaged behind their beginning.

Files with a wrong format or without a Parquet footer are found before a job. Damage inside a file
shows only when it is read. Here all files are read once. Tasks pass over damage and count rows: a
Parquet file with too few is damaged. Files of lines are read until none fails. Files without damage
are never read like this, so a network that fails for a moment loses nothing silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from .failures import cause_of, unreadable_file
from .files import SourceFile
from .parquet_files import parquet_tables
from .raw_files import raw_files
from .telemetry import plain_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["damage_of", "find_damage"]


def find_damage(session: SparkSession, files: Sequence[SourceFile]) -> dict[str, str]:
    """The files that cannot be read to their end, each with the reason.

    Args:
        session: The Spark session.
        files: The files.
    """
    text_files = [file for file in files if not file.is_parquet]
    damage = _damaged_parquet(session, [file for file in files if file.is_parquet])
    names = {plain_path(file.path): "" for file in text_files}
    raw = raw_files(session, text_files, names)
    if raw.whole is not None:
        # The length makes Spark read the content.
        contents = raw.whole.selectExpr("path", "length(content)").collect()
        readable = {plain_path(path) for path, _ in contents}
        missing = {plain_path(file.path) for file in raw.whole_files} - readable
        damage |= dict.fromkeys(sorted(missing), "it cannot be opened")
    return damage | _damaged_lines(session, text_files)


def damage_of(error: Exception, files: Sequence[SourceFile]) -> dict[str, str]:
    """The file that a job failed to read, with the reason; none for another failure."""
    damaged_path = unreadable_file(error)
    if damaged_path is None:
        return {}
    names = {plain_path(file.path) for file in files}
    spellings = (plain_path(damaged_path, is_quoted=True), plain_path(damaged_path))
    culprit = next((spelling for spelling in spellings if spelling in names), spellings[0])
    reason = cause_of(error).removeprefix(f"{damaged_path}: ")
    return {culprit: f"it cannot be read to its end ({reason})"}


def _damaged_parquet(session: SparkSession, files: Sequence[SourceFile]) -> dict[str, str]:
    """The Parquet files with fewer rows than their footers declare."""
    tables = parquet_tables(session, files, {plain_path(file.path): "" for file in files})
    counts: dict[str, int] = {}
    for frame in (*tables.spans, *tables.logs, *(frame for frame, _ in tables.by_table)):
        counts |= _rows_read(frame)
    damage: dict[str, str] = {}
    for path, rows in tables.rows.items():
        lost = rows - counts.get(plain_path(path), 0)
        if lost > 0 and path not in tables.faults:
            damage[plain_path(path)] = f"{lost:,} of its {rows:,} rows are lost"
    return damage


def _damaged_lines(session: SparkSession, files: Sequence[SourceFile]) -> dict[str, str]:
    """The files of lines that end a job: they are read until none does."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    damage: dict[str, str] = {}
    while True:
        lines = raw_files(session, files, damage).lines
        try:
            if lines is not None:
                lines.selectExpr("sum(length(value))").collect()
            return damage
        except (PySparkException, Py4JError) as error:
            new_damage = damage_of(error, files)
            if not new_damage.keys() - damage.keys():
                raise
            damage |= new_damage


def _rows_read(frame: DataFrame) -> dict[str, int]:
    """The number of rows of each file; all their columns are read.

    Rows are counted by their numbers, because Spark may return the rows before the damage twice.
    """
    from pyspark.sql import functions as sql

    numbers = frame.mapInArrow(_numbers, "path string, row long")
    counted = numbers.groupBy("path").agg(sql.count_distinct("row"))
    return {plain_path(path, is_quoted=True): rows for path, rows in counted.collect()}


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.select(["path", "row"]) for batch in batches)
