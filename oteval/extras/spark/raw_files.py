"""Files that are not Parquet, for executors to decode.

A small file is read whole, in any format of ``oteval ingest``. A large file of JSON is read as
lines, whose parts are decoded in different tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from .files import SourceFile, head_of
from .parquet_files import SALVAGE, read_exactly
from .telemetry import plain_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RawFiles", "raw_files", "union"]

_WHOLE_BYTES: Final = 32 << 20
"""The largest size of a file that is read whole."""
_MOST_BYTES: Final = 1 << 30
"""The largest size of a file without lines that a task reads whole."""
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


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
