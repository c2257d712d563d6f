"""ClickHouse: rows of the table ``otel_traces``, which the Collector's exporter writes.

Queries go to the HTTP interface (https://clickhouse.com/docs/interfaces/http) as GET requests,
which ClickHouse executes as read-only. They change no settings, which some users may not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...base.errors import BackendError
from ...ingest import Decoded, decode_span, is_span
from .json_api import JsonApi, Query
from .page_lists import PageGuard, begin_ns, objects_of, position_at, text_of, unless_too_large
from .transfer import PullPosition, SpanPage, TraceSource

__all__ = ["ClickHouse"]

_TABLE = "otel_traces"
_PAGE = 1000
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII).fullmatch
_EVENT_TIMES = "Events.Timestamp"

Row = Mapping[str, Any]
Key = tuple[int, str, str]


class ClickHouse(TraceSource):
    """A ClickHouse server. Its projects are tables.

    Args:
        api: Its HTTP interface.
        page: Rows of a page; halved while ClickHouse cannot answer.
    """

    def __init__(self, api: JsonApi, *, page: int = _PAGE) -> None:
        super().__init__(api)
        self._page = page

    def projects(self, names: Sequence[str]) -> Sequence[str]:
        """The tables to read, by default ``otel_traces``; see `TraceSource`."""
        for name in names:
            if not _NAME(name):
                raise BackendError(f"--project {name!r}: write TABLE or DATABASE.TABLE")
        return list(names) or [_TABLE]

    def pages(self, project: str, position: PullPosition) -> Iterator[SpanPage]:
        """Yield the pages of a table; see `TraceSource`."""
        columns = self._columns(project)
        key: Key = (begin_ns(position), "", "")
        if position.get("after") and not position.get("is_complete"):
            time, trace_id, span_id = position["after"]
            key = (time, trace_id, span_id)
        guard = PageGuard(self._api)
        while True:
            rows, is_complete = self._rows(project, columns, key)
            with self._api.reading():
                key = max(map(_key, rows), default=key)
                decoded = Decoded()
                for row in rows:
                    decode_span(row, decoded)
            guard.check(rows, "" if is_complete else " ".join(map(str, key)))
            after = position_at(position, key[0], is_complete=is_complete)
            yield SpanPage(decoded.spans, {**after, "after": list(key)}, decoded.problems)
            if is_complete:
                return

    def _columns(self, table: str) -> frozenset[str]:
        columns = frozenset(str(row.get("name")) for row in self._asked(f"DESCRIBE TABLE {table}"))
        if not is_span(columns) or "Timestamp" not in columns:
            raise BackendError(
                f"{self.url}: the table {table} has no columns Timestamp, TraceId, SpanId and"
                " SpanName; name the Collector's table with --project"
            )
        return columns

    def _rows(self, table: str, columns: frozenset[str], key: Key) -> tuple[list[Row], bool]:
        """The rows after a key, and whether they are the last rows."""
        time, trace_id, span_id = key
        # As numbers, because ClickHouse writes times in the zone of the column or server.
        times = "toString(toUnixTimestamp64Nano(CAST(Timestamp, 'DateTime64(9)'))) AS Timestamp"
        if _EVENT_TIMES in columns:
            times += (
                f", arrayMap(t -> toString(toUnixTimestamp64Nano(CAST(t, 'DateTime64(9)'))),"
                f" `{_EVENT_TIMES}`) AS `{_EVENT_TIMES}`"
            )
        moment = f"fromUnixTimestamp64Nano(toInt64({time}))"
        ids = [("param_trace", trace_id), ("param_span", span_id)]
        while True:
            query = (
                f"SELECT * REPLACE ({times}) FROM (SELECT * FROM {table}"  # noqa: S608
                f" WHERE Timestamp >= {moment}"
                f" AND (Timestamp, TraceId, SpanId) > ({moment}, {{trace:String}}, {{span:String}})"
                f" ORDER BY Timestamp, TraceId, SpanId LIMIT {self._page})"
            )
            rows = unless_too_large(partial(self._asked, query, ids), can_shrink=self._page > 1)
            if rows is not None:
                return rows, len(rows) < self._page
            self._page //= 2

    def _asked(self, query: str, parameters: Query = (), once: Collection[int] = ()) -> list[Row]:
        settings = [("query", f"{query} FORMAT JSON"), *parameters]
        answer = self._api.get("/", settings, once=once)
        if isinstance(answer, dict) and answer.get("exception"):
            raise self._api.error(self._api.quoted(str(answer["exception"])), 500)
        with self._api.reading():
            return objects_of(answer["data"])


def _key(row: Row) -> Key:
    return int(row["Timestamp"]), text_of(row["TraceId"]), text_of(row["SpanId"])
