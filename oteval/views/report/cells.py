"""Cells of the matrix, and how they differ from the baseline's."""

from __future__ import annotations

from collections.abc import Sequence

from ..text import shorten
from .model import CellValue, Change, MatrixCell, ReportRun, RunVerdict, State

__all__ = ["cell_of", "changed", "direction", "worth_of"]

_WORST: tuple[State, ...] = ("error", "fail", "none", "score", "pass")
_WORDS: dict[State, str] = {"pass": "pass", "fail": "fail", "error": "error", "none": "n/e"}
# Shares closer than `_SAME` are equal. Scores that neither pass nor fail must differ by `_NOTICED`
# (relative to the baseline's, if that is above 1): a judge rarely repeats a number exactly.
_SAME = 1e-9
_NOTICED = 0.05


def cell_of(items: Sequence[ReportRun], evaluator: str) -> MatrixCell:
    """The cell of an evaluator for the runs of a case in a group."""
    run_verdicts = [(item, v) for item in items for v in _said(item, evaluator)]
    if not run_verdicts:
        return MatrixCell("absent", runs=tuple(item.id for item in items))
    run_verdicts.sort(key=lambda pair: _WORST.index(pair[1].state))
    verdicts = [verdict for _, verdict in run_verdicts]
    states = {verdict.state for verdict in verdicts}
    state: State = verdicts[0].state if len(states) == 1 else "mixed"
    value = _value(verdicts)
    text = _text(verdicts, state, value)
    note = next((shorten(v.comment, 160) for v in verdicts if v.comment), "")
    runs = tuple(item.id for item, _ in run_verdicts)
    return MatrixCell(state, text, value, worth_of(verdicts), runs, note)


def _value(verdicts: Sequence[RunVerdict]) -> float | None:
    """The sort key of a cell: the mean score, else the share of passes."""
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    if scores:
        return sum(scores) / len(scores)
    worth = worth_of(verdicts)
    return worth.value if worth else None


def _text(verdicts: Sequence[RunVerdict], state: State, value: float | None) -> str:
    first = verdicts[0]
    if len(verdicts) == 1:
        if first.score is not None and first.score not in (0.0, 1.0):
            return f"{first.score:.3g}"
        if state == "score":
            number = "" if first.score is None else f"{first.score:.3g}"
            return number or shorten(first.label, 24)
        return _WORDS[state]
    if state in ("error", "none"):
        return f"{_WORDS[state]} ×{len(verdicts)}"
    judged = [verdict for verdict in verdicts if verdict.passed is not None]
    if judged:
        return f"{sum(bool(verdict.passed) for verdict in judged)}/{len(verdicts)}"
    return "" if value is None else f"{value:.3g}"


def _said(item: ReportRun, evaluator: str) -> list[RunVerdict]:
    """An evaluator's verdicts on a run; an error if the run itself failed."""
    verdicts = [verdict for verdict in item.verdicts if verdict.evaluator == evaluator]
    if not verdicts and item.error:
        return [RunVerdict(evaluator, status="error", comment=f"the run failed: {item.error}")]
    return verdicts


def worth_of(verdicts: Sequence[RunVerdict]) -> CellValue | None:
    """The value to compare verdicts by: the share of passes, else the mean score.

    Errors and runs that were not evaluated do not count.
    """
    judged = [verdict.passed for verdict in verdicts if verdict.passed is not None]
    if judged:
        return CellValue(sum(judged) / len(judged), is_share=True)
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    return CellValue(sum(scores) / len(scores), is_share=False) if scores else None


def direction(base: CellValue | None, now: CellValue | None) -> int | None:
    """1 for an improvement, -1 for a regression, 0 for neither; None if unknown."""
    if base is None or now is None or base.is_share != now.is_share:
        return None
    least = _SAME if base.is_share else _NOTICED * max(1.0, abs(base.value))
    difference = now.value - base.value
    return 0 if abs(difference) <= least else 1 if difference > 0 else -1


def changed(base: MatrixCell, cell: MatrixCell) -> Change:
    """How a cell differs from the baseline's."""
    if "absent" in (base.state, cell.state):
        return ""
    sign = direction(base.worth, cell.worth)
    if sign:
        return "improved" if sign > 0 else "regressed"
    if sign is None:
        return "same" if base.state == cell.state and base.text == cell.text else "changed"
    # As good as it was, but perhaps with errors beside it.
    mixed = "mixed" in (base.state, cell.state)
    return "changed" if mixed and base.text != cell.text else "same"
