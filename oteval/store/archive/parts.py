"""Which rows move to the archive together: whole traces of one day and one bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import duckdb

from ..progress import done_by_all_stages
from ..query import number

__all__ = ["ArchivePart", "archive_parts", "day_folder"]

_BUCKETS = 16
_DAY = 86_400 * 1_000_000_000
# The most rows, and the most bytes of content, of a part, which is moved in one transaction.
_MAX_ROWS = 8192
_MAX_BYTES = 128 << 20
_LOG_TIME = "coalesce(nullif(time_ns, 0), observed_ns, 0)"
_SIZE = " + ".join(
    f"coalesce(strlen({name}), 0)" for name in ("input", "output", "attributes", "events")
)


class ArchivePart(NamedTuple):
    """Rows that are moved in one transaction.

    Attributes:
        day: The day, counted from 1970.
        bucket: The bucket.
        traces: The ids of the traces; [""] for log records without a trace.
        first_ns: No span of them begins earlier.
        last_ns: No span of them begins later.
        last_seq: Rows with higher numbers stay.
    """

    day: int
    bucket: int
    traces: list[str]
    first_ns: int
    last_ns: int
    last_seq: int

    def condition(self, kind: str) -> tuple[str, list[Any]]:
        """The condition on the part's rows of ``spans`` or ``logs``, and its parameters.

        The query also needs the traces as the table ``wanted``.
        """
        if self.traces == [""]:
            if kind == "spans":
                return "FALSE", []
            condition = f"coalesce(trace_id, '') = '' AND {_LOG_TIME} BETWEEN ? AND ? AND seq <= ?"
            return condition, [self.first_ns, self.last_ns, self.last_seq]
        condition = "trace_id IN (SELECT trace_id FROM wanted) AND seq <= ?"
        if kind == "spans":
            values = [self.last_seq, self.first_ns, self.last_ns]
            return f"{condition} AND start_ns BETWEEN ? AND ?", values
        return condition, [self.last_seq]


def day_folder(part: ArchivePart) -> str:
    """The folder of a part, relative to the archive's."""
    date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=part.day)
    return f"date={date:%Y-%m-%d}/bucket={part.bucket:02}"


def archive_parts(connection: duckdb.DuckDBPyConnection, before_ns: int) -> Iterator[ArchivePart]:
    """Yield the parts of everything that ended before a time and is reconstructed.

    Each part is looked up when it is requested, so that the previous part may be moved before.
    """
    last_seq = done_by_all_stages(connection)
    days = connection.execute(
        f"""
        SELECT DISTINCT day FROM (
            SELECT start_ns // {_DAY} AS day FROM spans
            WHERE start_ns < $before AND seq <= $last_seq
            UNION ALL
            SELECT {_LOG_TIME} // {_DAY} FROM logs
            WHERE {_LOG_TIME} < $before AND seq <= $last_seq
        ) ORDER BY day
        """,  # noqa: S608
        {"before": before_ns, "last_seq": last_seq},
    ).fetchall()
    for (day,) in days:
        yield from _parts_of_traces(connection, day, before_ns, last_seq)
        yield from _parts_of_logs(connection, day, before_ns, last_seq)


def _parts_of_traces(
    connection: duckdb.DuckDBPyConnection, day: int, before_ns: int, last_seq: int
) -> Iterator[ArchivePart]:
    """Yield the parts of the traces that began on a day and have only old spans."""
    rows = connection.execute(
        f"""
        SELECT md5_number_lower(trace_id) % {_BUCKETS} AS bucket, trace_id,
               min(start_ns), max(start_ns), count(*), sum({_SIZE})
        FROM spans SEMI JOIN (
            SELECT DISTINCT trace_id FROM spans WHERE start_ns >= $from AND start_ns < $to
        ) USING (trace_id)
        GROUP BY trace_id
        HAVING min(start_ns) >= $from AND max(seq) <= $last_seq
           AND max(greatest(start_ns, coalesce(end_ns, 0))) < $before
        ORDER BY bucket, trace_id
        """,  # noqa: S608
        {
            "from": day * _DAY,
            "to": (day + 1) * _DAY,
            "before": before_ns,
            "last_seq": last_seq,
        },
    ).fetchall()
    yield from _grouped(rows, day, last_seq)


def _parts_of_logs(
    connection: duckdb.DuckDBPyConnection, day: int, before_ns: int, last_seq: int
) -> Iterator[ArchivePart]:
    """Yield the parts of log records of a day without a trace, or without spans of it here."""
    first_ns, until_ns = day * _DAY, min((day + 1) * _DAY, before_ns)
    rows = connection.execute(
        f"""
        SELECT md5_number_lower(trace_id) % {_BUCKETS} AS bucket, trace_id, 0, 0, count(*), 0
        FROM logs ANTI JOIN (SELECT trace_id FROM spans) s USING (trace_id)
        WHERE trace_id <> '' AND {_LOG_TIME} >= ? AND {_LOG_TIME} < ? AND seq <= ?
        GROUP BY trace_id ORDER BY bucket, trace_id
        """,  # noqa: S608
        [first_ns, until_ns, last_seq],
    ).fetchall()
    yield from _grouped(rows, day, last_seq)
    without_trace = f"""
        SELECT coalesce(max(seq), 0) FROM (
            SELECT seq FROM logs
            WHERE coalesce(trace_id, '') = '' AND {_LOG_TIME} >= ? AND {_LOG_TIME} < ? AND seq <= ?
            ORDER BY seq LIMIT {_MAX_ROWS}
        )
        """  # noqa: S608
    while upto := number(connection, without_trace, [first_ns, until_ns, last_seq]):
        yield ArchivePart(day, 0, [""], first_ns, until_ns - 1, upto)


def _grouped(rows: Sequence[tuple[Any, ...]], day: int, last_seq: int) -> Iterator[ArchivePart]:
    """Yield parts of as many traces of one bucket as one transaction should move.

    Args:
        rows: Bucket, trace, first and last start (ns), number of rows and bytes, by bucket.
        day: The day.
        last_seq: Rows with higher numbers stay.
    """
    group: list[tuple[Any, ...]] = []
    count = size = 0
    for trace_row in rows:
        is_other_bucket = group and group[0][0] != trace_row[0]
        is_full = count + trace_row[4] > _MAX_ROWS or size + trace_row[5] > _MAX_BYTES
        if group and (is_other_bucket or is_full):
            yield _part(group, day, last_seq)
            group, count, size = [], 0, 0
        group.append(trace_row)
        count += trace_row[4]
        size += trace_row[5]
    if group:
        yield _part(group, day, last_seq)


def _part(group: Sequence[tuple[Any, ...]], day: int, last_seq: int) -> ArchivePart:
    first_ns, last_ns = (
        min(trace_row[2] for trace_row in group),
        max(trace_row[3] for trace_row in group),
    )
    bucket, traces = int(group[0][0]), [trace_row[1] for trace_row in group]
    return ArchivePart(day, bucket, traces, first_ns, last_ns, last_seq)
