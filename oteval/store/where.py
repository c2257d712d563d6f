"""A selection as the condition of a query; every value is a parameter, never SQL text."""

from __future__ import annotations

from typing import Any

from ..selection import Selection

__all__ = ["where"]


def where(selection: Selection) -> tuple[str, list[Any]]:
    """Return a condition on the columns of ``trajectories``, and its parameters.

    What is no column (attributes, conditions, exclusions) is not in it: see
    `Selection.needs_python`.
    """
    parts: list[str] = []
    values: list[Any] = []

    def add(part: str, value: Any) -> None:
        parts.append(part)
        values.append(value)

    if selection.ids:
        add(
            "len(list_filter(?::VARCHAR[], lambda p: starts_with(trajectory_id, p))) > 0",
            list(selection.ids),
        )
    if selection.since_ns is not None:
        add("start_ns >= ?", selection.since_ns)
    if selection.until_ns is not None:
        add("start_ns < ?", selection.until_ns)
    for column, wanted in (
        ("agent", selection.agents),
        ("service", selection.services),
        ("conversation_id", selection.conversations),
    ):
        if wanted:
            add(f"list_contains(?::VARCHAR[], {column})", list(wanted))
    if selection.models:
        add("list_has_any(models, ?::VARCHAR[])", list(selection.models))
    return " AND ".join(parts) or "TRUE", values
