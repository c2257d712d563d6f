"""Markdown for a pull request: tables of the terminal, and other tables, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .columns import Columns
from .text import clean

__all__ = ["markdown_cell", "markdown_columns", "markdown_table"]


def markdown_cell(text: str) -> str:
    """Return text that can neither end a table's cell nor be taken for markup."""
    escaped = clean(text).replace("\n", " ")
    for mark in ("\\", "|", "<", ">", "`", "*", "_", "[", "]", "!"):
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


def markdown_columns(table: Columns) -> str:
    """A table of the terminal with all of its columns; alarming cells are bold."""
    columns, rows = table.whole()
    cells = [
        [
            f"**{markdown_cell(cell.plain)}**"
            if str(cell.style) == "bold red"
            else markdown_cell(cell.plain)
            for cell in row
        ]
        for row in rows
    ]
    sides = ["---:" if column.right else "---" for column in columns]
    return _table([column.name for column in columns], sides, cells)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts as a table."""
    return _table(head, ["---"] * len(head), [[*map(markdown_cell, row)] for row in rows])


def _table(head: Sequence[str], sides: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(sides)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
