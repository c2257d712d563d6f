"""Parquet files of spans and log records, some rows at a time.

What the rows are, the columns say: ClickHouse's ``otel_traces`` and ``otel_logs`` are read here,
and a caller may bring readers of other tables. Of a column only some pages are in memory at a time,
since ClickHouse writes row groups of a million rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ..errors import InputError
from ..model import LogRecord, Span
from . import clickhouse
from .otlp import Decoded
from .otlp.decoded import shown

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAGIC", "Rows", "Table", "read_rows"]

MAGIC = b"PAR1"
_ROWS = 256
_PAGES = 1 << 18

_Decode = Callable[["pa.RecordBatch", int], Decoded]


class Table(NamedTuple):
    """A table that can be read from Parquet files.

    Attributes:
        columns: The columns it is known by and read from.
        decode: Returns the spans or log records of some rows; it raises ValueError where one of
            them cannot be read.
    """

    columns: frozenset[str]
    decode: Callable[[pa.RecordBatch], Sequence[Span] | Sequence[LogRecord]]


class Rows(NamedTuple):
    """What some rows hold, and which part of the file's rows was read with them."""

    found: Decoded
    done: float


def read_rows(file: BinaryIO, tables: Sequence[Table] = ()) -> Iterator[Rows]:
    """Yield the content of a Parquet file.

    A row or a row group that cannot be read is a problem, and the others are read.

    Args:
        file: The file, which can seek.
        tables: Tables to know beside ClickHouse's.

    Raises:
        InputError: The file is damaged as a whole, or holds another table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file, buffer_size=_PAGES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"a damaged Parquet file ({_reason(error)})") from None
    names = frozenset(parquet.schema_arrow.names)
    decode, columns = _reader(names, tables)
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


def _reason(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")


def _reader(names: frozenset[str], tables: Sequence[Table]) -> tuple[_Decode, frozenset[str]]:
    """Return how to read a table with these columns, and which of them to read."""
    if clickhouse.is_span(names):
        return _clickhouse(clickhouse.decode_span), names & clickhouse.COLUMNS
    if clickhouse.is_log(names):
        return _clickhouse(clickhouse.decode_log), names & clickhouse.COLUMNS
    for table in tables:
        if table.columns <= names:
            return _foreign(table), table.columns
    some = ", ".join(map(shown, sorted(names)[:8])) + (", ..." if len(names) > 8 else "")
    raise InputError(f"a Parquet file with the columns {some} holds no spans or log records")


def _foreign(table: Table) -> _Decode:
    def decode(batch: pa.RecordBatch, first: int) -> Decoded:
        out = Decoded()
        try:
            _add(table.decode(batch), out)
        except ValueError:  # the one row it is, the others are read without
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
    """Return a column's values, times as ns; text that is not UTF-8 as bytes."""
    import pyarrow as pa

    # By way of ns, since a cast to numbers keeps the unit.
    times = _as(column.type, lambda kind: pa.timestamp("ns", kind.tz), pa.types.is_timestamp)
    numbers = _as(times, lambda _: pa.int64(), pa.types.is_timestamp)
    if numbers != column.type:
        column = column.cast(times).cast(numbers)
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        values = column.cast(_as(numbers, lambda _: pa.binary(), pa.types.is_string)).to_pylist()
    return list(values)


def _as(
    kind: pa.DataType, change: Callable[[Any], pa.DataType], where: Callable[[Any], bool]
) -> pa.DataType:
    """Return a type with the types inside it changed where a condition holds."""
    import pyarrow as pa

    if where(kind):
        return change(kind)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as(kind.value_type, change, where)))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_as(field.type, change, where)) for field in fields])
    if pa.types.is_map(kind):
        key = _as(kind.key_type, change, where)
        return pa.map_(key, kind.item_field.with_type(_as(kind.item_type, change, where)))
    return kind
