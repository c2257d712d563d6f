"""Statistics of stored runs and their current scores, counted in SQL without reading the runs.

Runs may be compared in groups, paired by case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from ..model import Score, Selection
from .column_sql import HAS_TOKENS, ONE_MODEL, TOKEN_SUMS, measure_sql
from .current_scores import current_scores, replaced_scores
from .memory import fetch
from .query import condition_of, is_exact, new_cursor, registered, whole_numbers
from .run_fields import (
    RunExpression,
    RunFields,
    RunFunction,
    RunGroups,
    case_column,
    number_of,
    selected,
)
from .scores import HAS_UNKNOWN_COST, REPORTED_COST, score_of
from .trajectories import Trajectories

__all__ = ["CaseComparison", "RunStatistics", "SelectedRuns"]

_BATCH = 4096
# Runs with a limit are marked as well: DuckDB 1.5 loses scores in a join with a limited query.
_RUNS = """
    runs AS NOT MATERIALIZED (
        SELECT *, 0 AS group_number, 0 AS case_number
        FROM current_trajectories WHERE {clause}
    )
"""
_MARKED = """
    runs AS NOT MATERIALIZED (
        SELECT t.*, group_number, case_number
        FROM current_trajectories t JOIN marked USING (trajectory_id)
    )
"""
_GROUPS = """
    SELECT group_number FROM marked GROUP BY group_number
    ORDER BY min({'start_ns': start_ns, 'trajectory_id': trajectory_id})
"""
_TOKENS = ", ".join(
    f"sum({name}) FILTER ({HAS_TOKENS})::HUGEINT AS {name}"
    for name in ("input_tokens", "output_tokens", "cached_tokens")
)
_FIGURES = f"""
    SELECT count(*) AS runs,
        min(start_ns) FILTER (start_ns <> 0) AS first_ns, max(start_ns) AS last_ns,
        list(DISTINCT agent ORDER BY agent) AS agents,
        count(DISTINCT hash(service, conversation_id)) FILTER (conversation_id <> '')
            AS conversations,
        {_TOKENS},
        count(*) FILTER ({HAS_TOKENS}) AS counted,
        count(*) FILTER (len(gap_codes) > 0) AS runs_with_gaps
    FROM runs
"""  # noqa: S608
_CASES = f"""
    SELECT count(DISTINCT case_number) AS cases,
        count(*) FILTER (case_number = {number_of("trajectory_id")}) AS unpaired
    FROM marked
"""  # noqa: S608
_NUMBERS = f"""
    SELECT group_number, {measure_sql("latency")} AS seconds, {measure_sql("tokens")} AS tokens
    FROM runs
"""  # noqa: S608
_SHAPES = """
    SELECT call_names, call_messages, call_errors, count(*) AS runs
    FROM runs WHERE len(call_names) > 0 GROUP BY ALL
    ORDER BY min(start_ns), min(trajectory_id)
"""
_USAGES = f"""
    SELECT {ONE_MODEL} AS model, count(*) AS runs, {TOKEN_SUMS}
    FROM runs WHERE {ONE_MODEL} IS NOT NULL GROUP BY ALL
"""  # noqa: S608
_NEWEST = f"""
    newest AS NOT MATERIALIZED (
        SELECT s.*, start_ns, group_number, case_number
        FROM {current_scores(replaced="replaced")} s
        JOIN (SELECT trajectory_id, start_ns, group_number, case_number FROM runs)
        USING (trajectory_id) WHERE {{scored}}
    )
"""  # noqa: S608
_JUDGED = "status = 'error' OR passed IS NOT NULL"
_VERDICTS = f"""
    SELECT evaluator, group_number, place, min(start_ns) AS first,
        count(*) FILTER (status = 'error') AS errors,
        count(*) FILTER (status = 'not_evaluated') AS not_evaluated,
        count(*) FILTER (status = 'ok' AND passed) AS passed,
        count(*) FILTER (status = 'ok' AND NOT passed) AS failed,
        count(*) FILTER (status = 'ok' AND passed IS NULL) AS unjudged,
        count(*) FILTER ({_JUDGED}) AS judged,
        count(*) FILTER (({_JUDGED}) AND passed) AS judged_passed,
        list(score) FILTER (score IS NOT NULL) AS scores,
        sum(cost) FILTER (cost >= 0 AND isfinite(cost)) AS cost,
        count(*) FILTER (has_unknown_cost) AS unpriced
    FROM (
        SELECT *, {REPORTED_COST} AS cost, {HAS_UNKNOWN_COST} AS has_unknown_cost,
            CASE WHEN start_ns <> 0 THEN least(
            trunc((start_ns::HUGEINT - {{first}})::DOUBLE / {{step}}), {{last_place}}
        )::INTEGER END AS place
        FROM newest
    )
    GROUP BY evaluator, group_number, place ORDER BY first, evaluator
"""  # noqa: S608
# The share of passes of each case.
_SHARES = f"""
    SELECT evaluator, group_number, fsum(share) AS total, count(*) AS cases FROM (
        SELECT evaluator, group_number, case_number,
            avg(coalesce(passed, FALSE)::INTEGER) AS share
        FROM newest WHERE {_JUDGED} GROUP BY ALL
    ) GROUP BY ALL
"""  # noqa: S608
# The compared values of cases: the share of passes, else the mean score.
_DIFFERENCES = """
, cases AS (
        SELECT evaluator, group_number, case_number, count(passed) > 0 AS is_share,
            CASE WHEN is_share THEN avg(passed::INTEGER) ELSE avg(score) END AS value
        FROM newest GROUP BY ALL HAVING value IS NOT NULL
    )
    SELECT evaluator, group_number, is_share, list(base_value) AS base_values,
        list(value) AS values, list(cases) AS cases
    FROM (
        SELECT evaluator, now.group_number AS group_number, is_share, base.value AS base_value,
            now.value AS value, count(*) AS cases
        FROM cases now JOIN cases base USING (evaluator, case_number, is_share)
        WHERE base.group_number = {base} AND now.group_number <> {base}
        GROUP BY ALL
    ) GROUP BY ALL
"""
_BAD = """
    CASE WHEN status = 'error' OR (status = 'ok' AND NOT passed) THEN 0
        WHEN status = 'not_evaluated' THEN 1 ELSE 2 END
"""
_WORST = f"""
    SELECT trajectory_id, start_ns FROM (
        SELECT trajectory_id, start_ns, coalesce(bad, 2) AS bad
        FROM (SELECT trajectory_id, start_ns FROM runs) LEFT JOIN (
            SELECT trajectory_id, min({_BAD}) AS bad FROM newest
            WHERE ({_BAD}) < 2 GROUP BY trajectory_id
        ) USING (trajectory_id)
        ORDER BY bad, start_ns DESC, trajectory_id DESC LIMIT {{most}}
    ) ORDER BY start_ns, trajectory_id
"""  # noqa: S608
_FAILURES = """
    SELECT * FROM newest WHERE status <> 'ok' OR NOT passed
    ORDER BY start_ns, trajectory_id, evaluator LIMIT {most}
"""


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """The cases that an evaluator judged in two groups.

    Attributes:
        evaluator: The evaluator.
        group: The group that is compared with the baseline.
        is_share: Whether the values are shares of passes, else mean scores.
        base_values: The different values of cases in the baseline.
        values: The values of the same cases in the group.
        cases: The numbers of cases with these values.
    """

    evaluator: str
    group: str
    is_share: bool
    base_values: Sequence[float]
    values: Sequence[float]
    cases: Sequence[int]


class RunStatistics:
    """Counts the trajectories of a store and their scores."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, trajectories: Trajectories) -> None:
        self._connection = connection
        self._fields = RunFields(connection, trajectories.at)

    def of(
        self,
        selection: Selection,
        evaluators: Sequence[str] = (),
        groups: RunGroups | None = None,
    ) -> SelectedRuns:
        """The statistics of some runs.

        Args:
            selection: The runs.
            evaluators: Only scores by these; by all when empty.
            groups: How to compare them; None for one group named "".
        """
        clause, values = condition_of(selection)
        exact = is_exact(selection)
        if groups is None and selection.limit is None and exact:
            return SelectedRuns(self._connection, _RUNS.format(clause=clause), values, evaluators)
        functions: dict[str, RunFunction | RunExpression] = {**_ONE_GROUP}
        if groups is not None:
            functions["group"] = groups.group
            functions["case_number"] = case_column(groups.case_attributes)
        query = f"SELECT * FROM current_trajectories WHERE {clause}"  # noqa: S608
        if exact and selection.limit is not None:
            query += f" ORDER BY start_ns DESC, trajectory_id DESC LIMIT {int(selection.limit)}"
        run_filter = None if exact else selected(selection)
        runs = self._fields.results(query, values, functions, run_filter)
        if not exact:
            latest = [("start_ns", "descending"), ("trajectory_id", "descending")]
            runs = runs.sort_by(latest).slice(0, selection.limit)
        encoded = runs["group"].combine_chunks().dictionary_encode()
        runs = runs.drop_columns(["group"]).append_column("group_number", encoded.indices)
        names = encoded.dictionary.to_pylist()
        return SelectedRuns(self._connection, _MARKED, [], evaluators, runs, names)


_ONE_GROUP = {
    "group": RunExpression("''", (), lambda _: "", pa.string()),
    "case_number": RunExpression("0::BIGINT", (), lambda _: 0, pa.int64()),
}


class SelectedRuns:
    """The statistics of some runs.

    Attributes:
        groups: The names of the groups, in the order of their first runs.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        runs: str,
        values: list[Any],
        evaluators: Sequence[str],
        marked: pa.Table | None = None,
        names: Sequence[str] = ("",),
    ) -> None:
        self._connection = connection
        self._runs, self._values = runs, values
        self._evaluators = list(evaluators)
        self._replaced: pa.Table | None = None
        self._marked = marked
        self._names = names
        self.groups: tuple[str, ...] = ("",)
        if marked is not None:
            numbers = self._table(_GROUPS, [])["group_number"].to_pylist()
            self.groups = tuple(names[number] for number in numbers)

    def figures(self) -> dict[str, Any]:
        """Return counts over all runs.

        They are ``runs``, ``first_ns`` and ``last_ns`` (starts of runs), ``agents``,
        ``conversations``, ``input_tokens``, ``output_tokens``, ``cached_tokens``, ``counted`` (runs
        that report tokens) and ``runs_with_gaps``.
        """
        return self._rows(_FIGURES)[0]

    def cases(self) -> tuple[int, int]:
        """The number of cases, and the number of runs that cannot be paired; 0 without groups."""
        if self._marked is None:
            return 0, 0
        (row,) = self._table(_CASES, []).to_pylist()
        return row["cases"], row["unpaired"]

    def numbers(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield groups with ``seconds`` and ``tokens`` of runs, NULL where unknown, in batches."""
        import pyarrow.compute as pc  # takes a tenth of a second, and few commands need it

        for batch in self._batches(_NUMBERS):
            if len(self.groups) == 1:
                yield self.groups[0], batch
                continue
            for number in batch["group_number"].unique().to_pylist():
                yield self._names[number], batch.filter(pc.equal(batch["group_number"], number))

    def shapes(self) -> Iterator[dict[str, Any]]:
        """Yield the different calls of runs with the number of runs, by the first run.

        They are ``call_names``, ``call_messages`` and ``call_errors``, columns of the store.
        """
        for batch in self._batches(_SHAPES):
            yield from batch.to_pylist()

    def usages(self) -> list[dict[str, Any]]:
        """The sums of tokens by ``model``, over runs of a single model.

        They are ``runs`` and the columns that `column_sql.usage_of` reads.
        """
        return self._rows(_USAGES)

    def verdicts(self, first_ns: int, step_ns: float, places: int) -> pa.Table:
        """Count verdicts by evaluator, group and time.

        Args:
            first_ns: When the first stretch of time begins.
            step_ns: The length of a stretch.
            places: The number of stretches; the last one has all later runs as well.

        Returns:
            Rows in the order of the first runs: ``evaluator``; ``group``; ``place``, the number of
            the stretch, NULL for runs without a time; the counts ``errors``, ``not_evaluated``,
            ``passed``, ``failed``, ``unjudged``, ``judged`` and ``judged_passed``; the list
            ``scores``; ``cost``; and ``unpriced``, the number whose cost is unknown.
        """
        query = _VERDICTS.format(first=first_ns, step=repr(step_ns), last_place=places - 1)
        return self._named(self._scored(query))

    def shares(self) -> list[dict[str, Any]]:
        """The sums of the shares of passes of cases, by ``evaluator`` and ``group``.

        They are ``total``, over the ``cases`` that were judged or failed to be.
        """
        return list(self._named(self._scored(_SHARES)).to_pylist())

    def comparisons(self, baseline: str) -> Iterator[CaseComparison]:
        """Yield the comparisons of each group with the baseline, by evaluator."""
        query = _DIFFERENCES.format(base=self._names.index(baseline))
        for row in self._named(self._scored(query)).to_pylist():
            yield CaseComparison(**row)

    def _named(self, table: pa.Table) -> pa.Table:
        """A table with the names of groups instead of their numbers."""
        names = [self._names[number] for number in table["group_number"].to_pylist()]
        return table.drop_columns(["group_number"]).append_column("group", [pa.array(names, "str")])

    def worst(self, most: int) -> pa.Table:
        """Return failed runs, then runs not evaluated, then others; the latest of each.

        Returns:
            At most `most` runs, as a table of `Trajectories.keys`, by start.
        """
        return self._scored(_WORST.format(most=int(most)))

    def failures(self, most: int) -> list[Score]:
        """The first scores that are fails, errors, or not evaluated."""
        table = self._scored(_FAILURES.format(most=int(most)))
        return [score_of(row) for row in table.to_pylist()]

    def _scored(self, query: str) -> pa.Table:
        scored, values = "TRUE", self._values
        if self._evaluators:
            scored = "list_contains(?::VARCHAR[], evaluator)"
            values = [*values, self._evaluators]
        if self._replaced is None:
            self._replaced = self._table(f"FROM {replaced_scores()}", [])
        text = f"WITH {self._runs}, {_NEWEST.format(scored=scored)} {query}"
        with registered(self._connection, "replaced", self._replaced):
            return self._table(text, values)

    def _rows(self, query: str) -> list[dict[str, Any]]:
        text = f"WITH {self._runs} {query}"
        table = self._table(text, self._values)
        return [whole_numbers(row) for row in table.to_pylist()]

    def _batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the result of a query of runs batch by batch."""
        cursor = new_cursor(self._connection)
        with self._registered(cursor):
            text = f"WITH {self._runs} {query}"
            yield from cursor.sql(text, params=self._values).to_arrow_reader(_BATCH)

    def _table(self, query: str, values: Sequence[Any]) -> pa.Table:
        with self._registered(self._connection):
            return fetch(self._connection, query, values)

    @contextmanager
    def _registered(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Make the marked runs available to the queries of a block."""
        if self._marked is None:
            yield
            return
        with registered(connection, "marked", self._marked):
            yield
