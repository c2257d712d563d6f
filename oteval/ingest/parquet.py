"""Read Parquet files of spans and log records, some rows at a time.

A table is recognised by its columns: ClickHouse's ``otel_traces`` and ``otel_logs``, and tables
that the caller describes. ClickHouse writes row groups of a million rows, so only a few pages of
each column are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ..base.errors import InputError
from ..model import LogRecord, Span
from . import clickhouse
from .otlp import Decoded
from .otlp.decoded import short_repr

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAGIC", "Rows", "Table", "decode_rows", "read_rows"]

MAGIC = b"PAR1"
_ROWS = 256  # read at a time
_PAGES = 1 << 18  # bytes of the buffer of a column

_Decode = Callable[["pa.RecordBatch", int], Decoded]


class Table(NamedTuple):
    """A table that can be read from Parquet files.

    Attributes:
        columns: The columns that are read. They also identify the table.
        decode: Returns the spans or log records of some rows. It raises ValueError if a row is
            invalid.
    """

    columns: frozenset[str]
    decode: Callable[[pa.RecordBatch], Sequence[Span] | Sequence[LogRecord]]


class Rows(NamedTuple):
    """The content of some rows.

    Attributes:
        content: Their spans or log records.
        fraction: The fraction of the file's rows read so far.
    """

    content: Decoded
    fraction: float


def read_rows(file: BinaryIO, tables: Sequence[Table] = ()) -> Iterator[Rows]:
    """Yield the content of a Parquet file.

    A row or row group that cannot be read becomes a problem, and the others are read.

    Args:
        file: The file, which must be seekable.
        tables: Further tables to recognise, besides ClickHouse's tables.

    Raises:
        InputError: The whole file is damaged, or its table is unknown.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file, buffer_size=_PAGES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"a damaged Parquet file ({_reason(error)})") from None
    decode, columns = _reader(frozenset(parquet.schema_arrow.names), tables)
    total = max(parquet.metadata.num_rows, 1)
    first = 1
    for group in range(parquet.num_row_groups):
        end = first + parquet.metadata.row_group(group).num_rows
        batches = parquet.iter_batches(_ROWS, [group], [*columns], use_threads=False)
        try:
            for batch in batches:
                yield Rows(decode(batch, first), (first + batch.num_rows) / total)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            skipped = f"rows {first} to {end - 1} cannot be read ({_reason(error)}); skipped"
            yield Rows(Decoded(problems=[skipped]), end / total)
        first = end


def decode_rows(batch: pa.RecordBatch, first: int) -> Decoded:
    """The content of rows of ClickHouse's ``otel_traces`` or ``otel_logs``.

    Args:
        batch: The rows.
        first: The number of the first row, for problems.

    Raises:
        InputError: They are rows of another table.
    """
    decode, columns = _reader(frozenset(batch.schema.names), ())
    return decode(batch.select([name for name in batch.schema.names if name in columns]), first)


def _reason(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")


def _reader(names: frozenset[str], tables: Sequence[Table]) -> tuple[_Decode, frozenset[str]]:
    """The decoder of a table with these columns, and the columns to read."""
    if clickhouse.is_span(names):
        return _clickhouse(clickhouse.decode_span), names & clickhouse.COLUMNS
    if clickhouse.is_log(names):
        return _clickhouse(clickhouse.decode_log), names & clickhouse.COLUMNS
    for table in tables:
        if table.columns <= names:
            return _foreign(table), table.columns
    shown_names = ", ".join(map(short_repr, sorted(names)[:8])) + (
        ", ..." if len(names) > 8 else ""
    )
    raise InputError(f"a Parquet file with the columns {shown_names} has no spans or log records")


def _foreign(table: Table) -> _Decode:
    def decode(batch: pa.RecordBatch, first: int) -> Decoded:
        out = Decoded()
        try:
            _add(table.decode(batch), out)
        except ValueError:  # find the invalid row, and read the others without it
            for index in range(batch.num_rows):
                try:
                    _add(table.decode(batch.slice(index, 1)), out)
                except ValueError as error:
                    out.problems.append(f"row {first + index}: {error}; row skipped")
        return out

    return decode


def _add(items: Sequence[Span] | Sequence[LogRecord], out: Decoded) -> None:
    for item in items:
        if isinstance(item, Span):
            out.spans.append(item)
        else:
            out.logs.append(item)


def _clickhouse(decode_row: Callable[[dict[str, Any], Decoded], None]) -> _Decode:
    def decode(batch: pa.RecordBatch, first: int) -> Decoded:
        out = Decoded()
        names = batch.schema.names
        for number, row in enumerate(zip(*map(_values, batch.columns), strict=True), first):
            start = len(out.problems)
            decode_row(dict(zip(names, row, strict=True)), out)
            out.problems[start:] = [f"row {number}: {problem}" for problem in out.problems[start:]]
        return out

    return decode


def _values(column: pa.Array) -> list[Any]:
    """The values of a column: times in ns, and text that is not UTF-8 as bytes."""
    import pyarrow as pa

    # In two steps, because a cast from a time to a number keeps the unit.
    times = _cast(column.type, lambda kind: pa.timestamp("ns", kind.tz), pa.types.is_timestamp)
    numbers = _cast(times, lambda _: pa.int64(), pa.types.is_timestamp)
    if numbers != column.type:
        column = column.cast(times).cast(numbers)
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        values = column.cast(_cast(numbers, lambda _: pa.binary(), pa.types.is_string)).to_pylist()
    return list(values)


def _cast(
    kind: pa.DataType, change: Callable[[Any], pa.DataType], where: Callable[[Any], bool]
) -> pa.DataType:
    """A type where each nested type that satisfies `where` is replaced by `change`."""
    import pyarrow as pa

    if where(kind):
        return change(kind)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_cast(kind.value_type, change, where)))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_cast(field.type, change, where)) for field in fields])
    if pa.types.is_map(kind):
        key = _cast(kind.key_type, change, where)
        return pa.map_(key, kind.item_field.with_type(_cast(kind.item_type, change, where)))
    return kind
