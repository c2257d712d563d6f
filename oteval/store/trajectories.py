"""Trajectories: written as revisions, and read with the histories that they follow.

Tables: ``trajectories``, an append-only table, and ``superseded``, the revisions that no longer
count. The view ``current_trajectories`` has the revisions that count.

A trajectory's row contains only the messages after its history. A read therefore reads the row, its
history's row, and so on, back to the beginning of the conversation.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..base.errors import NotFound
from ..base.text import listed
from ..model import EVERYTHING, Selection, Trajectory
from .arrow_rows import table_of
from .memory import fetch
from .query import (
    column,
    condition_of,
    insert,
    is_exact,
    next_number,
    number,
    reader,
    registered,
    rows_of,
    transaction,
    wanted,
)
from .ranges import EVERYWHERE, MAX_WIDE_RANGES, Range, merge_ranges, per_range, rows_in
from .run_fields import RunFields, selected
from .trajectory_rows import (
    READ_COLUMNS,
    TRAJECTORY_SCHEMA,
    build_trajectories,
    build_trajectory,
    trajectory_row,
)

__all__ = ["ReadPages", "Trajectories"]

_TEXT, _BIG, _INT = pa.string(), pa.int64(), pa.int32()
_BY_START = [("start_ns", "ascending"), ("trajectory_id", "ascending")]
_SUPERSEDED = pa.schema([("trajectory_id", _TEXT), ("rev", _INT)])
# The most trajectories on a page, and the number on the first one. Further pages have about
# _PAGE_BYTES of rows.
_MAX_PAGE, _FIRST_PAGE = 1000, 100
_PAGE_BYTES = 64 << 20
# A page is mostly one stretch of time, and each range needs a query.
_PAGE_RANGES = 4
_READ = ", ".join(READ_COLUMNS)
# The columns that make rows wide.
_WIDE = ("messages", "steps", "tools", "rewrites", "attributes")
# From this depth on, all histories of a trajectory are looked up together: first in the stretch of
# time (ns) before it, then in earlier stretches, each longer by a factor.
_SHALLOW, _STRETCH, _STRETCH_FACTOR = 3, 600_000_000_000, 8
# Conditions that resolve a name to a trajectory, in this order, so that a short trajectory id in a
# table is never ambiguous because of a trace with a similar id.
_NAMED_BY = (
    "starts_with(trajectory_id, $name)",
    "list_contains(trace_ids, $name) OR span_id = $name",
    "len(list_filter(trace_ids, lambda t: starts_with(t, $name))) > 0 "
    "OR starts_with(span_id, $name)",
)


class _Link(NamedTuple):
    """The columns of a trajectory that link it to its history."""

    rev: int
    start_ns: int
    history_id: str | None
    history_ns: int | None


def _length(row: Mapping[str, Any]) -> int:
    """The number of a trajectory's own messages and calls."""
    return len(row["roles"]) + len(row["call_names"])


@dataclass
class ReadPages:
    """How trajectories are read page by page.

    Attributes:
        size: The number of trajectories on the next page, by the width of the last page.
        max_ranges: The most ranges of times for the queries of a page. It is 1 for trajectories
            that are spread evenly, because each range would only need another query.
    """

    size: int = _FIRST_PAGE
    max_ranges: int = _PAGE_RANGES

    def fit(self, width: int) -> None:
        """Set the size of the next page, by the mean bytes of the rows of the last one."""
        self.size = max(1, min(_MAX_PAGE, 4 * self.size, _PAGE_BYTES // (1 + width)))


class Trajectories:
    """The trajectories of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._fields = RunFields(connection, self.at)

    def write(
        self,
        trajectories: Sequence[Trajectory],
        trace_ids: Sequence[str],
        times: Sequence[Range] = (EVERYWHERE,),
    ) -> list[str]:
        """Store the trajectories of some traces; a changed trajectory becomes a new revision.

        Args:
            trajectories: All trajectories of the traces. Other stored ones are superseded.
            trace_ids: The traces.
            times: The times (ns) when their spans begin. Every trajectory overlaps one.

        Returns:
            The ids of the trajectories that are new or changed.
        """
        written = self.write_rows(trajectories, trace_ids, times)
        return list(written["trajectory_id"].to_pylist())

    def write_rows(
        self,
        trajectories: Sequence[Trajectory],
        trace_ids: Sequence[str],
        times: Sequence[Range] = (EVERYWHERE,),
    ) -> pa.Table:
        """Store trajectories as `write` does, and return the rows that are new or changed."""
        rows = [trajectory_row(trajectory) for trajectory in trajectories]
        stored = self._newest_revisions(trace_ids, times)
        new = []
        for row in rows:
            rev, fingerprint = stored.get(row["trajectory_id"], (0, None))
            if fingerprint == row["fingerprint"]:
                del stored[row["trajectory_id"]]
            else:
                new.append({**row, "rev": rev + 1})
        superseded = [
            (name, rev) for name, (rev, fingerprint) in stored.items() if fingerprint is not None
        ]
        return self._insert(new, superseded)

    def add(self, trajectories: Sequence[Trajectory]) -> list[str]:
        """Store trajectories that were reconstructed elsewhere, unless they are stored already.

        A trajectory that is longer than the stored one becomes a new revision, as when a session
        goes on. If the store has spans of it, the stored one stays: the spans are more complete.

        Returns:
            The ids of the trajectories that are new or have grown.
        """
        stored = self._stored_lengths([trajectory.id for trajectory in trajectories])
        rows = [trajectory_row(trajectory) for trajectory in trajectories]
        new = [{**row, "rev": 1} for row in rows if row["trajectory_id"] not in stored]
        longer = [
            row
            for row in rows
            if row["trajectory_id"] in stored and _length(row) > stored[row["trajectory_id"]][1]
        ]
        with_spans = self._with_spans([row["trace_id"] for row in longer]) if longer else set()
        grown = [row for row in longer if row["trace_id"] not in with_spans]
        superseded = [(row["trajectory_id"], stored[row["trajectory_id"]][0]) for row in grown]
        new += [{**row, "rev": rev + 1} for row, (_, rev) in zip(grown, superseded, strict=True)]
        self._insert(new, superseded)
        return [row["trajectory_id"] for row in new]

    def _stored_lengths(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The newest revision of each of some trajectories, and its `_length`."""
        with wanted(self._connection, "trajectory_id", names):
            rows = self._connection.execute(
                "SELECT trajectory_id, max(rev), arg_max(len(roles) + len(call_names), rev) "
                "FROM trajectories SEMI JOIN wanted USING (trajectory_id) GROUP BY trajectory_id"
            ).fetchall()
        return {name: (rev, length) for name, rev, length in rows}

    def _with_spans(self, trace_ids: Sequence[str]) -> set[str]:
        with wanted(self._connection, "trace_id", trace_ids):
            rows = column(
                self._connection,
                "SELECT DISTINCT trace_id FROM spans SEMI JOIN wanted USING (trace_id)",
            )
        return set(rows)

    def _newest_revisions(
        self, trace_ids: Sequence[str], times: Sequence[Range]
    ) -> dict[str, tuple[int, str | None]]:
        """The newest revision of each trajectory that was ever rooted in some traces.

        Returns:
            Its number and fingerprint by id. The fingerprint is None if it is superseded.
        """
        rooted = per_range(
            "SELECT trajectory_id, rev, trace_id, fingerprint FROM trajectories "
            "WHERE start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        with wanted(self._connection, "trace_id", trace_ids):
            rows = self._connection.execute(
                f"""
                SELECT t.trajectory_id, max(t.rev), max(t.fingerprint) FILTER (s.rev IS NULL)
                FROM (SELECT * FROM ({rooted}) SEMI JOIN wanted USING (trace_id)) t
                LEFT JOIN superseded s ON t.trajectory_id = s.trajectory_id AND t.rev = s.rev
                GROUP BY t.trajectory_id
                """  # noqa: S608
            ).fetchall()
        return {name: (rev, fingerprint) for name, rev, fingerprint in rows}

    def _insert(
        self, new: Sequence[Mapping[str, Any]], superseded: Sequence[tuple[str, int]]
    ) -> pa.Table:
        table = table_of([], TRAJECTORY_SCHEMA)
        with transaction(self._connection):
            if superseded:
                insert(self._connection, "superseded", table_of(superseded, _SUPERSEDED))
            if new:
                start = next_number(self._connection, "trajectories")
                names = TRAJECTORY_SCHEMA.names[:-1]
                rows = [[*map(row.__getitem__, names), at] for at, row in enumerate(new, start)]
                table = table_of(rows, TRAJECTORY_SCHEMA)
                insert(self._connection, "trajectories", table)
        return table

    def read(self, selection: Selection = EVERYTHING) -> Iterator[Trajectory]:
        """Yield the current trajectories of a selection by start."""
        yield from self.at(self.key_table(selection))

    def keys(self, selection: Selection = EVERYTHING, page: int = _MAX_PAGE) -> Iterator[pa.Table]:
        """Yield the ids of the current trajectories of a selection by start, page by page.

        Args:
            selection: The selection.
            page: The most trajectories on a page.

        Yields:
            A table with the columns ``trajectory_id`` and ``start_ns``.
        """
        keys = self.key_table(selection)
        yield from (keys.slice(at, page) for at in range(0, keys.num_rows, page))

    def key_table(self, selection: Selection = EVERYTHING) -> pa.Table:
        """The table of all `keys` of a selection."""
        clause, values = condition_of(selection)
        runs = f"FROM current_trajectories WHERE {clause}"
        if is_exact(selection):
            query = f"SELECT trajectory_id, start_ns {runs} ORDER BY start_ns, trajectory_id"
            keys = fetch(self._connection, query, values)
        else:
            results = self._fields.results(f"SELECT * {runs}", values, {}, selected(selection))
            keys = results.sort_by(_BY_START)
        return keys if selection.limit is None else keys.slice(max(0, len(keys) - selection.limit))

    def at(self, keys: pa.Table, pages: ReadPages | None = None) -> Iterator[Trajectory]:
        """Yield current trajectories with their histories, reading only rows with their times.

        Args:
            keys: A table of `keys`. Trajectories that were deleted since are left out.
            pages: How they are read, if many tables of keys are read one after the other.
        """
        pages = pages or ReadPages()
        start = 0
        while start < len(keys):
            page = keys.slice(start, pages.size)
            starts = dict(zip(*(column.to_pylist() for column in page.columns), strict=True))
            start += pages.size
            rows, built = self._rows_since(starts, {}, max_ranges=pages.max_ranges)
            pages.fit(_width(rows.values()))
            for name in rows:
                build_trajectory(name, rows, built)
            moved = [name for name in starts if name not in built]
            built |= self._with_history(moved) if moved else {}
            yield from (built[name] for name in starts if name in built)

    def matching(self, keys: pa.Table, selection: Selection) -> set[str]:
        """The ids of trajectories that meet conditions that SQL cannot test exactly.

        Conditions that their columns decide are decided there, and only the other runs are read.

        Args:
            keys: A table of `keys` whose trajectories meet `condition_of` of the selection.
            selection: The selection.
        """
        runs = "SELECT * FROM trajectories ANTI JOIN superseded USING (trajectory_id, rev)"
        return self._accepted(keys, selection, runs, [])

    def matching_revisions(self, revisions: pa.Table, selection: Selection) -> set[str]:
        """The ids of revisions that meet conditions that SQL cannot test exactly.

        Args:
            revisions: Their ``trajectory_id``, ``rev`` and ``start_ns``, as for `matching`.
            selection: The selection.
        """
        runs = (
            "SELECT t.* FROM trajectories t SEMI JOIN (SELECT unnest(?::VARCHAR[]) AS "
            "trajectory_id, unnest(?::INTEGER[]) AS rev) USING (trajectory_id, rev)"
        )
        columns = [revisions[name].to_pylist() for name in ("trajectory_id", "rev")]
        return self._accepted(revisions, selection, runs, columns)

    def _accepted(
        self, keys: pa.Table, selection: Selection, runs: str, parameters: list[Any]
    ) -> set[str]:
        if not len(keys):
            return set()
        starts = keys["start_ns"].to_pylist()
        results = self._fields.results(
            f"{runs} WHERE start_ns BETWEEN ? AND ? "
            "AND trajectory_id IN (SELECT unnest(?::VARCHAR[]))",
            [*parameters, min(starts), max(starts), keys["trajectory_id"].to_pylist()],
            {},
            selected(selection),
        )
        return set(results["trajectory_id"].to_pylist())

    def _with_history(self, names: Sequence[str]) -> dict[str, Trajectory]:
        """Return current trajectories and all their histories by id."""
        return build_trajectories(self._rows_with_history(names))

    def _rows_with_history(self, names: Sequence[str]) -> pa.Table:
        """The current rows of some trajectories and of all their histories."""
        with wanted(self._connection, "id", names):
            return fetch(
                self._connection,
                """
                WITH RECURSIVE needed(id) AS (
                    SELECT id FROM wanted
                    UNION
                    SELECT t.history_id FROM current_trajectories t
                    JOIN needed n ON t.trajectory_id = n.id WHERE t.history_id IS NOT NULL
                )
                SELECT t.* FROM current_trajectories t SEMI JOIN needed n ON t.trajectory_id = n.id
                """,
            )

    def of(self, names: Sequence[str]) -> dict[str, Trajectory]:
        """The current trajectories with some ids, by id."""
        by_id = self._with_history(names)
        return {name: by_id[name] for name in names if name in by_id}

    def starting_at(
        self, starts: Mapping[str, int], cached: Mapping[str, Trajectory] | None = None
    ) -> dict[str, Trajectory]:
        """Return current trajectories by id, as `of` does, reading only rows of their times.

        Args:
            starts: When they begin (ns), by id. Trajectories that begin elsewhere are left out.
            cached: Trajectories that were read before, by id. Histories among them are not read
                again if they have not changed.
        """
        rows, built = self._rows_since(starts, cached or {})
        for name in rows:
            build_trajectory(name, rows, built)
        return {name: built[name] for name in starts if name in built}

    def _rows_since(
        self,
        starts: Mapping[str, int],
        cached: Mapping[str, Trajectory],
        max_ranges: int = MAX_WIDE_RANGES,
    ) -> tuple[dict[str, Mapping[str, Any]], dict[str, Trajectory]]:
        """The rows of some trajectories and of their histories, by id.

        Args:
            starts: As for `starting_at`.
            cached: As for `starting_at`.
            max_ranges: The most ranges of times to read.

        Returns:
            The rows, and the unchanged trajectories of `cached`, which have no rows.
        """
        rows: dict[str, Mapping[str, Any]] = {}
        built: dict[str, Trajectory] = {}
        to_read: dict[str, int | None] = dict(starts)
        for depth in itertools.count():
            if not to_read:
                break
            timed = {name: ns for name, ns in to_read.items() if ns is not None}
            if depth >= _SHALLOW:
                # One query per history would take longer than reading the rows.
                lineage = self._lineage(timed, rows.keys())
                built |= _unchanged(lineage, cached)
                timed |= {name: link.start_ns for name, link in lineage.items()}
            unknown = {name: ns for name, ns in timed.items() if name not in built}
            new_rows = self._rows_at(unknown, max_ranges)
            # A history may begin at another time by now, or be deleted.
            moved = [n for n in to_read if n not in new_rows and n not in starts and n not in built]
            new_rows.update(self._rows_anywhere(moved) if moved else {})
            rows.update(new_rows)
            to_read = {
                row["history_id"]: row["history_ns"]
                for row in new_rows.values()
                if row["history_id"] is not None
                and row["history_id"] not in rows
                and row["history_id"] not in built
            }
        return rows, built

    def _lineage(self, starts: Mapping[str, int], skipped: Container[str]) -> dict[str, _Link]:
        """The links of some trajectories and of all their histories.

        Histories are looked up in stretches of time before the trajectories, each longer than the
        last. If a history began elsewhere before it changed, its lineage ends there.

        Args:
            starts: When the trajectories begin (ns), by id.
            skipped: The ids of trajectories that need not be looked up.
        """
        lineage: dict[str, _Link] = {}
        ends, stretch = dict(starts), _STRETCH
        until = max(starts.values(), default=0)
        while ends:
            first = max(EVERYWHERE.first, min(until, *ends.values()) - stretch)
            rows = self._connection.execute(
                "SELECT trajectory_id, rev, start_ns, history_id, history_ns FROM trajectories "
                "ANTI JOIN superseded USING (trajectory_id, rev) WHERE start_ns BETWEEN ? AND ?",
                [first, until],
            ).fetchall()
            links = {name: _Link(*link) for name, *link in rows}
            names, ends = list(ends), {}
            for at in names:
                while (link := links.get(at)) and at not in lineage and at not in skipped:
                    lineage[at] = link
                    if link.history_id is None or link.history_ns is None:
                        break
                    if link.history_ns < first:
                        ends[link.history_id] = link.history_ns
                        break
                    at = link.history_id
            until, stretch = first - 1, stretch * _STRETCH_FACTOR
        return lineage

    def _rows_at(self, starts: Mapping[str, int], max_ranges: int) -> dict[str, Mapping[str, Any]]:
        """The current rows of the trajectories that begin at these times (ns)."""
        columns = {"id": pa.array(starts, _TEXT), "ns": pa.array(starts.values(), _BIG)}
        with registered(self._connection, "wanted", pa.table(columns)):
            table = rows_in(
                self._connection,
                f"SELECT {_READ} FROM trajectories t "  # noqa: S608
                "SEMI JOIN wanted w ON t.trajectory_id = w.id "
                "AND t.start_ns = w.ns ANTI JOIN superseded USING (trajectory_id, rev) "
                "WHERE t.start_ns BETWEEN {first} AND {last}",
                merge_ranges((Range(ns, ns) for ns in starts.values()), max_ranges=max_ranges),
            )
        return {row["trajectory_id"]: row for row in rows_of(table)}

    def _rows_anywhere(self, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """The current rows of some trajectories, whenever they begin."""
        with wanted(self._connection, "trajectory_id", names):
            table = fetch(
                self._connection,
                "SELECT t.* FROM current_trajectories t SEMI JOIN wanted USING (trajectory_id)",
            )
        return {row["trajectory_id"]: row for row in rows_of(table)}

    def get(self, name: str) -> Trajectory:
        """The current trajectory whose id is, or begins with, a name.

        Args:
            name: The id of a trajectory, or else of one of its traces or its root span.

        Raises:
            NotFound: No id begins with the name, or the ids of several trajectories do.
        """
        for condition in _NAMED_BY:
            ids = self._ids_where(condition, name)
            if len(ids) == 1:
                return self._with_history(ids)[ids[0]]
            if ids:
                raise NotFound(f"{name!r} means several trajectories: {listed(ids)}")
        raise NotFound(f"no trajectory {name!r}; oteval trajectories lists them")

    def named(self, name: str) -> list[Trajectory]:
        """The current trajectories that a name identifies: one, or a conversation's turns.

        Args:
            name: As for `get`, or the id of a conversation or the beginning of one.

        Raises:
            NotFound: Nothing has the name, or several trajectories or conversations do.
        """
        ids = self._ids_where("conversation_id = $name AND conversation_id <> ''", name)
        if not ids:
            try:
                return [self.get(name)]
            except NotFound:
                # A prefix of several trajectories' ids is ambiguous.
                if self.ids_with_prefix(name):
                    raise
                ids = self._ids_where(
                    "starts_with(conversation_id, $name) AND conversation_id <> ''", name
                )
                if not ids:
                    raise
        turns = self._with_history(ids)
        conversations = sorted({turns[trajectory_id].conversation_id for trajectory_id in ids})
        if len(conversations) > 1:
            raise NotFound(f"{name!r} means several conversations: {listed(conversations)}")
        return [turns[trajectory_id] for trajectory_id in ids]

    def ids_with_prefix(self, name: str) -> list[str]:
        """The ids of current trajectories that begin with a text, by start."""
        return self._ids_where(_NAMED_BY[0], name)

    def _ids_where(self, condition: str, name: str) -> list[str]:
        return column(
            self._connection,
            f"SELECT trajectory_id FROM current_trajectories WHERE {condition} "  # noqa: S608
            "ORDER BY start_ns, trajectory_id",
            {"name": name},
        )

    def count(self, selection: Selection = EVERYTHING) -> int:
        """The number of current trajectories of a selection that `is_exact` accepts."""
        clause, values = condition_of(selection)
        total = number(
            self._connection,
            f"SELECT count(*) FROM current_trajectories WHERE {clause}",  # noqa: S608
            values,
        )
        return total if selection.limit is None else min(total, selection.limit)

    def own_counts(self, selection: Selection = EVERYTHING) -> tuple[int, int]:
        """The numbers of own messages and of tool calls of the current runs of a selection."""
        with registered(self._connection, "wanted", self.key_table(selection)):
            table = fetch(
                self._connection,
                "SELECT coalesce(sum(len(roles)), 0)::BIGINT, "
                "coalesce(sum(len(call_names)), 0)::BIGINT "
                "FROM current_trajectories SEMI JOIN wanted USING (trajectory_id)",
            )
        messages, calls = (column[0].as_py() for column in table.columns)
        return messages, calls

    def export(self) -> pa.RecordBatchReader:
        """The current trajectories batch by batch."""
        return reader(self._connection, "SELECT * FROM current_trajectories")


def _unchanged(
    lineage: Mapping[str, _Link], cached: Mapping[str, Trajectory]
) -> dict[str, Trajectory]:
    """The cached trajectories that are unchanged, with unchanged histories."""
    unchanged: dict[str, Trajectory] = {}
    for name, link in sorted(lineage.items(), key=lambda item: item[1].start_ns):
        trajectory = cached.get(name)
        if trajectory is None or trajectory.rev != link.rev:
            continue
        if trajectory.history is (unchanged.get(link.history_id) if link.history_id else None):
            unchanged[name] = trajectory
    return unchanged


def _width(rows: Collection[Mapping[str, Any]]) -> int:
    """The mean bytes of some rows."""
    return sum(len(row[name]) for row in rows for name in _WIDE) // max(1, len(rows))
