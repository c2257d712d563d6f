"""The runs of a monitor's group in a period, with their values: the evidence of a change.

Unlike `observations`, this reads by time instead of by the order of storage, and returns single
runs with their tools, model and version. Only the latest runs of a period are read, and the scores
are scanned once for all periods.

Tables: ``trajectories`` and ``scores`` are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from .column_sql import group_sql
from .current_scores import current_scores
from .observations import (
    COST,
    SCORE_VALUES,
    ObservationSource,
    accepted_runs,
    checked_runs,
    prices_of,
    value_of,
)
from .outlines import Outlines
from .query import condition_of
from .trajectories import Trajectories

__all__ = ["DIMENSIONS", "RunWindow", "RunWindows"]

DIMENSIONS = ("tools", "model", "version", "agent", "service")
"""The columns of the result that divide runs into slices."""

# The most runs of a period whose scores are looked up.
_CANDIDATES = 20_000
# A score may be older than its run by up to this time, because clocks differ.
_SLACK_NS = 86_400 * 10**9
_COLUMNS = ("trajectory_id", "conversation", "value", "variant", *DIMENSIONS)


@dataclass(frozen=True, slots=True)
class RunWindow:
    """A period of a group.

    Attributes:
        group: The group's values, as a JSON list.
        since_ns: The start of the period (ns).
        until_ns: Its end (ns), inclusive.
        version: The version of the evaluator.
        is_of_all_versions: Whether runs of other versions of the agent count, if groups have a
            version.
    """

    group: str
    since_ns: int
    until_ns: int
    version: str = ""
    is_of_all_versions: bool = False


class RunWindows:
    """Reads the runs of monitors' groups in periods."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, trajectories: Trajectories) -> None:
        self._connection, self._trajectories = connection, trajectories

    def latest(
        self,
        source: ObservationSource,
        windows: Sequence[RunWindow],
        *,
        most: int,
    ) -> list[pa.Table]:
        """The latest runs of groups that ended in periods and have a value.

        Args:
            source: The observations of the monitor.
            windows: The periods of groups.
            most: The most runs of each period.

        Returns:
            A table for each period with ``trajectory_id``, ``conversation``, ``value``,
            ``variant``, ``time_ns`` and the `DIMENSIONS`, by time.
        """
        if not windows:
            return []
        first = min(window.since_ns for window in windows)
        last = max(window.until_ns for window in windows)
        with prices_of(self._connection, source, "end_ns >= ? AND end_ns <= ?", [first, last]):
            self._collect(source, windows, most if source.evaluator is None else _CANDIDATES)
        query, values = "SELECT * FROM temp.window_runs", []
        if source.evaluator is not None:
            value, status = SCORE_VALUES[source.measure]
            query = _SCORED.format(value=value, status=status)
            values = [source.evaluator, first - _SLACK_NS, most]
        runs = self._connection.sql(
            f'SELECT "window", {", ".join(_COLUMNS)}, rev, start_ns, end_ns AS time_ns '  # noqa: S608
            f'FROM ({query}) ORDER BY "window", end_ns, trajectory_id',
            params=values,
        ).to_arrow_table()
        self._connection.execute("DROP TABLE temp.window_runs")
        runs = accepted_runs(runs, source.selection, self._trajectories)
        runs = checked_runs(runs, source, Outlines(self._connection), self._trajectories)
        numbers = runs["window"].to_numpy()
        return [runs.filter(pa.array(numbers == number)) for number in range(len(windows))]

    def _collect(self, source: ObservationSource, windows: Sequence[RunWindow], most: int) -> None:
        """Fill ``temp.window_runs`` with the latest runs of each period."""
        for number, window in enumerate(windows):
            runs, values = _runs(source, window)
            into = (
                "INSERT INTO temp.window_runs"
                if number
                else ("CREATE OR REPLACE TEMP TABLE window_runs AS")
            )
            self._connection.execute(
                f'{into} SELECT ?::INTEGER AS "window", ?::VARCHAR AS scored, * '  # noqa: S608
                f"FROM ({runs} LIMIT ?)",
                [number, window.version, *values, most],
            )


_SCORED = f"""
    WITH scored AS MATERIALIZED (
        SELECT trajectory_id, evaluator, rev, version, status, passed, score, metadata, seq
        FROM scores
        WHERE evaluator = ? AND (time_ns >= ? OR time_ns = 0 OR time_ns IS NULL)
        AND trajectory_id IN (SELECT trajectory_id FROM temp.window_runs)
    )
    SELECT w.* REPLACE (s.value AS value) FROM temp.window_runs w JOIN (
        SELECT trajectory_id, version, {{value}} AS value
        FROM {current_scores("scored", of_versions=True)}
        WHERE {{status}} AND isfinite({{value}})
    ) s ON w.trajectory_id = s.trajectory_id AND w.scored = s.version
    QUALIFY row_number() OVER (
        PARTITION BY "window" ORDER BY end_ns DESC, w.trajectory_id) <= ?
    """  # noqa: S608


def _runs(source: ObservationSource, window: RunWindow) -> tuple[str, list[Any]]:
    """The query of the latest runs of a period, with its parameters, up to the limit."""
    version, keys = group_sql("version")
    values: list[Any] = [*keys, window.since_ns, window.until_ns]
    parts = []
    for name, group_value in zip(source.group_by, json.loads(window.group), strict=True):
        if name == "version" and window.is_of_all_versions:
            continue
        text, more = group_sql(name)
        parts.append(f"{text} = ?")
        values += [*more, group_value]
    clause, more = condition_of(source.selection)
    values += more
    value = "NULL::DOUBLE"
    if source.evaluator is None:
        value = value_of(source)
        parts.append(f"isfinite({value})")
    query = f"""
        SELECT trajectory_id, rev, start_ns, end_ns, {value} AS value, strict_names AS variant,
               coalesce(nullif(conversation_id, ''), trajectory_id) AS conversation,
               array_to_string(call_names, ' > ') AS tools, {version} AS version,
               {group_sql("model")[0]} AS model, {group_sql("agent")[0]} AS agent,
               {group_sql("service")[0]} AS service
        FROM (SELECT t.*{COST if source.measure == "cost" else ""} FROM current_trajectories t
              WHERE end_ns >= ? AND end_ns <= ?)
        WHERE {" AND ".join([*parts, f"({clause})"])}
        AND NOT list_has_any(gap_codes, ['internal_error', 'too_large'])
        ORDER BY end_ns DESC, trajectory_id"""  # noqa: S608
    return query, values
