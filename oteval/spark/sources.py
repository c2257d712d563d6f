"""Read traces from files into rows of spans and log records, and from any table by its columns.

Parquet files are recognised by their columns: those of oteval (an export or the archive), and
ClickHouse's ``otel_traces`` and ``otel_logs``. All other files are read as by ``oteval ingest``: a
small one whole, in any of its formats, and a large one as lines of JSON, whose parts are decoded in
different tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import InputError
from ..ingest import clickhouse
from .columns import clickhouse_names
from .telemetry import LOGS, SPANS, TELEMETRY, decode_files, decode_lines, decode_tables, plain_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FileProblems", "Traces", "map_columns", "read_traces"]

_WHOLE_BYTES: Final = 32 << 20
"""The size up to which a file is read whole."""
_ZSTD_BYTES: Final = 1 << 30
# Parquet files that are alike but for a number or an id have the same columns, also in folders
# such as date=2026-11-20.
_NUMBER = re.compile(r"[-_.]?[0-9a-f-]*\d[0-9a-f-]*(?=\.)")
_PARTITION = re.compile(r"/[^/=]+=[^/]*")
_DERIVED = ("trajectories", "scores")

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
    """

    spans: DataFrame
    logs: DataFrame | None
    found: DataFrame | None = None

    def problems(self) -> list[FileProblems]:
        """Return the problems by file; Spark reads all traces for it."""
        if self.found is None:
            return []
        from pyspark.sql import functions as sql

        rows = self.found.groupBy("file").agg(sql.count("*"), sql.min("reason")).orderBy("file")
        return [FileProblems(*row) for row in rows.collect()]


class _File(NamedTuple):
    path: str
    size: int


def read_traces(session: SparkSession, paths: Sequence[str | Path]) -> Traces:
    """Read files of traces.

    Args:
        session: The Spark session.
        paths: Files, folders, or patterns such as ``traces/*.json``: paths of this machine that all
            executors have too, or addresses that Spark reads (``s3a://...``). In a folder, files
            whose names begin with ``.`` or ``_`` are left out.

    Raises:
        InputError: A path has no file, or a Parquet file has no spans or log records.
    """
    parquet: list[_File] = []
    others: list[_File] = []
    for file in _listed(session, paths):
        (parquet if file.path.endswith(".parquet") else others).append(file)
    parts = _parquet(session, parquet)
    if others:
        parts.append(_decoded(_raw(session, others)))
    if not any(part for part in parts):
        raise InputError(f"{', '.join(map(str, paths))}: no spans or log records in Parquet files")
    return _together(parts)


def map_columns(table: DataFrame, columns: Mapping[str, str], place: str = "the table") -> Traces:
    """Return the spans of a table with other columns.

    Args:
        table: A row for each span.
        columns: The column for each field of a span, a key of `oteval.spark.FIELDS`. ``start`` and
            ``end`` are timestamps, or numbers (ns); ``attributes`` and ``resource`` are maps,
            structs or JSON text.
        place: The name of the table in problems.

    Raises:
        InputError: A field or column does not exist, or a field is missing.
    """
    from pyspark.sql import functions as sql

    names = clickhouse_names(columns, table.columns)
    chosen = {name: sql.col(f"`{column}`") for name, column in names.items()}
    if "end" in columns:
        chosen["Duration"] = _ns(table, columns["end"]) - _ns(table, columns["start"])
    rows = table.select(*(column.alias(name) for name, column in chosen.items()))
    reported = {name: repr(column) for name, column in names.items()}
    return _decoded(_applied(rows, lambda batches: decode_tables(batches, place, reported)))


def _ns(table: DataFrame, column: str) -> Any:
    """Return a time in ns; Spark's timestamps have microseconds."""
    from pyspark.sql import functions as sql

    kind = table.schema[column].dataType.typeName()
    value = sql.col(f"`{column}`")
    if kind.startswith("timestamp"):
        return sql.unix_micros(value.cast("timestamp")) * 1000
    return value.cast("long")


def _listed(session: SparkSession, paths: Sequence[str | Path]) -> list[_File]:
    """Return all files, each once, by Hadoop's file systems."""
    assert session.sparkContext._jvm is not None
    hadoop: Any = session.sparkContext._jvm.org.apache.hadoop.fs
    settings = session.sparkContext._jsc.hadoopConfiguration()
    found: dict[str, _File] = {}
    for path in paths:
        text = str(path)
        # A path of this machine, whatever file system Spark takes by default.
        address = Path(text).absolute().as_uri() if Path(text).exists() else text
        place = hadoop.Path(address)
        try:
            system = place.getFileSystem(settings)
            roots = system.globStatus(place)
        except Exception as error:
            raise InputError(f"{text}: cannot be listed by Spark ({_first_line(error)})") from error
        files = sorted(file for root in roots or () for file in _below(system, root))
        if not files:
            raise InputError(f"{text}: no such file, or a folder without files")
        found.update((file.path, file) for file in files)
    return list(found.values())


def _below(system: Any, root: Any) -> Iterator[_File]:
    if root.isFile():
        yield _File(root.getPath().toString(), root.getLen())
        return
    base = root.getPath().toString()
    listing = system.listFiles(root.getPath(), True)
    while listing.hasNext():
        status = listing.next()
        path = status.getPath().toString()
        names = path.removeprefix(base).split("/")
        if status.getLen() and not any(name.startswith((".", "_")) for name in names):
            yield _File(path, status.getLen())


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "java_exception", None) or error)
    return text.splitlines()[0] if text else type(error).__name__


def _parquet(session: SparkSession, files: Sequence[_File]) -> list[Traces]:
    """Return the spans and log records of Parquet files."""
    alike: dict[str, list[str]] = {}
    for path, _ in files:
        folder, _, name = path.rpartition("/")
        alike_name = _NUMBER.sub("", name)
        if alike_name.split(".")[0] in _DERIVED:
            continue  # made from the spans, by `oteval export --parquet`
        key = f"{_PARTITION.sub('', folder)}/{alike_name}"
        alike.setdefault(key, []).append(path)
    return [_of_parquet(session, paths) for paths in alike.values()]


def _of_parquet(session: SparkSession, paths: Sequence[str]) -> Traces:
    """Return the content of Parquet files with the same columns."""
    from pyspark.sql import functions as sql

    table = session.read.option("mergeSchema", "true").parquet(*paths)
    names = frozenset(table.columns)
    kinds = [
        set(SPANS.names) <= names,
        set(LOGS.names) <= names,
        clickhouse.is_span(names),
        clickhouse.is_log(names),
    ]
    if not any(kinds):
        raise InputError(
            f"{paths[0]}: a Parquet file with the columns {', '.join(sorted(names)[:8])} has no "
            "spans or log records; in Python, oteval.spark.map_columns reads other columns"
        )
    if kinds.count(True) > 1:
        raise InputError(
            f"{paths[0]}: this file and others beside it have different columns; put spans and log "
            "records into separate folders"
        )
    if kinds[0] or kinds[1]:
        schema = SPANS if kinds[0] else LOGS
        rows = table.select(
            *(sql.col(f.name).cast(_spark_type(f.type)).alias(f.name) for f in schema)
        )
        return _stored_spans(table, rows) if kinds[0] else Traces(_empty(session), rows)
    used = [f"`{name}`" for name in table.columns if name in clickhouse.COLUMNS]
    rows = table.select(*used, sql.col("_metadata.file_path").alias("path"))
    place = paths[0]
    return _decoded(_applied(rows, lambda batches: decode_tables(batches, place)))


def _stored_spans(table: DataFrame, rows: DataFrame) -> Traces:
    """Return the rows of ``spans`` that have a trace, and the others as problems."""
    from pyspark.sql import functions as sql

    lost = table.where("trace_id IS NULL OR span_id IS NULL").select(
        sql.col("_metadata.file_path").alias("file"),
        sql.lit("a row without trace_id or span_id; skipped").alias("reason"),
    )
    return Traces(rows.where("trace_id IS NOT NULL AND span_id IS NOT NULL"), None, lost)


def _raw(session: SparkSession, files: Sequence[_File]) -> DataFrame:
    """Return rows of `TELEMETRY` of files that are not Parquet."""
    ranks = {plain_path(file.path): number for number, file in enumerate(files)}
    whole: list[str] = []
    lines: list[str] = []
    for path, size in files:
        is_zstd = path.endswith((".zst", ".zstd"))
        if is_zstd and size > _ZSTD_BYTES:
            raise InputError(
                f"{path}: Spark cannot split zstd, and {size:,} bytes are too many for one task; "
                "decompress it, or write smaller files"
            )
        (whole if is_zstd or size <= _WHOLE_BYTES else lines).append(path)
    tables = []
    if whole:
        chosen = set(whole)
        rows = session.read.format("binaryFile").load(whole).select("path", "content")
        # Whole files go to Python in one batch a task.
        size = sum(file.size for file in files if file.path in chosen)
        rows = rows.repartition(
            max(-(-size // _WHOLE_BYTES), session.sparkContext.defaultParallelism)
        )
        tables.append(_applied(rows, lambda batches: decode_files(batches, ranks)))
    if lines:
        rows = session.read.text(lines, lineSep="\n").select(
            "_metadata.file_path", "_metadata.file_block_start", "value"
        )
        tables.append(_applied(rows, lambda batches: decode_lines(batches, ranks)))
    return tables[0].unionByName(tables[1]) if len(tables) > 1 else tables[0]


def _applied(rows: DataFrame, decode: _Decode) -> DataFrame:
    """Return the rows of `TELEMETRY` that a function makes, kept on the executors' disks."""
    from pyspark import StorageLevel
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(TELEMETRY)
    return rows.mapInArrow(lambda batches: decode(batches), schema).persist(StorageLevel.DISK_ONLY)


def _decoded(rows: DataFrame) -> Traces:
    return Traces(
        rows.where("kind = 'span'").select("span.*"),
        rows.where("kind = 'log'").select("log.*"),
        rows.where("kind = 'problem'").select("problem.*"),
    )


def _together(parts: Sequence[Traces]) -> Traces:
    """Return the content of several sources."""
    spans, logs, found = (
        [table for table in tables if table is not None] for tables in zip(*parts, strict=True)
    )
    return Traces(*(_union(tables) for tables in (spans, logs, found)))


def _union(tables: Sequence[DataFrame]) -> Any:
    first, *others = tables or (None,)
    for table in others:
        assert first is not None
        first = first.unionByName(table)
    return first


def _empty(session: SparkSession) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(SPANS)
    return session.createDataFrame([], schema)


def _spark_type(kind: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind)
