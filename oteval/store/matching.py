"""Matching stored trajectories against a reference in SQL, a column at a time.

It gives the verdicts of `oteval.evaluators` for modes strict, unordered, subset, superset and
in_order with exact or ignored arguments, over the runs' own messages. A call equals another when
their hashes do; one whose arguments are not known equals none.
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
from .signature import Signature, signature_of
from .where import where

__all__ = ["ArgumentMode", "MatchMode", "Matching"]

MatchMode = Literal["strict", "unordered", "subset", "superset", "in_order"]
ArgumentMode = Literal["exact", "ignore"]


class Matching:
    """Matches the trajectories of a store."""

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
            reference: The messages that a run's own are held against.
            mode: How.
            arguments: Whether arguments count.
            selection: Which trajectories; what is no column is not applied.

        Returns:
            A row per trajectory: trajectory_id, rev, trace_id, span_id, passed, matched, missing,
            extra. In strict mode ``passed`` is null where calls of different messages overlapped
            in time: only the messages themselves can decide that.
        """
        wanted = signature_of(reference)
        column = "call_hashes" if arguments == "exact" else "call_names"
        values: list[Any] = []
        matched = _matched(column, _calls(wanted, arguments), values)
        passed = self._passed(mode, arguments, wanted, values)
        clause, chosen = where(selection)
        query = f"""
            SELECT *, {passed} AS passed FROM (
                SELECT trajectory_id, rev, trace_id, span_id, call_hashes, call_names,
                       strict_names, strict_calls, overlapping,
                       {matched} AS matched,
                       {len(wanted.names)} - matched AS missing,
                       len(call_names) - matched AS extra
                FROM current_trajectories WHERE {clause}
            )
            """  # noqa: S608
        columns = "trajectory_id, rev, trace_id, span_id, passed, matched, missing, extra"
        # The condition's parameters stand between those of the two levels of the query.
        inner, outer = values[: _count(matched)], values[_count(matched) :]
        relation = self._connection.sql(
            f"SELECT {columns} FROM ({query})",  # noqa: S608
            params=[*outer, *inner, *chosen],
        )
        return relation.to_arrow_table()

    def _passed(
        self, mode: MatchMode, arguments: ArgumentMode, wanted: Signature, values: list[Any]
    ) -> str:
        if mode == "superset":
            return "missing = 0"
        if mode == "subset":
            return "extra = 0"
        if mode == "unordered":
            return "missing = 0 AND extra = 0"
        if mode == "in_order":
            return _in_order(_calls(wanted, arguments), arguments, values)
        column = "strict_calls" if arguments == "exact" else "strict_names"
        expected = wanted.strict_calls if arguments == "exact" else wanted.strict_names
        if wanted.overlapping:
            return "NULL::BOOLEAN"
        values.append(expected)
        return f"CASE WHEN overlapping THEN NULL ELSE coalesce({column} = ?, FALSE) END"


def _count(expression: str) -> int:
    return expression.count("?")


def _calls(wanted: Signature, arguments: ArgumentMode) -> list[Any]:
    return list(wanted.hashes if arguments == "exact" else wanted.names)


def _matched(column: str, calls: Sequence[Any], values: list[Any]) -> str:
    """Return how many of the reference's calls a row has, as multisets."""
    terms = []
    for call, count in Counter(call for call in calls if call is not None).items():
        values.append(call)
        terms.append(f"least({count}, len(list_filter({column}, lambda c: c = ?)))")
    return " + ".join(terms) or "0"


def _in_order(calls: Sequence[Any], arguments: ArgumentMode, values: list[Any]) -> str:
    """Return whether a row has the reference's calls in their order, others in between."""
    if not calls:
        return "TRUE"
    if any(call is None for call in calls):
        return "FALSE"
    if arguments == "exact":
        text = "array_to_string(list_transform(call_hashes, lambda c: coalesce(c, -1)), ',')"
        keys = [str(call) for call in calls]
    else:
        # Names may hold any character: their digests do not.
        text = "array_to_string(list_transform(call_names, lambda c: md5(c)), ',')"
        keys = [_md5(str(call)) for call in calls]
    values.append("," + "(.*,)?".join(f"{key}," for key in keys))
    return f"regexp_matches(',' || {text} || ',', ?)"


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
