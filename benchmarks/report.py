"""Measured figures as rows of a table, and tables as Markdown.

A ratio above 1 always means that oteval is the better one, be it by a higher rate or by less
time or memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = ("figure", "oteval", "peer or limit", "ratio", "target", "held")


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        figure: The name of the measurement.
        ours: oteval's figure.
        other: The peer's or limit's, with its name; "" where there is none.
        ratio: How many times better ours is; None where there is nothing to compare.
        target: The project's target, or "".
        held: Whether the target was met; None where there is none.
    """

    figure: str
    ours: str
    other: str = ""
    ratio: float | None = None
    target: str = ""
    held: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the columns."""
        ratio = "" if self.ratio is None else f"{self.ratio:,.{_digits(self.ratio)}f}x"
        held_text = {None: "", True: "yes", False: "**no**"}[self.held]
        cells = self.figure, self.ours, self.other, ratio, self.target, held_text
        return tuple(" ".join(cell.split()).replace("|", "\\|") for cell in cells)


def _digits(ratio: float) -> int:
    return 2 if ratio < 10 else 1 if ratio < 100 else 0


def compared(
    figure: str,
    ours: float,
    other: float | None,
    name: str,
    form: str,
    *,
    at_least: float | None = None,
    smaller_is_better: bool = False,
    reason: str = "",
) -> Row:
    """Return the row of two figures of a kind.

    Args:
        figure: The name of the measurement.
        ours: oteval's figure.
        other: The other side's; None where it was not measured.
        name: The other side's name.
        form: The figures' format, such as ``{:,.0f}/s``.
        at_least: The ratio that is wanted.
        smaller_is_better: Whether the figures are times or sizes.
        reason: Why the other side's was not measured.
    """
    target = "" if at_least is None else f"at least {at_least:g}x"
    if other is None:
        missing = ": ".join(filter(None, [name, "not measured", reason]))
        return Row(figure, form.format(ours), missing, target=target)
    ratio = other / ours if smaller_is_better else ours / other
    is_held = None if at_least is None else ratio >= at_least
    return Row(figure, form.format(ours), f"{form.format(other)} ({name})", ratio, target, is_held)


def not_measured(figure: str, reason: str) -> Row:
    """Return the row of a figure that is not shown, because a check of its work failed.

    Args:
        figure: The name of the measurement.
        reason: The message of the check, or the end of the output of a command that failed.
    """
    return Row(figure, f"not measured: {reason.strip().splitlines()[-1]}", held=False)


def below(figure: str, ours: float, form: str, limit: float) -> Row:
    """Return the row of a figure that has a highest value."""
    return Row(
        figure, form.format(ours), target=f"at most {form.format(limit)}", held=ours <= limit
    )


def table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table with aligned columns."""
    cells = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(row, widths) for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"
