"""A run's scores in one cell, ``name ✓``: failures first, and none hidden when the cell is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from ..model import Score, VerdictState
from .columns import cut, one_row

__all__ = ["legend", "score_marks"]

_MARKS: Mapping[VerdictState, str] = {
    "fail": "✗",
    "error": "!",
    "none": "?",
    "score": "",
    "pass": "✓",
}
_ORDER = tuple(_MARKS)
_MEANINGS = {"pass": "pass", "fail": "fail", "error": "error", "none": "not evaluated"}
_STYLES = {"pass": "green", "fail": "red", "error": "red", "none": "yellow", "score": ""}
_LONGEST_NAME = 24


def score_marks(scores: Sequence[Score], width: int) -> Text:
    """Return scores as names with marks, as many as fit, and counts of the rest.

    Args:
        scores: The scores of one run.
        width: How many terminal cells there are.
    """
    ordered = sorted(scores, key=lambda score: _ORDER.index(score.state))
    for count in range(len(ordered), 0, -1):
        line = _line(ordered[:count], ordered[count:])
        if cell_len(line.plain) <= width:
            return line
    if len(ordered) == 1:
        return _only(ordered[0], width)
    return cut(_rest(ordered, ""), width)


def legend(scores: Iterable[Score]) -> Text:
    """The meaning of the marks that occur in some scores."""
    used = {score.state for score in scores}
    line = Text(style="dim")
    for state, meaning in _MEANINGS.items():
        if state in used:
            line.append(f"{'  ' if line.plain else ''}{_MARKS[state]} {meaning}")
    return line


def _value(score: Score) -> str:
    """The mark, or the number or label of a score without a mark."""
    if _MARKS[score.state]:
        return _MARKS[score.state]
    number = "" if score.score is None else f"{score.score:.3g}"
    return number or one_row(score.label or "-").plain


def _piece(score: Score, name_width: int) -> Text:
    name = cut(one_row(score.evaluator), name_width)
    return name.append(" ").append_text(cut(Text(_value(score), _STYLES[score.state]), 16))


def _line(scores: Sequence[Score], unshown: Sequence[Score]) -> Text:
    pieces = [_piece(score, _LONGEST_NAME) for score in scores]
    if unshown:
        pieces.append(_rest(unshown, "+"))
    return Text("  ").join(pieces)


def _rest(scores: Sequence[Score], sign: str) -> Text:
    """How many scores there are of each mark: ``+1 ✗ +9 ✓``."""
    counts = Counter(score.state for score in scores)
    pieces = (
        Text(f"{sign}{counts[state]} {mark or 'scores'}", _STYLES[state])
        for state, mark in _MARKS.items()
        if counts[state]
    )
    return Text(" ").join(pieces)


def _only(score: Score, width: int) -> Text:
    value = Text(_value(score), _STYLES[score.state])
    room = width - cell_len(value.plain) - 1
    if room < 2:
        return cut(value, width)
    return cut(one_row(score.evaluator), room).append(" ").append_text(value)
