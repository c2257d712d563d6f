from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from oteval.views.ci_formats import markdown_columns
from oteval.views.columns import Column, Columns, Trimmed, one_row


def lines(renderable: Any, width: int) -> list[str]:
    """Return the lines that a terminal of a width gets."""
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def table(*rows: tuple[str, ...]) -> Columns:
    """Return a table of an id, a flexible name and a number that matters little."""
    columns = Columns(
        Column("id"),
        Column("name", rank=1, least=6, most=12),
        Column("count", rank=3, extra=True, right=True),
        Column("note", rank=2, least=6, optional=True),
    )
    for row in rows:
        columns.add_row(*(one_row(cell) for cell in row))
    return columns


def test_a_wide_terminal_shows_every_cell_whole():
    """With room for all, columns are as wide as their widest cell; empty ones are left out."""
    columns = table(("a", "long name of it", "7"), ("bb", "n", "123456"))

    assert lines(columns, 80) == [
        "id  name              count",
        "a   long name of it       7",
        "bb  n                123456",
    ]


def test_columns_are_left_out_before_more_important_ones_are_cut():
    """What matters little goes first, then cells are cut with an ellipsis, then columns go."""
    columns = table(("a", "long name of it", "7", "remark"))

    assert lines(columns, 40)[1] == "a   long name of it      7  remark"
    assert lines(columns, 27)[1] == "a   long name of it  remark"
    assert lines(columns, 20)[1] == "a   long na…  remark"
    assert lines(columns, 12)[1] == "a   long na…"
    assert lines(columns, 3) == ["id", "a"]


def test_a_cell_that_must_not_be_cut_stands_below_its_row():
    """Where a reason does not fit beside the others it is shown whole, indented, below."""
    columns = Columns(Column("id"), Column("why", rank=1, least=10, wraps=True))
    columns.add_row("a", Text("one two three four five six"))
    columns.add_row("b", Text())

    assert lines(columns, 40) == ["id  why", "a   one two three four five six", "b"]
    assert lines(columns, 20) == ["id", "a", "    one two three", "    four five six", "b"]


@given(
    st.lists(st.tuples(*[st.text(max_size=40)] * 4), max_size=5),
    st.integers(min_value=24, max_value=200),
)
def test_a_row_is_one_line_that_fits_whatever_it_holds(rows: list[Any], width: int):
    """Any text, wide characters and line breaks too, stays on one line within the width."""
    printed_lines = lines(table(*(("12345678", *row[1:]) for row in rows)), width)

    assert len(printed_lines) == 1 + len(rows)
    for line in printed_lines:
        assert cell_len(line) <= width
        assert line == line.rstrip(" ")


@pytest.mark.parametrize(
    "text", ["日本語の質問です", "👩‍👩‍👧‍👦 family", "e\u0301" * 20, "🇩🇪🇫🇷🇯🇵" * 3]
)
def test_wide_characters_are_never_cut_in_half(text: str):
    """Columns after wide characters and emoji stand where the heading says."""
    columns = Columns(Column("name", least=4, most=9), Column("next", rank=0))
    columns.add_row(one_row(text), "x")

    head, row = lines(columns, 14)

    assert cell_len(row.removesuffix("x")) == head.index("next")


def test_padding_is_not_printed():
    """Whatever pads its lines ends where its text ends."""
    assert lines(Trimmed(Padding(Text("a\n\nb c "), (0, 3))), 20) == ["   a", "", "   b c"]


def test_a_table_as_markdown_has_every_column_that_is_not_empty():
    """Cells are whole however narrow a terminal is, numbers are on the right, alarms are bold."""
    table = Columns(
        Column("name", most=4), Column("n", right=True, rank=9), Column("gone", optional=True)
    )
    table.add_row("a longer | name", Text("7", style="bold red"))

    assert markdown_columns(table) == "| name | n |\n|---|---:|\n| a longer \\| name | **7** |"
