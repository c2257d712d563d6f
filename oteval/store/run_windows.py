"""The runs of a monitor's group in a period, with their values: the evidence of a change.

Unlike `observations`, this reads by time instead of by the order of storage, and returns single
runs with their tools, model and version. At most so many runs of the period are read, the latest.

Tables: ``trajectories`` and ``scores`` are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import duckdb
import pyarrow as pa

from .observations import (
    COST,
    RUN_VALUES,
    SCORE_VALUES,
    ObservationSource,
    matching,
    prices_of,
    text_of,
)

__all__ = ["DIMENSIONS", "RunWindows"]

DIMENSIONS = ("tools", "model", "version", "agent", "service")
"""The values by which runs are divided into slices: columns of the result."""

# Scores are looked for of at most so many runs.
_CANDIDATES = 20_000


class RunWindows:
    """Reads the runs of monitors' groups in periods."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def latest(
        self,
        source: ObservationSource,
        group: str,
        *,
        since_ns: int,
        until_ns: int,
        most: int,
        version: str = "",
        accepts: Callable[[Collection[str]], Collection[str]] | None = None,
    ) -> pa.Table:
        """Return the latest runs of a group that ended in a period and have a value.

        Args:
            source: The observations of the monitor.
            group: The group's values, as a JSON list.
            since_ns: The start of the period (ns).
            until_ns: Its end (ns), inclusive.
            most: The most runs.
            version: The version of the evaluator.
            accepts: Returns those of some trajectories that match conditions which SQL cannot
                check; None without such conditions.

        Returns:
            A table with ``trajectory_id``, ``conversation``, ``value``, ``variant``, ``time_ns``
            and the `DIMENSIONS`, by time.
        """
        period = [since_ns, until_ns]
        runs, values = _runs(source, group, period)
        if source.evaluator is None:
            query, values = f"{runs} LIMIT ?", [*values, most]
        else:
            query = _SCORED.format(runs=runs, **_score_parts(source.measure))
            values += [_CANDIDATES, source.evaluator, version, most]
        columns = ("trajectory_id", "conversation", "value", "variant", *DIMENSIONS)
        with prices_of(self._connection, source, "end_ns >= ? AND end_ns <= ?", period):
            found = self._connection.sql(
                f"SELECT {', '.join(columns)}, end_ns AS time_ns FROM ({query}) "  # noqa: S608
                "ORDER BY end_ns, trajectory_id",
                params=values,
            ).to_arrow_table()
        if accepts is None:
            return found
        ids = found["trajectory_id"].to_pylist()
        accepted = set(accepts(ids))
        return found.filter(pa.array([name in accepted for name in ids], pa.bool_()))


_SCORED = """
    WITH runs AS MATERIALIZED ({runs} LIMIT ?)
    SELECT runs.* EXCLUDE (value), arg_max(s.value, s.seq) AS value FROM runs JOIN (
        SELECT trajectory_id, rev, {value} AS value, seq FROM scores
        WHERE evaluator = ? AND version = ? AND {status}
    ) s ON runs.trajectory_id = s.trajectory_id AND runs.rev = s.rev
    WHERE isfinite(s.value) GROUP BY ALL ORDER BY end_ns DESC, runs.trajectory_id LIMIT ?
    """


def _score_parts(measure: str) -> dict[str, str]:
    value, status = SCORE_VALUES[measure]
    return {"value": value, "status": status}


def _runs(source: ObservationSource, group: str, period: list[int]) -> tuple[str, list[Any]]:
    """Return the query of the latest runs of a group, with its parameters, up to the limit."""
    version, values = text_of("version")
    values = [*values, *period]
    parts = []
    for name, value in zip(source.group_by, json.loads(group), strict=True):
        text, more = text_of(name)
        parts.append(f"{text} = ?")
        values += [*more, value]
    clause, more = matching(source.selection)
    values += more
    value = "NULL::DOUBLE"
    if source.evaluator is None:
        value = RUN_VALUES[source.measure]
        parts.append(f"isfinite({value})")
    query = f"""
        SELECT trajectory_id, rev, end_ns, {value} AS value, strict_names AS variant,
               coalesce(nullif(conversation_id, ''), trajectory_id) AS conversation,
               array_to_string(call_names, ' > ') AS tools, {version} AS version,
               {text_of("model")[0]} AS model, {text_of("agent")[0]} AS agent,
               {text_of("service")[0]} AS service
        FROM (SELECT t.*{COST if source.measure == "cost" else ""} FROM current_trajectories t
              WHERE end_ns >= ? AND end_ns <= ?)
        WHERE {" AND ".join([*parts, f"({clause})"])}
        AND NOT list_has_any(gap_codes, ['internal_error', 'too_large'])
        ORDER BY end_ns DESC, trajectory_id"""  # noqa: S608
    return query, values
