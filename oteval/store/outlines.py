"""Outlines of stored runs: their columns, grouped so that equal outlines are decided once.

`oteval.model.score` describes the facts that an evaluator may request. Only ``messages``
is a wide column. ``sound_results`` reads it, and `Outlines.messages` for the arguments of calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from ..model import Fact, OutlineRequest, Selection
from .column_sql import TOKEN_COLUMNS, attribute_pointer
from .memory import fetch
from .query import condition_of, registered
from .trajectories import ReadPages

__all__ = ["Outlines"]

_ALWAYS = (
    "roles, call_names, call_messages, gap_codes, history_id IS NULL AND new_from = 0 AS is_first"
)
# Whether the messages of the run are in its own row, and not in the row of its history.
_OWN = (
    "CASE WHEN history_id IS NULL THEN TRUE WHEN json_valid(messages) "
    "THEN json_array_length(messages) >= len(roles) ELSE FALSE END"
)
# JSON text of a message that `messages.call_outcome.near_miss_of` may name; such a pass gets a
# comment.
_NEAR_MISS = (
    r'"content":"(?:\\u[0-9a-fA-F]{4}|\\.|[^A-Za-z"\\]){0,16}'
    r"(?i:errors?|exceptions?|traceback)[^A-Za-z ]"
)
# Ids of calls pair results with them; without ids, names and the order would count as well.
_SOUND = f"""
    len(call_names) = 0 AND NOT list_contains(roles, 'tool') OR (
        len(list_filter(call_errors, lambda e: e IS NOT DISTINCT FROM FALSE)) = len(call_names)
        AND len(list_filter(roles, lambda r: r = 'tool')) = len(call_names)
        AND NOT contains(messages, '"id":""')
        AND NOT regexp_matches(messages, '{_NEAR_MISS}')
        AND {_OWN}
    )
"""
_FACTS: dict[Fact, str] = {
    "models": "models",
    "overlapping": "overlapping",
    "sound_results": f"{_SOUND} AS sound_results",
    "times": "start_ns, end_ns",
    "usage": f"{', '.join(TOKEN_COLUMNS)}, model_calls",
}
_RUN = (
    "{place: place, trajectory_id: trajectory_id, rev: rev, trace_id: trace_id, span_id: span_id}"
)


class Outlines:
    """The outlines of the runs of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def read(self, keys: pa.Table, request: OutlineRequest, where: Selection) -> pa.Table:
        """The outlines of some current trajectories, each once.

        Args:
            keys: A table of `Trajectories.keys`, by start.
            request: The columns.
            where: A filter that `oteval.store.query.is_exact` accepts.

        Returns:
            A row per outline: its columns; ``is_wanted``, whether the filter selects its runs; and
            ``runs``, a list of their trajectory_id, rev, trace_id and span_id, each with its
            ``place`` in `keys`.
        """
        starts = keys["start_ns"]
        places = pa.array(range(len(keys)), pa.int32())
        indexed_keys = pa.table({"id": keys["trajectory_id"], "place": places})
        query = (
            "SELECT t.*, w.place FROM current_trajectories t "
            "JOIN wanted w ON t.trajectory_id = w.id WHERE t.start_ns BETWEEN ? AND ?"
        )
        with registered(self._connection, "wanted", indexed_keys):
            return self._grouped(query, [starts[0].as_py(), starts[-1].as_py()], request, where)

    def of_rows(self, rows: pa.Table, request: OutlineRequest, where: Selection) -> pa.Table:
        """The outlines of rows that were written just now, without reading the store.

        Args:
            rows: Rows of ``trajectories``; their ``place`` is their index.
            request: As for `read`.
            where: As for `read`.

        Returns:
            As `read`.
        """
        places = pa.array(range(len(rows)), pa.int32())
        with registered(self._connection, "written", rows.append_column("place", places)):
            return self._grouped("SELECT * FROM written", [], request, where)

    def messages(self, runs: pa.Table, pages: ReadPages) -> Iterator[tuple[int, str]]:
        """Yield the own messages of revisions, without their histories, as JSON text.

        Args:
            runs: Their ``trajectory_id``, ``rev`` and ``start_ns``, by start, and the ``place``
                that is returned with the messages. Revisions that were deleted are left out.
            pages: How they are read.
        """
        start = 0
        while start < len(runs):
            page = runs.slice(start, pages.size)
            start += pages.size
            first, last = page["start_ns"][0].as_py(), page["start_ns"][-1].as_py()
            with registered(self._connection, "wanted", page):
                table = fetch(
                    self._connection,
                    "SELECT w.place, t.messages FROM trajectories t JOIN wanted w "  # noqa: S608
                    "ON t.trajectory_id = w.trajectory_id AND t.rev = w.rev "
                    f"WHERE t.start_ns BETWEEN {int(first)} AND {int(last)}",
                )
            pages.fit(table["messages"].nbytes // max(1, len(table)))
            yield from zip(*(column.to_pylist() for column in table.columns), strict=True)

    def _grouped(
        self, runs_query: str, runs_values: list[Any], request: OutlineRequest, where: Selection
    ) -> pa.Table:
        """Group the rows of a query with parameters by their outlines."""
        clause, values = condition_of(where)
        columns = [_ALWAYS, *(_FACTS[fact] for fact in sorted(request.facts - {"call_hashes"}))]
        if "call_hashes" in request.facts:
            columns.append(f"{_hashes(request.calls)} AS call_hashes")
        params: list[Any] = []
        if request.attribute:
            columns.append(
                "json_type(attributes, ?) AS attribute_type, "
                "json_extract_string(attributes, ?) AS attribute"
            )
            params += [attribute_pointer(request.attribute)] * 2
        query = f"""
            SELECT {", ".join(columns)}, {clause} AS is_wanted, list({_RUN}) AS runs
            FROM ({runs_query})
            GROUP BY ALL
        """  # noqa: S608
        params += [*values, *runs_values]
        return fetch(self._connection, query, params)


def _hashes(calls: tuple[int, ...] | None) -> str:
    """The expression for the hashes of a run's calls, with -1 for other calls than these."""
    if calls is None:
        return "call_hashes"
    hashes = ", ".join(map(str, calls))
    return (
        "list_transform(call_hashes, lambda h: CASE WHEN h IS NULL "
        f"OR list_contains([{hashes}]::BIGINT[], h) THEN h ELSE -1 END)"
    )
