"""Finds the records of two lists that correspond to each other.

The pairing has the greatest possible number of equal fields. Equal records are paired first, in
linear time. Pairing the remaining records is an assignment problem, solved by shortest augmenting
paths (Jonker and Volgenant 1987) in cubic time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from ..assignment import match_equal
from ..values import canonical_key, same

__all__ = ["ListMatchMode", "RecordPair", "pair_records"]

ListMatchMode = Literal["superset", "subset", "same_elements", "ordered"]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class RecordPair:
    """Two records to compare; None on the side that has no counterpart."""

    output: Record | None
    reference: Record | None


def pair_records(
    outputs: Sequence[Record],
    references: Sequence[Record],
    *,
    mode: ListMatchMode,
    ignored: Set[str],
) -> list[RecordPair]:
    """Pair the records of two lists.

    Args:
        outputs: The records of the output.
        references: The records expected.
        mode: Which records without a counterpart count: of both lists (``same_elements``,
            ``ordered``), of the outputs (``subset``) or of the reference (``superset``).
        ignored: Fields that do not influence the pairing.

    Returns:
        The pairs, in the order of the outputs.
    """
    if mode == "ordered":
        pairing = {at: at for at in range(min(len(outputs), len(references)))}
    else:
        pairing = _assigned(outputs, references, ignored)
    used = set(pairing.values())
    pairs = [
        RecordPair(output, references[pairing[at]] if at in pairing else None)
        for at, output in enumerate(outputs)
        if at in pairing or mode != "superset"
    ]
    if mode != "subset":
        pairs += [
            RecordPair(None, reference) for at, reference in enumerate(references) if at not in used
        ]
    return pairs


def _assigned(
    outputs: Sequence[Record], references: Sequence[Record], ignored: Set[str]
) -> dict[int, int]:
    """The index of the reference by the index of the output, for each pair."""
    ours = [_kept(record, ignored) for record in outputs]
    theirs = [_kept(record, ignored) for record in references]
    assigned = dict(
        match_equal(
            ((at, canonical_key(record)) for at, record in enumerate(ours)),
            ((at, canonical_key(record)) for at, record in enumerate(theirs)),
        )
    )
    used = set(assigned.values())
    left = [at for at in range(len(ours)) if at not in assigned]
    right = [at for at in range(len(theirs)) if at not in used]
    if len(left) <= len(right):
        costs = [[-_equal_fields(ours[row], theirs[column]) for column in right] for row in left]
        assigned.update({left[row]: right[column] for row, column in _least_cost(costs)})
    else:
        costs = [[-_equal_fields(ours[row], theirs[column]) for row in left] for column in right]
        assigned.update({left[row]: right[column] for column, row in _least_cost(costs)})
    return assigned


def _kept(record: Record, ignored: Set[str]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ignored}


def _equal_fields(output: Record, reference: Record) -> int:
    return sum(key in reference and same(value, reference[key]) for key, value in output.items())


def _least_cost(costs: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Assign a different column to each row, so that the sum of costs is the least.

    Args:
        costs: A row of costs for each row; there are at least as many columns as rows.
    """
    columns = len(costs[0]) if costs else 0
    row_price = [0.0] * len(costs)
    column_price = [0.0] * columns
    row_of = [-1] * columns
    for row in range(len(costs)):
        # Dijkstra's search for the cheapest way to assign a column to this row.
        distance, came_from, done = [inf] * columns, [-1] * columns, [False] * columns
        current, column, reached = row, -1, 0.0
        while current != -1:
            nearest, best = -1, inf
            for next_column in range(columns):
                if done[next_column]:
                    continue
                reduced = (
                    costs[current][next_column] - row_price[current] - column_price[next_column]
                )
                if reached + reduced < distance[next_column]:
                    distance[next_column], came_from[next_column] = reached + reduced, column
                if distance[next_column] < best:
                    nearest, best = next_column, distance[next_column]
            column, reached = nearest, best
            done[column] = True
            current = row_of[column]
        row_price[row] += reached
        for next_column in range(columns):
            if done[next_column]:
                if row_of[next_column] != -1:
                    row_price[row_of[next_column]] += reached - distance[next_column]
                column_price[next_column] -= reached - distance[next_column]
        while column != -1:
            before = came_from[column]
            row_of[column] = row if before == -1 else row_of[before]
            column = before
    return [(row, column) for column, row in enumerate(row_of) if row != -1]
