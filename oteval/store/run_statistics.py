"""Statistics of stored runs and their newest scores, counted in SQL without reading the runs.

A selection's conditions must all have columns (`oteval.store.query.is_exact`). The newest score of
each evaluator on a run counts, whatever its version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from ..model import Score
from ..selection import Selection
from .memory import with_memory
from .query import condition_of, reader, registered
from .scores import score_of

__all__ = ["RunStatistics", "SelectedRuns"]

_RUNS = """
    runs AS NOT MATERIALIZED (
        SELECT * FROM current_trajectories WHERE {clause} {last}
    )
"""
_FIGURES = """
    SELECT count(*) AS runs,
        min(start_ns) FILTER (start_ns <> 0) AS first_ns, max(start_ns) AS last_ns,
        list(DISTINCT agent ORDER BY agent) AS agents,
        count(DISTINCT hash(service, conversation_id)) FILTER (conversation_id <> '')
            AS conversations,
        sum(input_tokens)::HUGEINT AS input_tokens, sum(output_tokens)::HUGEINT AS output_tokens,
        sum(cached_tokens)::HUGEINT AS cached_tokens,
        count(*) FILTER (len(gap_codes) > 0) AS runs_with_gaps
    FROM runs
"""
_NUMBERS = """
    SELECT
        CASE WHEN end_ns > start_ns THEN (end_ns::HUGEINT - start_ns)::DOUBLE / 1e9 END AS seconds,
        CASE WHEN model_calls <> 0
            THEN (input_tokens::HUGEINT + output_tokens)::DOUBLE END AS tokens
    FROM runs
"""
_SHAPES = """
    SELECT call_names, call_messages, call_errors, count(*) AS runs
    FROM runs WHERE len(call_names) > 0 GROUP BY ALL
    ORDER BY min(start_ns), min(trajectory_id)
"""
_USAGES = """
    SELECT models[1] AS model, count(*) AS runs, sum(cached_tokens)::HUGEINT AS cached,
        sum(greatest(input_tokens::HUGEINT - cached_tokens, 0))::HUGEINT AS uncached,
        sum(output_tokens)::HUGEINT AS output
    FROM runs WHERE len(models) = 1 AND model_calls <> 0 GROUP BY ALL
"""
_KEY = "hash(trajectory_id, evaluator)"
# Only scores that share the hash of their key with others are sorted: few, unless runs were scored
# again.
_REPLACED = f"""
    WITH repeated AS (SELECT {_KEY} AS key FROM scores GROUP BY key HAVING count(*) > 1)
    SELECT seq FROM scores SEMI JOIN repeated ON {_KEY} = key
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, evaluator ORDER BY seq DESC) > 1
"""  # noqa: S608
_NEWEST = """
    newest AS NOT MATERIALIZED (
        SELECT s.*, start_ns FROM (SELECT * FROM scores ANTI JOIN replaced USING (seq)) s
        JOIN (SELECT trajectory_id, start_ns FROM runs) USING (trajectory_id) WHERE {scored}
    )
"""
_JUDGED = "status = 'error' OR passed IS NOT NULL"
# As `oteval.model.reported_cost`: the first of the two that is a number. Only metadata that may
# have a cost is parsed.
_COST = """
    CASE WHEN contains(metadata, '"cost') THEN list_filter(
        list_transform(
            json_extract(metadata, ['$.cost_usd', '$.cost']),
            lambda found: TRY_CAST(found::VARCHAR AS DOUBLE)
        ),
        lambda found: found IS NOT NULL
    )[1] END
"""
_VERDICTS = f"""
    SELECT evaluator, place, min(start_ns) AS first,
        count(*) FILTER (status = 'error') AS errors,
        count(*) FILTER (status = 'not_evaluated') AS not_evaluated,
        count(*) FILTER (status = 'ok' AND passed) AS passed,
        count(*) FILTER (status = 'ok' AND NOT passed) AS failed,
        count(*) FILTER (status = 'ok' AND passed IS NULL) AS unjudged,
        count(*) FILTER ({_JUDGED}) AS judged,
        count(*) FILTER (({_JUDGED}) AND passed) AS judged_passed,
        list(score) FILTER (score IS NOT NULL) AS scores,
        sum(cost) FILTER (cost >= 0 AND isfinite(cost)) AS cost
    FROM (
        SELECT *, {_COST} AS cost, CASE WHEN start_ns <> 0 THEN least(
            trunc((start_ns::HUGEINT - {{first}})::DOUBLE / {{step}}), {{last_place}}
        )::INTEGER END AS place
        FROM newest
    )
    GROUP BY evaluator, place ORDER BY first, evaluator
"""  # noqa: S608
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


class RunStatistics:
    """Counts the trajectories of a store and their scores."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def of(self, selection: Selection, evaluators: Sequence[str] = ()) -> SelectedRuns:
        """Return the statistics of some runs.

        Args:
            selection: The runs; a selection that `oteval.store.query.is_exact` accepts.
            evaluators: Only scores by these; by all when empty.
        """
        return SelectedRuns(self._connection, selection, evaluators)


class SelectedRuns:
    """The statistics of some runs."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        selection: Selection,
        evaluators: Sequence[str],
    ) -> None:
        self._connection = connection
        clause, self._values = condition_of(selection)
        last = ""
        if selection.limit is not None:
            last = f"ORDER BY start_ns DESC, trajectory_id DESC LIMIT {int(selection.limit)}"
        self._runs = _RUNS.format(clause=clause, last=last)
        self._evaluators = list(evaluators)
        self._replaced: pa.Table | None = None

    def figures(self) -> dict[str, Any]:
        """Return counts over all runs.

        They are ``runs``, ``first_ns`` and ``last_ns`` (starts of runs), ``agents``,
        ``conversations``, ``input_tokens``, ``output_tokens``, ``cached_tokens`` and
        ``runs_with_gaps``.
        """
        return self._rows(_FIGURES)[0]

    def numbers(self) -> pa.RecordBatchReader:
        """Return ``seconds`` and ``tokens`` of each run, NULL where unknown, batch by batch."""
        return reader(self._connection, f"WITH {self._runs} {_NUMBERS}", self._values)

    def shapes(self) -> Iterator[dict[str, Any]]:
        """Yield the different calls of runs with the number of runs, by the first run.

        They are ``call_names``, ``call_messages`` and ``call_errors``, columns of the store.
        """
        for batch in reader(self._connection, f"WITH {self._runs} {_SHAPES}", self._values):
            yield from batch.to_pylist()

    def usages(self) -> list[dict[str, Any]]:
        """Return the sums of tokens by ``model``, over runs of a single model.

        They are ``runs``, ``uncached`` and ``cached`` input tokens, and ``output`` tokens.
        """
        return self._rows(_USAGES)

    def verdicts(self, first_ns: int, step_ns: float, places: int) -> pa.Table:
        """Count verdicts by evaluator and time.

        Args:
            first_ns: When the first stretch of time begins.
            step_ns: The length of a stretch.
            places: The number of stretches; the last one has all later runs as well.

        Returns:
            Rows in the order of the first runs: ``evaluator``; ``place``, the number of the
            stretch, NULL for runs without a time; the counts ``errors``, ``not_evaluated``,
            ``passed``, ``failed``, ``unjudged``, ``judged`` and ``judged_passed``; the list
            ``scores``; and ``cost``.
        """
        query = _VERDICTS.format(first=first_ns, step=repr(step_ns), last_place=places - 1)
        return self._scored(query)

    def worst(self, most: int) -> pa.Table:
        """Return the runs that failed, then those not evaluated, then others; the latest of each.

        Returns:
            At most so many, as a table of `Trajectories.keys`, by start.
        """
        return self._scored(_WORST.format(most=int(most)))

    def failures(self, most: int) -> list[Score]:
        """Return the first scores that are fails, errors, or not evaluated."""
        table = self._scored(_FAILURES.format(most=int(most)))
        return [score_of(row) for row in table.to_pylist()]

    def _scored(self, query: str) -> pa.Table:
        scored, values = "TRUE", self._values
        if self._evaluators:
            scored = "list_contains(?::VARCHAR[], evaluator)"
            values = [*values, self._evaluators]
        if self._replaced is None:
            self._replaced = self._table(_REPLACED, [])
        text = f"WITH {self._runs}, {_NEWEST.format(scored=scored)} {query}"
        with registered(self._connection, "replaced", self._replaced):
            return self._table(text, values)

    def _rows(self, query: str) -> list[dict[str, Any]]:
        text = f"WITH {self._runs} {query}"
        table = self._table(text, self._values)
        return [
            {name: int(v) if isinstance(v, Decimal) else v for name, v in row.items()}
            for row in table.to_pylist()
        ]

    def _table(self, query: str, values: Sequence[Any]) -> pa.Table:
        return with_memory(
            self._connection,
            lambda: self._connection.sql(query, params=list(values)).to_arrow_table(),
        )
