"""Matches stored trajectories with a reference in SQL, column by column.

The verdicts equal those of `oteval.evaluators` for the modes strict, unordered, subset, superset
and in_order with exact or ignored arguments, on the runs' own messages. Calls are equal if their
hashes are. A call without recorded arguments equals no other call; see `signature`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import duckdb
import pyarrow as pa

from ..model import Message
from ..selection import EVERYTHING, Selection
from .query import condition_of
from .signature import Signature, signature_of

__all__ = ["ArgumentMode", "MatchMode", "TrajectoryMatcher"]

MatchMode = Literal["strict", "unordered", "subset", "superset", "in_order"]
ArgumentMode = Literal["exact", "ignore"]


class TrajectoryMatcher:
    """Matches the trajectories of a store with references."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def match(
        self,
        reference: Sequence[Message],
        mode: MatchMode,
        arguments: ArgumentMode = "exact",
        selection: Selection = EVERYTHING,
    ) -> pa.Table:
        """Return the verdict on each selected trajectory.

        Args:
            reference: The messages that each run's own messages are compared with.
            mode: The match mode.
            arguments: Whether arguments must be equal.
            selection: The trajectories. Filters without a column are not applied.

        Returns:
            A row per trajectory: trajectory_id, rev, trace_id, span_id, passed, matched, missing,
            extra. In strict mode ``passed`` is null for runs in which calls of different messages
            overlapped in time, because only the messages themselves can decide these.
        """
        signature = signature_of(reference)
        column = "call_hashes" if arguments == "exact" else "call_names"
        values: list[Any] = []
        matched = _matched(column, _calls(signature, arguments), values)
        passed = self._passed(mode, arguments, signature, values)
        clause, selected = condition_of(selection)
        query = f"""
            SELECT *, {passed} AS passed FROM (
                SELECT trajectory_id, rev, trace_id, span_id, call_hashes, call_names,
                       strict_names, strict_calls, overlapping,
                       {matched} AS matched,
                       {len(signature.names)} - matched AS missing,
                       len(call_names) - matched AS extra
                FROM current_trajectories WHERE {clause}
            )
            """  # noqa: S608
        columns = "trajectory_id, rev, trace_id, span_id, passed, matched, missing, extra"
        # Parameters are in the order of their placeholders: outer query, inner query, condition.
        inner, outer = values[: _count(matched)], values[_count(matched) :]
        relation = self._connection.sql(
            f"SELECT {columns} FROM ({query})",  # noqa: S608
            params=[*outer, *inner, *selected],
        )
        return relation.to_arrow_table()

    def _passed(
        self, mode: MatchMode, arguments: ArgumentMode, signature: Signature, values: list[Any]
    ) -> str:
        if mode == "superset":
            return "missing = 0"
        if mode == "subset":
            return "extra = 0"
        if mode == "unordered":
            return "missing = 0 AND extra = 0"
        if mode == "in_order":
            return _in_order(_calls(signature, arguments), arguments, values)
        column = "strict_calls" if arguments == "exact" else "strict_names"
        expected = signature.strict_calls if arguments == "exact" else signature.strict_names
        if signature.overlapping:
            return "NULL::BOOLEAN"
        values.append(expected)
        return f"CASE WHEN overlapping THEN NULL ELSE coalesce({column} = ?, FALSE) END"


def _count(expression: str) -> int:
    return expression.count("?")


def _calls(signature: Signature, arguments: ArgumentMode) -> list[Any]:
    return list(signature.hashes if arguments == "exact" else signature.names)


def _matched(column: str, calls: Sequence[Any], values: list[Any]) -> str:
    """Return the expression that counts the reference's calls in a row, repetitions included."""
    terms = []
    for call, count in Counter(call for call in calls if call is not None).items():
        values.append(call)
        terms.append(f"least({count}, len(list_filter({column}, lambda c: c = ?)))")
    return " + ".join(terms) or "0"


def _in_order(calls: Sequence[Any], arguments: ArgumentMode, values: list[Any]) -> str:
    """Return the condition for rows with the reference's calls in order, others in between."""
    if not calls:
        return "TRUE"
    if any(call is None for call in calls):
        return "FALSE"
    if arguments == "exact":
        text = "array_to_string(list_transform(call_hashes, lambda c: coalesce(c, -1)), ',')"
        keys = [str(call) for call in calls]
    else:
        # A name may have any character, its digest only hexadecimal digits.
        text = "array_to_string(list_transform(call_names, lambda c: md5(c)), ',')"
        keys = [_md5(str(call)) for call in calls]
    values.append("," + "(.*,)?".join(f"{key}," for key in keys))
    return f"regexp_matches(',' || {text} || ',', ?)"


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
