"""Rows of spans and log records from files and from other tables, decoded on the executors.

One table has rows of three kinds: a span, a log record, or a problem. A problem is a part of a file
that could not be read, or was changed to be read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from ...base.errors import InputError
from ...ingest import Decoded, decode_rows, read_stream
from ...store import LOG_SCHEMA, SPAN_SCHEMA, log_table, span_table

__all__ = [
    "LOGS",
    "SPANS",
    "TELEMETRY",
    "decode_files",
    "decode_lines",
    "decode_tables",
    "plain_path",
]


def _signed(schema: pa.Schema) -> pa.Schema:
    """A schema without unsigned numbers, which Spark does not have."""
    small = (pa.uint8(), pa.int32())
    return pa.schema([f.with_type(small[1]) if f.type == small[0] else f for f in schema])


SPANS: Final = _signed(SPAN_SCHEMA)
LOGS: Final = LOG_SCHEMA
_PROBLEM = pa.schema([("file", pa.string()), ("reason", pa.string())])
_PARTS = {"span": SPANS, "log": LOGS, "problem": _PROBLEM}
TELEMETRY: Final = pa.schema(
    [("kind", pa.string()), *((name, pa.struct(list(part))) for name, part in _PARTS.items())]
)
"""The rows: ``kind`` is the name of the only column with a value."""

# The ids of rows: so many files, each with so many bytes or rows.
_FILE_STEP = 1 << 40
_RUN = "a run of oteval export --jsonl has no spans; skipped"


def decode_files(
    batches: Iterable[pa.RecordBatch], ranks: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `TELEMETRY` for whole files in any format that `oteval.ingest` reads.

    Args:
        batches: The columns ``path`` and ``content`` of each file.
        ranks: The position of each file among all files. Of repeated spans, the first counts.
    """
    for batch in batches:
        for path, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            name = plain_path(path)
            yield from _decoded(name, content, ranks[name] * _FILE_STEP)


def decode_lines(
    batches: Iterable[pa.RecordBatch], ranks: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `TELEMETRY` for lines of JSON.

    Args:
        batches: The columns ``path``, ``start`` and ``value`` of each line: its file, the offset of
            the block that it is in (bytes), and the line.
        ranks: The position of each file among all files. Of repeated spans, the first counts.
    """
    block, count = ("", -1), 0
    for batch in batches:
        lines = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for key, members in groupby(lines, lambda line: (line[0], line[1])):
            path, start = key
            if key != block:
                block, count = key, 0
            text = b"\n".join(_bytes(line[2]) for line in members)
            if not text.strip():
                continue
            name = plain_path(path, is_quoted=True)
            # A span takes more than a byte, so blocks of a file have different numbers.
            for rows in _decoded(name, text, ranks[name] * _FILE_STEP + start + count):
                count += rows.num_rows
                yield rows


def decode_tables(
    batches: Iterable[pa.RecordBatch], source: str, renamed: Mapping[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `TELEMETRY` for rows of ClickHouse's ``otel_traces`` or ``otel_logs``.

    Args:
        batches: The rows. A column ``path`` has the file of each.
        source: The place of rows without a file, for problems.
        renamed: The names in problems of columns that were renamed.
    """
    for batch in batches:
        paths = [source] * batch.num_rows
        if "path" in batch.schema.names:
            paths = [
                plain_path(path or source, is_quoted=True)
                for path in batch.column("path").to_pylist()
            ]
            batch = batch.drop_columns(["path"])
        for decoded in _decoded_rows(batch):
            for problem in decoded.problems:
                row, _, reason = problem.removeprefix("row ").partition(": ")
                yield from _rows(paths[int(row)], Decoded(problems=[_renamed(reason, renamed)]), 0)
            yield from _rows(source, Decoded(decoded.spans, decoded.logs), 0)


def _decoded_rows(batch: pa.RecordBatch) -> Iterator[Decoded]:
    """Yield the content of rows; if they cannot be decoded together, the content of each row."""
    try:
        yield decode_rows(batch, 0)
    except Exception:
        for row in range(batch.num_rows):
            try:
                yield decode_rows(batch.slice(row, 1), row)
            except Exception as error:
                yield Decoded(problems=[f"row {row}: cannot be decoded ({error!r}); row skipped"])


def plain_path(address: str, *, is_quoted: bool = False) -> str:
    """The path of a local file, or the address of another one, as people write it.

    Args:
        address: An address of Hadoop.
        is_quoted: Whether special characters are quoted, as in Spark's ``_metadata.file_path``.
    """
    address = unquote(address) if is_quoted else address
    local = re.fullmatch(r"file:/+(.*)", address, re.DOTALL)
    return f"/{local[1]}" if local else address


def _renamed(problem: str, names: Mapping[str, str] | None) -> str:
    for column, source_name in (names or {}).items():
        problem = problem.replace(column, source_name)
    return problem


def _bytes(line: str | bytes) -> bytes:
    return line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")


def _decoded(path: str, content: bytes, first: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a text or a file, numbered from `first` on."""
    problems: set[str] = set()
    try:
        for batch in read_stream(io.BytesIO(content), path):
            decoded = Decoded(batch.spans, batch.logs)
            decoded.problems = [problem.reason for problem in batch.problems] + [_RUN] * len(
                batch.runs
            )
            problems.update(decoded.problems)
            for rows in _rows(path, decoded, first):
                first += rows.num_rows
                yield rows
    except InputError as error:
        # Nothing can be read; its first problem may be among the problems of a batch before.
        if not problems:
            yield from _rows(path, Decoded(problems=[_cause(path, str(error))]), first)
    except Exception as error:
        # One file never ends the job, whatever a decoder makes of it.
        yield from _rows(path, Decoded(problems=[f"cannot be decoded ({error!r})"]), first)


def _cause(path: str, text: str) -> str:
    """The text of an error without the place before it and the list of formats after it."""
    return re.sub(r"^(:\d+)?: ", "", text.removeprefix(path)).split("; supported are ")[0]


def _rows(path: str, decoded: Decoded, first: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of decoded content."""
    makers: tuple[tuple[str, Callable[[], pa.Table]], ...] = (
        ("span", lambda: span_table(decoded.spans, first).cast(SPANS)),
        ("log", lambda: log_table(decoded.logs, first + len(decoded.spans))),
        ("problem", lambda: _problems(path, decoded.problems)),
    )
    for (kind, make), items in zip(
        makers, (decoded.spans, decoded.logs, decoded.problems), strict=True
    ):
        if items:
            yield from _tagged(kind, make())


def _problems(path: str, reasons: list[str]) -> pa.Table:
    columns: list[Any] = [[path] * len(reasons), reasons]
    return pa.table(columns, _PROBLEM)


def _tagged(kind: str, table: pa.Table) -> Iterator[pa.RecordBatch]:
    fields = list(_PARTS[kind])
    for batch in table.to_batches():
        columns = {name: pa.nulls(len(batch), TELEMETRY.field(name).type) for name in _PARTS}
        columns[kind] = pa.StructArray.from_arrays(batch.columns, fields=fields)
        kinds = pa.array([kind] * len(batch), pa.string())
        yield pa.record_batch([kinds, *columns.values()], TELEMETRY)
