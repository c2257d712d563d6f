"""Read traces from files into rows of spans and log records, and from any table by its columns.

Parquet files are recognised by the columns of oteval (an export or the archive), and of
ClickHouse's ``otel_traces`` and ``otel_logs``; see `parquet_files`. All other files are read as by
``oteval ingest``: a small file whole, in any format; a large file of JSON as lines, whose parts are
decoded in different tasks.

Files with a wrong format or without a Parquet footer are found before a job. Damage inside a file
ends the job. Then all files are read once: tasks pass over damage and count rows, and a Parquet
file with too few is damaged. Files of lines are read until none fails. Files without damage are
never read like this, so a network that fails for a moment loses nothing silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...base.errors import InputError
from .columns import clickhouse_names, column_parts
from .failures import cause_of, unreadable_file
from .files import SourceFile, head_of, list_files
from .parquet_files import SALVAGE, parquet_tables, read_exactly
from .telemetry import SPANS, TELEMETRY, decode_files, decode_lines, decode_tables, plain_path

__all__ = [
    "FileProblems",
    "Traces",
    "damage_of",
    "find_damage",
    "map_columns",
    "raw_files",
    "read_files",
    "read_traces",
]

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession


_Decode = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_WHOLE_BYTES: Final = 32 << 20
"""The largest size of a file that is read whole."""
_MOST_BYTES: Final = 1 << 30
"""The largest size of a file without lines that a task reads whole."""
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


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


class RawFiles(NamedTuple):
    """Files that are not Parquet.

    Attributes:
        whole: The ``path`` and ``content`` of each small file; None without one.
        lines: The ``file_path``, ``file_block_start`` and ``value`` of each line of large files;
            None without one.
        faults: Why a file cannot be read, by its path.
        whole_files: The files of `whole`.
    """

    whole: DataFrame | None
    lines: DataFrame | None
    faults: dict[str, str]
    whole_files: tuple[SourceFile, ...]


def raw_files(
    session: SparkSession, files: Sequence[SourceFile], damaged: Mapping[str, str]
) -> RawFiles:
    """The content of files.

    Args:
        session: The Spark session.
        files: The files.
        damaged: The files that are damaged, by the path that people write.
    """
    whole_files: list[SourceFile] = []
    lines: list[SourceFile] = []
    faults: dict[str, str] = {}
    for file in files:
        if not file.size:
            faults[file.path] = "the file is empty"
        elif file.size > _WHOLE_BYTES and _has_lines(session, file):
            lines.append(file)
        elif file.size <= _MOST_BYTES:
            whole_files.append(file)
        else:
            faults[file.path] = (
                f"only lines of JSON can be divided, and {file.size:,} bytes are too many for a "
                "task; write smaller files"
            )
    parts_of_lines = [
        read_exactly(session, "text", paths, {"lineSep": "\n", **options}).select(
            "_metadata.file_path", "_metadata.file_block_start", "value"
        )
        for paths, options in _by_damage(lines, damaged)
    ]
    parts_of_whole = [
        read_exactly(session, "binaryFile", paths, options).select("path", "content")
        for paths, options in _by_damage(whole_files, damaged)
    ]
    whole_rows = union(parts_of_whole)
    if whole_rows is not None:
        # Whole files go to Python in one batch a task.
        tasks = -(-sum(file.size for file in whole_files) // _WHOLE_BYTES)
        whole_rows = whole_rows.repartition(max(tasks, session.sparkContext.defaultParallelism))
    return RawFiles(whole_rows, union(parts_of_lines), faults, tuple(whole_files))


def union(tables: Sequence[DataFrame]) -> DataFrame | None:
    """The rows of all tables, which have the same columns; None without a table."""
    first, *further = tables or (None,)
    for table in further:
        assert first is not None
        first = first.unionByName(table)
    return first


def _has_lines(session: SparkSession, file: SourceFile) -> bool:
    """Whether a file is JSON, or gzip that Spark decompresses by its name."""
    head = head_of(session, file)
    if head.startswith(_GZIP):
        return file.path.endswith(".gz")
    return head.removeprefix(_BOM).lstrip().startswith((b"{", b"["))


def _by_damage(
    files: Sequence[SourceFile], damaged: Mapping[str, str]
) -> list[tuple[list[str], Mapping[str, str]]]:
    """The whole files and the damaged files, with the options to read them."""
    good = [file.path for file in files if plain_path(file.path) not in damaged]
    bad = [file.path for file in files if plain_path(file.path) in damaged]
    return [(paths, options) for paths, options in ((good, {}), (bad, SALVAGE)) if paths]


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
