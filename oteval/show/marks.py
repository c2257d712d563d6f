"""A run's scores in one cell, ``name ✓``: failures first, and none hidden when the cell is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from ..model import Score
from .columns import cut, one_row

__all__ = ["legend", "score_marks"]

_PASS, _FAIL, _ERROR, _MISSING = "✓", "✗", "!", "?"
_ORDER = (_FAIL, _ERROR, _MISSING, "", _PASS)
_MEANINGS = {_PASS: "pass", _FAIL: "fail", _ERROR: "error", _MISSING: "not evaluated"}
_STYLES = {_PASS: "green", _FAIL: "red", _ERROR: "red", _MISSING: "yellow", "": ""}
_LONGEST_NAME = 24


def score_marks(scores: Sequence[Score], width: int) -> Text:
    """Return scores as names with marks, as many as fit, and counts of the rest.

    Args:
        scores: The scores of one run.
        width: How many terminal cells there are.
    """
    ordered = sorted(scores, key=lambda score: _ORDER.index(_mark(score)))
    for shown in range(len(ordered), 0, -1):
        line = _line(ordered[:shown], ordered[shown:])
        if cell_len(line.plain) <= width:
            return line
    if len(ordered) == 1:
        return _only(ordered[0], width)
    return cut(_rest(ordered, ""), width)


def legend(scores: Iterable[Score]) -> Text:
    """Return the meaning of the marks that occur in some scores."""
    used = {_mark(score) for score in scores}
    line = Text(style="dim")
    for mark, meaning in _MEANINGS.items():
        if mark in used:
            line.append(f"{'  ' if line.plain else ''}{mark} {meaning}")
    return line


def _mark(score: Score) -> str:
    """Return the mark of a score; "" for one that neither passes nor fails."""
    if score.status != "ok":
        return _ERROR if score.status == "error" else _MISSING
    if score.passed is None:
        return ""
    return _PASS if score.passed else _FAIL


def _value(score: Score) -> str:
    """Return the mark, or the number or label of a score without one."""
    if _mark(score):
        return _mark(score)
    number = "" if score.score is None else f"{score.score:.3g}"
    return number or one_row(score.label or "-").plain


def _piece(score: Score, name_width: int) -> Text:
    name = cut(one_row(score.evaluator), name_width)
    return name.append(" ").append_text(cut(Text(_value(score), _STYLES[_mark(score)]), 16))


def _line(shown: Sequence[Score], rest: Sequence[Score]) -> Text:
    pieces = [_piece(score, _LONGEST_NAME) for score in shown]
    if rest:
        pieces.append(_rest(rest, "+"))
    return Text("  ").join(pieces)


def _rest(scores: Sequence[Score], sign: str) -> Text:
    """Return how many scores there are of each mark: ``+1 ✗ +9 ✓``."""
    counts = Counter(_mark(score) for score in scores)
    pieces = (
        Text(f"{sign}{counts[mark]} {mark or 'scores'}", _STYLES[mark])
        for mark in _ORDER
        if counts[mark]
    )
    return Text(" ").join(pieces)


def _only(score: Score, width: int) -> Text:
    value = Text(_value(score), _STYLES[_mark(score)])
    room = width - cell_len(value.plain) - 1
    if room < 2:
        return cut(value, width)
    return cut(one_row(score.evaluator), room).append(" ").append_text(value)
