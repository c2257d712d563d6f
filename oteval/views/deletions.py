"""Deletions and the audit log for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ..base.jsontext import dumps
from ..base.text import counted
from ..store import AuditEntry, DeletedRows
from .columns import Column, Columns, one_row
from .text import clock

__all__ = ["audit_table", "deleted_text"]

_NOUNS = {
    "traces": "trace",
    "spans": "span",
    "logs": "log record",
    "archived_spans": "archived span",
    "archived_logs": "archived log record",
    "trajectories": "revision of trajectories",
    "scores": "score",
    "labels": "label",
    "judge_calls": "cached judgement",
}
_PLURALS = {"trajectories": "revisions of trajectories"}


def deleted_text(deleted: DeletedRows) -> str:
    """How much was deleted of each kind, in one line."""
    return f"deleted: {_counts(asdict(deleted)) or 'nothing'}"


def audit_table(entries: Iterable[AuditEntry]) -> Columns:
    """The entries of the audit log, one a line."""
    table = Columns(
        Column("time (UTC)"),
        Column("who", least=8, most=24),
        Column("action", rank=2),
        Column("chosen", rank=1, least=16, most=60),
        Column("deleted", least=20, wraps=True),
    )
    for entry in entries:
        deleted = entry.detail.get("deleted", {})
        table.add_row(
            clock(entry.time_ns),
            one_row(entry.actor),
            one_row(entry.action),
            one_row(dumps(entry.detail.get("chosen", {}))),
            _counts(deleted),
        )
    return table


def _counts(numbers: Mapping[str, Any]) -> str:
    count_texts = (
        counted(numbers[name], noun, _PLURALS.get(name, ""))
        for name, noun in _NOUNS.items()
        if numbers.get(name)
    )
    return ", ".join(count_texts)
