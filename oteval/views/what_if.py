"""Sessions repeated with a live model: the table, and the summary in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ..base.text import counted
from ..replays import Coverage, WhatIfRow
from .columns import Column, Columns, one_row
from .text import short_ids

__all__ = ["what_if_summary", "what_if_table"]


def what_if_table(rows: Sequence[WhatIfRow]) -> Columns:
    """Return repeated sessions, one a line; failed sessions come last."""
    table = Columns(
        Column("session"),
        Column("result"),
        Column("coverage of tools", rank=1),
        Column("model calls", rank=2, right=True),
        Column("tool calls", rank=3, right=True),
        Column("tokens", rank=4, right=True),
        Column("why", rank=1, least=20, optional=True),
    )
    ids = short_ids(row.session for row in rows)
    for row in sorted(rows, key=lambda row: bool(row.error)):
        usage = [side.get("usage", {}) for side in (row.recorded, row.new)]
        table.add_row(
            ids[row.session],
            Text(row.status, style="red" if row.error else "green"),
            _coverage(row.coverage),
            _change([side.get("model_calls") for side in usage]),
            _change([side.get("tool_calls") for side in (row.recorded, row.new)]),
            _change([_tokens(side) for side in usage]),
            one_row(row.error or _note(row.coverage)),
        )
    return table


def _coverage(coverage: Coverage | None) -> Text:
    if coverage is None:
        return Text("-")
    return Text(coverage.text, style="" if coverage.is_full else "yellow")


def _note(coverage: Coverage | None) -> str:
    if coverage is None:
        return ""
    if coverage.blocked:
        return f"blocked: {coverage.blocked[0]}"
    return f"{counted(coverage.ran, 'tool call')} ran for real" if coverage.ran else ""


def _change(pair: Sequence[int | None]) -> str:
    """A recorded and a new figure as ``3 -> 4``."""
    return " -> ".join("-" if value is None else f"{value:,}" for value in pair)


def _tokens(usage: Mapping[str, Any]) -> int | None:
    total = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return total or None


def what_if_summary(rows: Sequence[WhatIfRow]) -> str:
    """The counts in one line: ``200 runs, 3 failed; tools: 390 exact, 7 missing``."""
    failed = sum(bool(row.error) for row in rows)
    total = Coverage.total(row.coverage for row in rows if row.coverage)
    partly = sum(not row.coverage.is_full for row in rows if row.coverage)
    parts = [f"{counted(len(rows), 'run')}, {failed} failed", f"tools: {total.text}"]
    if partly:
        parts.append(f"{counted(partly, 'run')} only partly covered by the recording")
    return "; ".join(parts)
