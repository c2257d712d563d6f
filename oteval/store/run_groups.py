"""Groups of runs that are compared with each other."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ..model import Condition, RunValues, Trajectory, column_values
from .conditions import sql_condition
from .run_fields import RunExpression, RunFunction

__all__ = ["RunGroups", "split_at", "split_by"]


@dataclass(frozen=True)
class RunGroups:
    """How runs are compared.

    Attributes:
        group: The name of a run's group, a text.
        case_attributes: The attributes that name its case; the first one present counts.
    """

    group: RunFunction | RunExpression
    case_attributes: tuple[str, ...]


def split_at(time_ns: int, before: str, since: str) -> RunExpression:
    """The grouping of runs by whether they began before a time (ns)."""

    def group(run: Trajectory) -> str:
        return before if run.start_ns < time_ns else since

    sql = "CASE WHEN start_ns < ?::BIGINT THEN ?::VARCHAR ELSE ?::VARCHAR END"
    return RunExpression(sql, (time_ns, before, since), group, pa.string())


def split_by(condition: Condition, name: str, other_name: str) -> RunFunction | RunExpression:
    """The grouping of runs by whether they meet a condition."""

    def group(run: Trajectory) -> str:
        return named(column_values(run))

    def named(values: RunValues) -> str:
        return name if condition.accepts(values) else other_name

    translated = sql_condition(condition)
    if translated is None or not translated.is_exact:
        return RunFunction((condition.name,), named, pa.string())
    sql = f"CASE WHEN {translated.text} THEN ?::VARCHAR ELSE ?::VARCHAR END"
    return RunExpression(sql, (*translated.values, name, other_name), group, pa.string())
