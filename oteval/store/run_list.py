"""The list of runs, newest first: read page by page from columns, without their messages.

A page begins after a key, the start and id of a run, so that the thousandth page costs as much as
the first one. Messages are only read for the questions of the runs on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ..model import LISTED, LONGEST_ASKED, RunRow, Selection
from .column_sql import TOKEN_COLUMNS, listed_sql, listed_value, usage_of
from .memory import fetch, with_memory
from .query import column, condition_of, first_row, number, registered, rows_of, wanted
from .ranges import EVERYWHERE, Range
from .scores import Outcome, outcome_condition
from .trajectories import Trajectories

__all__ = ["ConversationRuns", "RunKey", "RunList", "StoreState", "VerdictFilter"]

_KEYS = pa.schema([("id", pa.string()), ("ns", pa.int64())])
# Search windows: first 10x the page size, then 1%, 3%, 10% and 30% of the remaining runs, then the
# rest. The shares come from a sample, which is faster than sorting more than 2,000 runs.
_FIRST_STRETCH, _SHARES, _SAMPLE, _MOST_SORTED = 10, (0.01, 0.03, 0.1, 0.3), 1000, 2000
_USAGE = f"{', '.join(TOKEN_COLUMNS)}, model_calls"


# Up to this many scored runs are looked up by their ids.
_FEW_SCORED = 10_000
# Few revisions are superseded: counting them is faster than leaving them out of all rows.
_COUNT = """
    SELECT (SELECT count(*) FROM trajectories)
        - (SELECT count(*) FROM trajectories SEMI JOIN superseded USING (trajectory_id, rev))
"""
# The rows of the runs of some keys.
_NUMBERS_OF = """
    SELECT seq FROM trajectories t
    SEMI JOIN wanted w ON t.trajectory_id = w.id AND t.start_ns = w.ns
    ANTI JOIN superseded USING (trajectory_id, rev)
    WHERE t.start_ns BETWEEN {first} AND {last}
"""


class RunKey(NamedTuple):
    """The place of a run in the list.

    Attributes:
        start_ns: When it began (ns since the epoch).
        id: The trajectory's id.
    """

    start_ns: int
    id: str

    @classmethod
    def of(cls, row: RunRow) -> RunKey:
        """The key of a run in the list."""
        return cls(row["started"], row.id)


@dataclass(frozen=True, slots=True)
class ConversationRuns:
    """The runs of a conversation.

    Attributes:
        count: How many there are.
        first_ns: When the first began (ns since the epoch).
        latest: The keys of the latest, the newest first.
    """

    count: int
    first_ns: int
    latest: tuple[RunKey, ...]


@dataclass(frozen=True, slots=True)
class VerdictFilter:
    """Runs that have a score with an outcome.

    Attributes:
        outcome: The outcome of the score; None for any.
        evaluators: The score is by one of these evaluators; empty for any.
    """

    outcome: Outcome | None = None
    evaluators: tuple[str, ...] = ()


class StoreState(NamedTuple):
    """The version of a store's content; pages are stale when it differs.

    Attributes:
        runs: The number of the newest row of a run.
        scores: The number of the newest score.
        rows: How many rows of runs there are; fewer after some were deleted.
        marks: How many marks were noted.
    """

    runs: int
    scores: int
    rows: int = 0
    marks: int = 0


class RunList:
    """Lists the current trajectories of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, trajectories: Trajectories) -> None:
        self._connection, self._trajectories = connection, trajectories

    def state(self) -> StoreState:
        """The version of the store's content."""
        # Every page runs this query: a union takes half as long as a row of four subqueries.
        table_states = self._connection.execute(
            "SELECT 'runs', coalesce(max(seq), 0), count(*) FROM trajectories "
            "UNION ALL SELECT 'scores', coalesce(max(seq), 0), 0 FROM scores "
            "UNION ALL SELECT 'marks', 0, count(*) FROM monitor_marks"
        ).fetchall()
        last = {name: int(seq) for name, seq, _ in table_states}
        rows = {name: int(count) for name, _, count in table_states}
        return StoreState(last["runs"], last["scores"], rows["runs"], rows["marks"])

    def find(self, name: str) -> RunKey | None:
        """The key of the current trajectory with an id, or None."""
        row = first_row(
            self._connection,
            "SELECT start_ns, trajectory_id FROM trajectories "
            "ANTI JOIN superseded USING (trajectory_id, rev) WHERE trajectory_id = ?",
            [name],
        )
        return RunKey(*row) if row else None

    def of_conversations(self, names: Sequence[str], most: int) -> dict[str, ConversationRuns]:
        """The runs of conversations; conversations without runs are left out.

        Args:
            names: The conversations.
            most: The most keys of each.
        """
        with wanted(self._connection, "conversation_id", names):
            rows = self._connection.execute(
                "SELECT conversation_id, count(*), "  # noqa: S608
                "coalesce(min(start_ns) FILTER (start_ns > 0), 0), "
                f"max({{'start_ns': start_ns, 'id': trajectory_id}}, {int(most)}) "
                "FROM trajectories ANTI JOIN superseded USING (trajectory_id, rev) "
                "SEMI JOIN wanted USING (conversation_id) GROUP BY conversation_id"
            ).fetchall()
        return {
            name: ConversationRuns(count, first_ns, tuple(RunKey(**key) for key in latest))
            for name, count, first_ns, latest in rows
        }

    def count(self, selection: Selection, most: int) -> int:
        """How many runs match the filters that have a column.

        Args:
            selection: The runs.
            most: The maximum count, unless every run matches.
        """
        clause, values = condition_of(selection)
        query = (
            "SELECT count(*) FROM (SELECT 1 FROM trajectories "  # noqa: S608
            f"ANTI JOIN superseded USING (trajectory_id, rev) WHERE {clause} LIMIT {int(most)})"
        )
        if clause == "TRUE":
            query = _COUNT
        return with_memory(self._connection, lambda: number(self._connection, query, values))

    def keys(
        self,
        selection: Selection,
        most: int,
        *,
        after: RunKey | None = None,
        verdict: VerdictFilter | None = None,
        is_forward: bool = False,
    ) -> list[RunKey]:
        """The keys of runs in the order of the list, the newest first.

        Args:
            selection: The runs, by the filters that have a column.
            most: The most keys.
            after: Only runs after this key.
            verdict: Only runs with such a score, even a replaced one.
            is_forward: List the oldest first instead.
        """
        clause, values = condition_of(selection)
        sign, order = (">", "ASC") if is_forward else ("<", "DESC")
        if after is not None:
            clause += f" AND (start_ns, trajectory_id) {sign} (?, ?)"
            values += [*after]
        ordered = f"ORDER BY start_ns {order}, trajectory_id {order}"
        stretches = self._stretches(selection, after, most, is_forward=is_forward)
        with self._scored(verdict) as (join, join_values, is_rare):
            if is_rare:
                stretches = iter([EVERYWHERE])
            keys: list[RunKey] = []
            for stretch in stretches:
                query = (
                    "SELECT start_ns, trajectory_id FROM (SELECT * FROM trajectories "  # noqa: S608
                    "ANTI JOIN superseded USING (trajectory_id, rev) WHERE start_ns "
                    f"BETWEEN {stretch.first} AND {stretch.last} AND {clause}) {join} "
                    f"{ordered} LIMIT {int(most) - len(keys)}"
                )
                rows = with_memory(
                    self._connection,
                    lambda query=query: self._connection.execute(  # type: ignore[misc]
                        query, [*values, *join_values]
                    ).fetchall(),
                )
                keys += [RunKey(*row) for row in rows]
                if len(keys) == most:
                    break
        return keys

    @contextmanager
    def _scored(self, verdict: VerdictFilter | None) -> Iterator[tuple[str, list[Any], bool]]:
        """Limit a query, in a block that runs it, to the runs with a score.

        If such runs are few, their ids are read first: no stretch needs to look at all scores.

        Yields:
            The join, its parameters, and whether such runs are few.
        """
        if verdict is None:
            yield "", [], False
            return
        conditions, values = [], list[Any]()
        if verdict.outcome:
            conditions.append(outcome_condition(verdict.outcome))
        if verdict.evaluators:
            conditions.append("list_contains(?::VARCHAR[], evaluator)")
            values.append(list(verdict.evaluators))
        query = (
            "SELECT trajectory_id FROM scores "  # noqa: S608
            f"WHERE {' AND '.join(conditions) or 'TRUE'}"
        )
        rows = self._connection.execute(f"{query} LIMIT {_FEW_SCORED + 1}", values).fetchall()
        if len(rows) > _FEW_SCORED:
            yield f"SEMI JOIN ({query}) USING (trajectory_id)", values, False
            return
        with wanted(self._connection, "trajectory_id", [name for (name,) in rows]):
            yield "SEMI JOIN wanted USING (trajectory_id)", [], True

    def _stretches(
        self, selection: Selection, after: RunKey | None, most: int, *, is_forward: bool
    ) -> Iterator[Range]:
        """Yield stretches of time in the order of the list, each with more runs than the last.

        Most pages are full after the first stretch, so only its row groups are read.
        """
        first, last = EVERYWHERE
        if selection.since_ns is not None:
            first = selection.since_ns
        if selection.until_ns is not None:
            last = selection.until_ns - 1
        if after is not None and is_forward:
            first = max(first, after.start_ns)
        elif after is not None:
            last = min(last, after.start_ns)
        unread = Range(first, last)
        for end in self._ends(unread, _FIRST_STRETCH * most, is_forward=is_forward):
            if is_forward:
                yield Range(unread.first, end)
                unread = Range(end + 1, unread.last)
            else:
                yield Range(end, unread.last)
                unread = Range(unread.first, end - 1)
        yield unread

    def _ends(self, times: Range, first: int, *, is_forward: bool) -> Iterator[int]:
        """Yield the ends (ns) of stretches: a stretch with `first` runs, then larger stretches."""
        if first <= _MOST_SORTED:
            order, end = ("ASC", "max") if is_forward else ("DESC", "min")
            row = first_row(
                self._connection,
                f"SELECT {end}(start_ns), count(*) FROM (SELECT start_ns FROM trajectories "  # noqa: S608
                f"WHERE start_ns BETWEEN {times.first} AND {times.last} "
                f"ORDER BY start_ns {order} LIMIT {int(first)})",
            )
            if row is None or row[1] < first:
                return
            yield row[0]
            near = row[0]
            times = Range(near + 1, times.last) if is_forward else Range(times.first, near - 1)
        rows = column(
            self._connection,
            "SELECT start_ns FROM (SELECT start_ns FROM trajectories "  # noqa: S608
            f"WHERE start_ns BETWEEN {times.first} AND {times.last}) "
            f"USING SAMPLE reservoir({_SAMPLE} ROWS)",
        )
        starts = sorted(set(rows), reverse=not is_forward)
        yield from (starts[at] for share in _SHARES if (at := int(share * len(starts))))

    def containing(self, keys: Sequence[RunKey], words: Sequence[str]) -> list[RunKey]:
        """The runs that may contain some words, without parsing their messages.

        Args:
            keys: The runs.
            words: The words in lower case, of printable ASCII characters that JSON does not escape.
        """
        if not keys or not words:
            return list(keys)
        quoted_words = (word.replace("'", "''") for word in words)
        condition = " AND ".join(f"contains(lower(messages), '{word}')" for word in quoted_words)
        extent = _extent(keys)
        with registered(self._connection, "wanted", _table_of(keys)):
            table = fetch(
                self._connection,
                "SELECT trajectory_id FROM trajectories t "  # noqa: S608
                "SEMI JOIN wanted w ON t.trajectory_id = w.id AND t.start_ns = w.ns "
                f"WHERE {condition} AND t.start_ns BETWEEN {extent.first} AND {extent.last}",
            )
        rows = set(table["trajectory_id"].to_pylist())
        return [key for key in keys if key.id in rows]

    def rows(
        self,
        keys: Sequence[RunKey],
        names: Sequence[str] = LISTED,
        longest: int = LONGEST_ASKED,
    ) -> list[RunRow]:
        """The runs of some keys in their order, without runs that have changed since.

        Args:
            keys: The keys.
            names: The columns to read.
            longest: The maximum length of a question.
        """
        if not keys:
            return []
        # DuckDB finds the wide columns of a row faster by the row's number than by two columns.
        with registered(self._connection, "wanted", _table_of(keys)):
            numbers = fetch(self._connection, _NUMBERS_OF.format(**_extent(keys)._asdict()))
        if not len(numbers):
            return []
        column, names = numbers["seq"], (*dict.fromkeys(("id", "started", *names)),)
        with registered(self._connection, "wanted", numbers):
            table = fetch(
                self._connection,
                f"SELECT {', '.join(_listed(name, longest) for name in names)}, {_USAGE} "  # noqa: S608
                "FROM trajectories SEMI JOIN wanted USING (seq) "
                f"WHERE seq BETWEEN {pc.min(column).as_py()} AND {pc.max(column).as_py()}",
            )
        rows: dict[str, RunRow] = {}
        unread: dict[str, int] = {}
        for row in rows_of(table):
            try:
                values = {name: listed_value(name, row[f"column_{name}"]) for name in names}
            except LookupError:
                unread[row["column_id"]] = row["column_started"]
                continue
            rows[values["id"]] = RunRow(values, usage_of(row))
        for run in self._trajectories.starting_at(unread).values() if unread else ():
            rows[run.id] = RunRow.of(run, names, longest)
        return [rows[key.id] for key in keys if key.id in rows]


def _listed(name: str, longest: int) -> str:
    """The value of a column, under a name that no column of the table has."""
    value = listed_sql(name)
    if name == "asked":
        value = f"left({value}, {int(longest)})"
    return f"{value} AS column_{name}"


def _table_of(keys: Sequence[RunKey]) -> pa.Table:
    columns = {"id": [key.id for key in keys], "ns": [key.start_ns for key in keys]}
    return pa.table(columns, schema=_KEYS)


def _extent(keys: Sequence[RunKey]) -> Range:
    """The times between the first and the last start of some runs."""
    starts = [key.start_ns for key in keys]
    return Range(min(starts), max(starts))
