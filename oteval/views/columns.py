"""Tables that fit the width of the terminal.

Columns shrink first, then they are left out, the least important first. A row is one line, unless
a column wraps. Lines have no trailing spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from ..base.text import printable
from .text import clean

__all__ = ["Column", "Columns", "Trimmed", "cut", "one_row"]

_GAP, _INDENT = 2, 4
_UNLIMITED = 10_000


def one_row(text: str, style: str = "") -> Text:
    """Return text from a trace as one line that is safe to print, with white space collapsed."""
    return Text(clean(" ".join(text.split())), style=style)


def cut(value: Text | str, width: int) -> Text:
    """Return text of at most `width` terminal cells; cut text ends with "…"."""
    text = value.copy() if isinstance(value, Text) else Text(value)
    text.truncate(width, overflow="ellipsis")
    return text


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        rank: Its importance. Rank 0 always stays; higher ranks are dropped first.
        extra: Whether to drop it rather than shrink a more important column below its `most`.
        least: How narrow it may become; 0 keeps it as wide as its widest cell.
        most: How wide it becomes before less important columns have had their share.
        right: Whether its cells are right-aligned.
        optional: Whether to leave it out when all of its cells are empty.
        wraps: Whether cells are never cut: cells that do not fit next to the others are printed
            below the row, over as many lines as they need.
        fit: Turns a value into a cell of at most a given width.
    """

    name: str
    rank: int = 0
    extra: bool = False
    least: int = 0
    most: int = _UNLIMITED
    right: bool = False
    optional: bool = False
    wraps: bool = False
    fit: Callable[[Any, int], Text] = cut


class Trimmed:
    """Content printed without trailing spaces."""

    def __init__(self, content: RenderableType) -> None:
        """Wrap the content to print."""
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        for line in console.render_lines(self._content, options, pad=False):
            while line and not line[-1].text.strip(" "):
                line.pop()
            line = [_printable(segment) for segment in line]
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(" "), last.style))
            yield from line
            yield Segment.line()


def _printable(segment: Segment) -> Segment:
    """A segment whose text cannot control the terminal."""
    text, style, control = segment
    return segment if control else Segment(printable(text), style)


class Columns:
    """A table whose columns are chosen by the width of the terminal."""

    def __init__(self, *columns: Column) -> None:
        """Make an empty table."""
        self._columns = columns
        self._rows: list[Sequence[Any]] = []

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    def add_row(self, *values: Any) -> None:
        """Add a row: a value for each column, text unless the column's `fit` takes another."""
        if len(values) > len(self._columns):
            raise ValueError(f"{len(values)} values for {len(self._columns)} columns")
        self._rows.append(values + ("",) * (len(self._columns) - len(values)))

    def whole(self) -> tuple[list[Column], list[list[Text]]]:
        """The columns, without empty optional columns, and the rows of whole cells."""
        columns = [
            at
            for at, column in enumerate(self._columns)
            if not (column.optional and self._natural(at) == 0)
        ]
        rows = [
            [self._columns[at].fit(row[at], _UNLIMITED) for at in columns] for row in self._rows
        ]
        return [self._columns[at] for at in columns], rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        beside = self._widths(options.max_width)
        below = [at for at, width in beside.items() if self._is_below(at, width)]
        if below:
            beside = self._widths(options.max_width, left_out=below)
        yield self._line([Text(self._columns[at].name, style="dim") for at in beside], beside)
        for row in self._rows:
            yield self._line([self._columns[at].fit(row[at], beside[at]) for at in beside], beside)
            for at in below:
                full_text = self._columns[at].fit(row[at], _UNLIMITED)
                if full_text.plain:
                    yield Trimmed(Padding(full_text, (0, 0, 0, _INDENT)))

    def _is_below(self, at: int, width: int) -> bool:
        """Whether a wrapping column has cells that do not fit its width."""
        return self._columns[at].wraps and width < self._natural(at)

    def _widths(self, width: int, left_out: Sequence[int] = ()) -> dict[int, int]:
        """The columns to show, by place, with the width of each."""
        natural = {at: self._natural(at) for at in range(len(self._columns))}
        columns = [
            at
            for at, column in enumerate(self._columns)
            if at not in left_out and not (column.optional and natural[at] == 0)
        ]
        head = {at: cell_len(self._columns[at].name) for at in columns}
        full = {at: max(natural[at], head[at]) for at in columns}
        capped = {at: min(full[at], self._columns[at].most) for at in columns}
        self._drop(capped, width, [at for at in columns if self._columns[at].extra])
        least = {at: self._least(at, full[at], head[at]) for at in capped}
        self._drop(least, width, [at for at in least if self._columns[at].rank])
        return self._grown(least, full, width)

    def _drop(self, widths: dict[int, int], width: int, spare: Sequence[int]) -> None:
        """Leave out columns until the others fit, or no column is to spare; the last rank first."""
        for at in sorted(spare, key=lambda at: (-self._columns[at].rank, -at)):
            if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
                return
            del widths[at]

    def _natural(self, at: int) -> int:
        fit = self._columns[at].fit
        return max((cell_len(fit(row[at], _UNLIMITED).plain) for row in self._rows), default=0)

    def _least(self, at: int, full: int, head: int) -> int:
        least = self._columns[at].least
        return min(full, max(least, head)) if least else full

    def _grown(self, least: dict[int, int], full: dict[int, int], width: int) -> dict[int, int]:
        """Share the remaining width: up to each column's `most` by rank, then beyond."""
        widths = dict(least)
        room = width - sum(widths.values()) - _GAP * (len(widths) - 1)
        by_rank = sorted(widths, key=lambda at: self._columns[at].rank)
        comfortable = {at: min(full[at], self._columns[at].most) for at in widths}
        for limits in (comfortable, full):
            for at in by_rank:
                more = max(0, min(room, limits[at] - widths[at]))
                widths[at] += more
                room -= more
        return widths

    def _line(self, cells: Sequence[Text], widths: dict[int, int]) -> Text:
        line = Text(no_wrap=True, overflow="ignore")
        for cell, (at, width) in zip(cells, widths.items(), strict=True):
            blank = max(0, width - cell_len(cell.plain))
            line.append(" " * _GAP if line.plain or at != next(iter(widths)) else "")
            line.append_text(Text(" " * blank) + cell if self._columns[at].right else cell)
            if not self._columns[at].right:
                line.append(" " * blank)
        line.rstrip()
        return line
