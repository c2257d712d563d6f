"""Read traces from files into rows of spans and log records, and from any table by its columns.

Parquet files are recognised by the columns of oteval (an export or the archive), and of
ClickHouse's ``otel_traces`` and ``otel_logs``; see `parquet_files`. All other files are read as by
``oteval ingest``; see `raw_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.errors import InputError
from .columns import clickhouse_names, column_parts
from .damage import find_damage
from .files import SourceFile, list_files
from .parquet_files import parquet_tables
from .raw_files import raw_files, union
from .telemetry import SPANS, TELEMETRY, decode_files, decode_lines, decode_tables, plain_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FileProblems", "Traces", "map_columns", "read_files", "read_traces"]

_Decode = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class FileProblems(NamedTuple):
    """The parts of a file that could not be read, or were changed to be read.

    Attributes:
        file: The file, or the place of a table.
        parts: How many there are.
        reason: The reason for one of them.
    """

    file: str
    parts: int
    reason: str


class Traces(NamedTuple):
    """Traces that Spark reads when it needs them.

    Attributes:
        spans: Rows of the table ``spans``.
        logs: Rows of the table ``logs``; None without log records.
        found: The problems as a data frame; None if there cannot be any.
        cached: The data frames that are kept on the executors' disks once they were read.
    """

    spans: DataFrame
    logs: DataFrame | None
    found: DataFrame | None = None
    cached: tuple[DataFrame, ...] = ()

    def problems(self) -> list[FileProblems]:
        """The problems by file; Spark reads all traces for it."""
        if self.found is None:
            return []
        from pyspark.sql import functions as sql

        rows = self.found.groupBy("file").agg(sql.count("*"), sql.min("reason")).orderBy("file")
        return [FileProblems(*row) for row in rows.collect()]

    def release(self) -> None:
        """Remove the data frames of these traces from the executors' disks, and nothing else."""
        for frame in self.cached:
            frame.unpersist()


def read_traces(
    session: SparkSession, paths: Sequence[str | Path], *, check: bool = False
) -> Traces:
    """Read files of traces. A file that cannot be read is a problem, and the others are read.

    Args:
        session: The Spark session.
        paths: Files, folders, or patterns such as ``traces/*.json``: paths of this machine that all
            executors have too, or addresses that Spark reads (``s3a://...``). In a folder, files
            whose names begin with ``.`` or ``_`` are left out.
        check: Whether to read all files once, to find files that are damaged behind their
            beginning. These end a job otherwise. `score_files` does so if its first pass fails.

    Raises:
        InputError: A path has no file, or no file can be read.
    """
    files = list_files(session, paths)
    return read_files(session, files, find_damage(session, files) if check else {})


def read_files(
    session: SparkSession, files: Sequence[SourceFile], damaged: Mapping[str, str]
) -> Traces:
    """Read files of traces; see `read_traces`.

    Args:
        session: The Spark session.
        files: The files.
        damaged: The result of `find_damage`: of these files, only the part before the damage is
            read.

    Raises:
        InputError: No file can be read.
    """
    parquet = [file for file in files if file.is_parquet]
    text_files = [file for file in files if not file.is_parquet]
    tables = parquet_tables(session, parquet, damaged)
    raw = raw_files(session, text_files, damaged)
    parts = [_stored_spans(rows) for rows in tables.spans]
    parts += [Traces(_empty(session), rows.drop("path", "row")) for rows in tables.logs]
    parts += [_of_clickhouse(rows, table_name) for rows, table_name in tables.by_table]
    ranks = {plain_path(file.path): number for number, file in enumerate(text_files)}
    if raw.whole is not None:
        parts.append(_decoded(_applied(raw.whole, lambda batches: decode_files(batches, ranks))))
    if raw.lines is not None:
        parts.append(_decoded(_applied(raw.lines, lambda batches: decode_lines(batches, ranks))))
    faults = {plain_path(path): why for path, why in {**tables.faults, **raw.faults}.items()}
    if not parts and faults:
        path, reason = next(iter(faults.items()))
        raise InputError(f"{path}: {reason}")
    if not parts:
        raise InputError(f"{plain_path(files[0].path)}: no spans or log records in Parquet files")
    if problems := [*faults.items(), *damaged.items()]:
        noted = session.createDataFrame(problems, "file string, reason string")
        parts.append(Traces(_empty(session), None, noted))
    return _together(parts)


def map_columns(table: DataFrame, columns: Mapping[str, str], source: str = "the table") -> Traces:
    """The spans of a table with other columns.

    Args:
        table: A row for each span.
        columns: The column for each field of a span, a key of `spark.FIELDS`; a nested column
            as ``resource.attrs``. ``start`` and ``end`` are timestamps, or numbers (ns);
            ``attributes`` and ``resource`` are maps, structs or JSON text.
        source: The name of the table in problems.

    Raises:
        InputError: A field or column does not exist, or a field is missing.
    """
    names = clickhouse_names(columns)
    paths = {column: column_parts(field, column, table.schema) for field, column in columns.items()}
    chosen = {name: _column(paths[column]) for name, column in names.items()}
    if "end" in columns:
        start, end = (_ns(table, _column(paths[columns[field]])) for field in ("start", "end"))
        chosen["Duration"] = end - start
    rows = table.select(*(column.alias(name) for name, column in chosen.items()))
    reported = {name: repr(column) for name, column in names.items()}
    return _decoded(_applied(rows, lambda batches: decode_tables(batches, source, reported)))


def _column(parts: Sequence[str]) -> Column:
    """The column at the end of some names."""
    from pyspark.sql import functions as sql

    first, *inner_names = parts
    column = sql.col(f"`{first.replace('`', '``')}`")
    for name in inner_names:
        column = column.getItem(name)
    return column


def _ns(table: DataFrame, column: Column) -> Column:
    """A time in ns; Spark's timestamps have microseconds."""
    from pyspark.sql import functions as sql

    kind = table.select(column).schema[0].dataType.typeName()
    if kind.startswith("timestamp"):
        return sql.unix_micros(column.cast("timestamp")) * 1000
    return column.try_cast("long")


def _of_clickhouse(rows: DataFrame, source: str) -> Traces:
    rows = rows.drop("row")
    return _decoded(_applied(rows, lambda batches: decode_tables(batches, source)))


def _stored_spans(rows: DataFrame) -> Traces:
    """The rows of ``spans`` that have a trace, and the others as problems."""
    from pyspark.sql import functions as sql

    lost = rows.where("trace_id IS NULL OR span_id IS NULL").select(
        sql.col("path").alias("file"),
        sql.lit("a row without trace_id or span_id; skipped").alias("reason"),
    )
    identified = rows.where("trace_id IS NOT NULL AND span_id IS NOT NULL")
    return Traces(identified.drop("path", "row"), None, lost)


def _applied(rows: DataFrame, decode: _Decode) -> DataFrame:
    """The rows of `TELEMETRY` that a function makes, kept on the executors' disks."""
    from pyspark import StorageLevel
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(TELEMETRY)
    return rows.mapInArrow(lambda batches: decode(batches), schema).persist(StorageLevel.DISK_ONLY)


def _decoded(rows: DataFrame) -> Traces:
    return Traces(
        rows.where("kind = 'span'").select("span.*"),
        rows.where("kind = 'log'").select("log.*"),
        rows.where("kind = 'problem'").select("problem.*"),
        (rows,),
    )


def _together(parts: Sequence[Traces]) -> Traces:
    """The content of several sources."""
    spans = union([part.spans for part in parts])
    assert spans is not None
    return Traces(
        spans,
        union([part.logs for part in parts if part.logs is not None]),
        union([part.found for part in parts if part.found is not None]),
        tuple(frame for part in parts for frame in part.cached),
    )


def _empty(session: SparkSession) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(SPANS)
    return session.createDataFrame([], schema)
