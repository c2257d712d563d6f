"""Figures of agents: their runs, tokens and verdicts in a stretch of time, counted in SQL.

A run without an agent counts for its service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from ..model import Usage
from .column_sql import COLUMN_SQL, ONE_MODEL, TOKEN_COLUMNS, TOKEN_SUMS, usage_of
from .current_scores import current_scores
from .memory import fetch
from .query import first_row, rows_of, whole_numbers

__all__ = ["AgentFigures", "AgentRuns", "AgentVerdicts"]

_RUNS = f"""
    runs AS (
        SELECT trajectory_id, coalesce(nullif(agent, ''), '') AS agent,
            CASE WHEN coalesce(agent, '') = '' THEN coalesce(service, '') ELSE '' END AS service,
            start_ns, end_ns, models, {", ".join(TOKEN_COLUMNS)}, model_calls,
            len(gap_codes) > 0 AS has_gaps, list_contains(call_errors, TRUE) AS has_failures,
            least(((start_ns::HUGEINT - $first) // $step)::INTEGER, $places - 1) AS place
        FROM trajectories ANTI JOIN superseded USING (trajectory_id, rev)
        WHERE start_ns BETWEEN $first AND $last
    )
"""  # noqa: S608
_AGENTS = f"""
    WITH {_RUNS}
    SELECT agent, service, count(*) AS runs, max(start_ns) AS last_ns,
        count(*) FILTER (has_failures) AS failing, count(*) FILTER (has_gaps) AS with_gaps,
        quantile_cont({COLUMN_SQL["seconds"].sql}, [0.5, 0.95]) AS seconds,
        map_entries(histogram(place)) AS places
    FROM runs GROUP BY agent, service ORDER BY runs DESC, agent, service LIMIT {{most}}
"""  # noqa: S608
_TOKENS = f"""
    WITH {_RUNS}
    SELECT agent, service, {ONE_MODEL} AS model, count(*) AS runs,
        {TOKEN_SUMS}
    FROM runs WHERE {ONE_MODEL} IS NOT NULL GROUP BY ALL
"""  # noqa: S608
_VERDICTS = f"""
    WITH {_RUNS},
    scored AS MATERIALIZED (
        SELECT s.trajectory_id, s.evaluator, s.version, s.rev, s.seq, s.status, s.passed, s.score,
            r.agent, r.service, r.place
        FROM scores s JOIN runs r USING (trajectory_id)
    )
    SELECT agent, service, evaluator, place,
        count(*) FILTER (status = 'ok' AND passed) AS passed,
        count(*) FILTER (status = 'ok' AND NOT passed) AS failed,
        count(*) FILTER (status = 'error') AS errors,
        count(*) FILTER (status = 'not_evaluated') AS not_evaluated,
        count(score) FILTER (status = 'ok' AND passed IS NULL) AS scored,
        sum(score) FILTER (status = 'ok' AND passed IS NULL) AS total
    FROM {current_scores("scored")}
    GROUP BY agent, service, evaluator, place ORDER BY evaluator, place
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class AgentVerdicts:
    """The verdicts of an evaluator on an agent's runs.

    Attributes:
        evaluator: The evaluator.
        passed: The number of passes.
        failed: The number of fails.
        errors: The number of runs that made the evaluator fail.
        not_evaluated: The number of runs that it could not judge.
        mean: The mean of the scores without a pass or fail; None without such scores.
        places: Passes and judged runs (errors included) by the place in time.
    """

    evaluator: str
    passed: int
    failed: int
    errors: int
    not_evaluated: int
    mean: float | None
    places: tuple[tuple[int, int], ...]

    @property
    def judged(self) -> int:
        """The number of passes, fails and errors."""
        return self.passed + self.failed + self.errors


@dataclass(frozen=True, slots=True)
class AgentRuns:
    """The runs of an agent, or of a service whose runs have no agent.

    Attributes:
        agent: The agent, or "".
        service: The service of runs without an agent, or "".
        runs: The number of runs.
        last_ns: When the latest began (ns since the epoch).
        failing: The number of runs with a failed call.
        with_gaps: The number of runs with a gap.
        seconds: The median and the 95% quantile of their durations; None if unknown.
        places: The number of runs by the place in time.
        tokens: For its runs of a single model: the model, the number of runs, and their tokens.
        verdicts: The verdicts by evaluator.
    """

    agent: str
    service: str
    runs: int
    last_ns: int
    failing: int
    with_gaps: int
    seconds: tuple[float, float] | None
    places: tuple[int, ...]
    tokens: tuple[tuple[str, int, Usage], ...]
    verdicts: tuple[AgentVerdicts, ...]


class AgentFigures:
    """Counts the runs of each agent in a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def extent(self, now_ns: int | None = None) -> tuple[int, int] | None:
        """When the first and the last run began (ns since the epoch), or None.

        Args:
            now_ns: The last run must begin by this time, unless all runs begin later. None for any
                time.
        """
        bounds = first_row(
            self._connection,
            "SELECT min(start_ns), coalesce(max(start_ns) FILTER (start_ns <= ?), max(start_ns)) "
            "FROM trajectories WHERE start_ns <> 0",
            [now_ns],
        )
        return (bounds[0], bounds[1]) if bounds and bounds[0] is not None else None

    def outside(self, now_ns: int) -> tuple[int, int]:
        """The number of runs without a start, and of runs that begin after a time (ns)."""
        counts = first_row(
            self._connection,
            "SELECT count(*) FILTER (start_ns = 0), count(*) FILTER (start_ns > ?) "
            "FROM current_trajectories WHERE start_ns = 0 OR start_ns > ?",
            [now_ns, now_ns],
        )
        return (int(counts[0]), int(counts[1])) if counts else (0, 0)

    def services(self, first_ns: int, last_ns: int) -> dict[str, set[str]]:
        """The services of each agent's runs, under "" for runs without an agent.

        Args:
            first_ns: The earliest start of a run (ns since the epoch).
            last_ns: The latest start of a run.
        """
        rows = self._connection.execute(
            "SELECT DISTINCT coalesce(agent, ''), coalesce(service, '') FROM trajectories "
            "WHERE start_ns BETWEEN ? AND ?",
            [first_ns, last_ns],
        ).fetchall()
        services_by_agent: dict[str, set[str]] = {}
        for agent, service in rows:
            services_by_agent.setdefault(agent, set()).add(service)
        return services_by_agent

    def of(self, first_ns: int, last_ns: int, places: int, most: int) -> tuple[AgentRuns, ...]:
        """The figures of agents, most runs first.

        Args:
            first_ns: The earliest start of a run (ns since the epoch).
            last_ns: The latest start of a run.
            places: The number of stretches of time to count by.
            most: The most agents.
        """
        step = max(1, -(-(last_ns - first_ns + 1) // places))
        values = {"first": first_ns, "last": last_ns, "step": step, "places": places}
        tokens: dict[tuple[str, str], list[tuple[str, int, Usage]]] = {}
        for row in self._rows(_TOKENS, values):
            key = (row["agent"], row["service"])
            tokens.setdefault(key, []).append((row["model"], row["runs"], usage_of(row)))
        verdicts: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
        for row in self._rows(_VERDICTS, values):
            of_agent = verdicts.setdefault((row["agent"], row["service"]), {})
            of_agent.setdefault(row["evaluator"], []).append(row)
        agents = []
        for row in self._rows(_AGENTS.format(most=int(most)), values):
            key = (row["agent"], row["service"])
            counts = {entry["key"]: entry["value"] for entry in row["places"] or ()}
            seconds = row["seconds"]
            agents.append(
                AgentRuns(
                    agent=row["agent"],
                    service=row["service"],
                    runs=row["runs"],
                    last_ns=row["last_ns"],
                    failing=row["failing"],
                    with_gaps=row["with_gaps"],
                    seconds=(seconds[0], seconds[1]) if seconds else None,
                    places=tuple(counts.get(index, 0) for index in range(places)),
                    tokens=tuple(tokens.get(key, ())),
                    verdicts=tuple(
                        _verdicts(name, rows, places)
                        for name, rows in verdicts.get(key, {}).items()
                    ),
                )
            )
        return tuple(agents)

    def _rows(self, query: str, values: Mapping[str, int]) -> list[dict[str, Any]]:
        return [whole_numbers(row) for row in rows_of(fetch(self._connection, query, values))]


def _verdicts(evaluator: str, rows: Sequence[Mapping[str, Any]], places: int) -> AgentVerdicts:
    sums = {
        name: sum(row[name] for row in rows)
        for name in ("passed", "failed", "errors", "not_evaluated", "scored")
    }
    total = sum(row["total"] or 0.0 for row in rows)
    by_place = {row["place"]: row for row in rows}
    counted = tuple(
        (row["passed"], row["passed"] + row["failed"] + row["errors"])
        if (row := by_place.get(index))
        else (0, 0)
        for index in range(places)
    )
    scored = sums.pop("scored")
    return AgentVerdicts(evaluator, **sums, mean=total / scored if scored else None, places=counted)
