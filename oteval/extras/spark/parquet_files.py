"""Parquet files of spans and log records, recognised by the columns that each file has.

Files with the same columns are read together. A file that is damaged, or has other columns, becomes
a problem, and the others are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ingest import clickhouse
from .failures import cause_of
from .files import SourceFile, read_footers
from .readable_rows import NEEDED_OF_LOGS, NEEDED_OF_SPANS
from .telemetry import LOGS, SPANS, plain_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SALVAGE", "ParquetTables", "parquet_tables", "read_exactly"]

SALVAGE = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
"""Options that read the part of a file before its damage, and nothing of a missing file."""
# Tables made from the spans by `oteval export --parquet`, such as scores-2.parquet.
_DERIVED = re.compile(r"(?:trajectories|scores)(?:[-_.]?[0-9a-f-]*\d[0-9a-f-]*)?\.")
# The share of its columns that identifies a table of oteval although others are missing.
_RECOGNISED = 0.5


class ParquetTables(NamedTuple):
    """The content of Parquet files, in tables of equal columns.

    Attributes:
        spans: Tables of `SPANS`, with the ``path`` and ``row`` of each row.
        logs: Tables of `LOGS`, with the same columns.
        by_table: Tables of ClickHouse, to decode, with the same; each with one of its files.
        faults: Why a file cannot be read, by its path.
        rows: The number of rows of each file that can be read.
    """

    spans: list[DataFrame]
    logs: list[DataFrame]
    by_table: list[tuple[DataFrame, str]]
    faults: dict[str, str]
    rows: dict[str, int]


def parquet_tables(
    session: SparkSession, files: Sequence[SourceFile], damaged: Mapping[str, str]
) -> ParquetTables:
    """The content of Parquet files.

    Args:
        session: The Spark session.
        files: The files.
        damaged: The files that are damaged, by the path that people write.
    """
    tables = ParquetTables([], [], [], {}, {})
    files = [file for file in files if not _DERIVED.match(file.path.rpartition("/")[2])]
    alike: dict[tuple[str, bool], list[str]] = {}
    for file, footer in zip(files, read_footers(session, files), strict=True):
        if footer.fault:
            tables.faults[file.path] = footer.fault
            continue
        tables.rows[file.path] = footer.rows
        alike.setdefault((footer.columns, plain_path(file.path) in damaged), []).append(file.path)
    for (_, is_damaged), paths in alike.items():
        fault = _add_table(session, paths, tables, SALVAGE if is_damaged else {})
        if fault:
            tables.faults.update(dict.fromkeys(paths, fault))
    return tables


def _add_table(
    session: SparkSession, paths: Sequence[str], tables: ParquetTables, options: Mapping[str, str]
) -> str:
    """Add the content of files with equal columns; return why they cannot be used, or ""."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        table = read_exactly(session, "parquet", paths, options)
    except (PySparkException, Py4JError) as error:
        return f"Spark cannot read its columns ({cause_of(error)})"
    names = frozenset(table.columns)
    if clickhouse.is_span(names) or clickhouse.is_log(names):
        used = [f"`{name}`" for name in table.columns if name in clickhouse.COLUMNS]
        tables.by_table.append((table.select(*used, *_places()), paths[0]))
        return ""
    schema, needed, stored = max(
        ((SPANS, NEEDED_OF_SPANS, tables.spans), (LOGS, NEEDED_OF_LOGS, tables.logs)),
        key=lambda candidate: _share(candidate[0], names),
    )
    if _share(schema, names) >= _RECOGNISED:
        fault = _misfit(table, schema, needed)
        if not fault:
            stored.append(_stored(table, schema))
        return fault
    shown_names = ", ".join(sorted(names)[:8])
    return (
        f"a Parquet file with the columns {shown_names} has no spans or log records; in Python, "
        "oteval.extras.spark.map_columns reads other columns"
    )


def read_exactly(
    session: SparkSession, kind: str, paths: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """The rows of files, whose names are not taken for patterns.

    Args:
        session: The Spark session.
        kind: The format of Spark.
        paths: The files.
        options: Options of the format.
    """
    reader = session.read.format(kind).options(**options).option("__globPaths__", "false")
    return reader.load(list(paths))


def _share(schema: pa.Schema, names: frozenset[str]) -> float:
    """How many of the columns of a schema there are."""
    return len(names.intersection(schema.names)) / len(schema.names)


def _misfit(table: DataFrame, schema: pa.Schema, needed: frozenset[str]) -> str:
    """How the columns of a table differ from the columns of oteval's table, or ""."""
    from pyspark.sql.types import BinaryType, IntegralType, StringType

    types = {field.name: field.dataType for field in table.schema}
    for field in schema:
        expected = _spark_type(field.type)
        if field.name not in types:
            if field.name in needed:
                return f"it has no column {field.name!r}"
            continue
        actual = types[field.name]
        if not any(
            isinstance(expected, kinds) and isinstance(actual, kinds)
            for kinds in ((IntegralType,), (StringType, BinaryType))
        ):
            return (
                f"its column {field.name!r} has the type {actual.simpleString()} instead of "
                f"{expected.simpleString()}"
            )
    return ""


def _stored(table: DataFrame, schema: pa.Schema) -> DataFrame:
    """The columns of oteval's table, and the ``path`` and ``row`` of each row."""
    from pyspark.sql import functions as sql

    return table.select(
        *(
            (sql.col(field.name) if field.name in table.columns else sql.lit(None))
            # A number that is too large becomes a missing number, and its trace has a gap.
            .try_cast(_spark_type(field.type))
            .alias(field.name)
            for field in schema
        ),
        *_places(),
    )


def _places() -> list[Any]:
    """The columns with the file of each row, and the number of the row in it."""
    from pyspark.sql import functions as sql

    return [
        sql.col("_metadata.file_path").alias("path"),
        sql.col("_metadata.row_index").alias("row"),
    ]


def _spark_type(kind: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind)
