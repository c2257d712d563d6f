"""Agreement between a judge and people, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..base.text import counted
from ..scoring import Calibration, Consistency, Disagreement
from .columns import Column, Columns, one_row
from .text import clean, short_ids, shorten

__all__ = ["calibration_view"]

_SHOWN = 20


def calibration_view(calibration: Calibration) -> RenderableType:
    """The figures of a calibration, the confusion matrix and the disagreements.

    Args:
        calibration: The calibration.
    """
    parts: list[RenderableType] = [_figures(calibration), Text(), _confusion(calibration)]
    if calibration.disagreements:
        parts += [Text(), *_disagreements(calibration.disagreements)]
    if calibration.needed:
        parts += [Text(), _warning(calibration)]
    return Group(*parts)


def _figures(calibration: Calibration) -> RenderableType:
    kappa = calibration.kappa
    people, judge = kappa.base_rates(True) if _has_pass(calibration) else (0.0, 0.0)
    judge_rate, people_rate = calibration.judge_rate, calibration.people_rate
    rows = [
        ("judge", f"{calibration.evaluator} {calibration.version}"),
        ("labelled runs", _counts(calibration)),
        ("agreement", f"{kappa.agreement:.3f} ({kappa.by_chance:.3f} by chance)"),
        ("kappa", f"{kappa.kappa:.3f} {_range(kappa.interval)}"),
        ("base rate of pass", f"people {people:.3f}, judge {judge:.3f} on the labelled runs"),
        ("pass rate, judge", f"{judge_rate[0]:.3f} {_range(judge_rate[1])}, all runs"),
        ("pass rate, people", f"{people_rate[0]:.3f} {_range(people_rate[1])}, labelled"),
    ]
    if calibration.corrected is not None:
        corrected = calibration.corrected
        rows.append(
            (
                "pass rate, corrected",
                f"{corrected.mean:.3f} {_range(corrected.interval)}, {_how(calibration)}",
            )
        )
    if calibration.consistency is not None:
        rows += _consistency(calibration.consistency)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    for name, value in rows:
        grid.add_row(name, Text(clean(value)))
    return grid


def _how(calibration: Calibration) -> str:
    """Describe which data a corrected rate comes from."""
    if calibration.needed:
        return f"of the labels alone (exact); more labels needed: {calibration.needed}"
    weight = calibration.corrected.weight if calibration.corrected else 0.0
    return f"all runs; the judge weighs {weight:.2f}"


def _has_pass(calibration: Calibration) -> bool:
    return True in calibration.kappa.confusion.labels


def _counts(calibration: Calibration) -> str:
    notes = []
    if calibration.unjudged:
        notes.append(f"{_more(calibration.unjudged)} no verdict of the judge")
    if calibration.tied:
        notes.append(f"{_more(calibration.tied)} as many passes as fails")
    return f"{calibration.labelled}" + (f" ({'; '.join(notes)})" if notes else "")


def _more(number: int) -> str:
    return f"{number} more {'has' if number == 1 else 'have'}"


def _consistency(consistency: Consistency) -> list[tuple[str, str]]:
    votes, runs = counted(consistency.votes, "vote"), counted(consistency.runs, "run")
    return [
        ("self-consistency", f"{consistency.agreeing:.3f} of {votes} on {runs}"),
        ("flip rate", f"{consistency.flipped:.3f} {_range(consistency.interval)}"),
    ]


def _range(interval: Sequence[float]) -> str:
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def _confusion(calibration: Calibration) -> RenderableType:
    table = Table(title="people (rows) and judge (columns)", title_justify="left")
    for name in ("", "judge pass", "judge fail"):
        table.add_column(name, justify="right" if name else "left")
    for word, people in (("people pass", True), ("people fail", False)):
        table.add_row(word, *(str(calibration.count(people, judge)) for judge in (True, False)))
    return table


def _disagreements(disagreements: Sequence[Disagreement]) -> list[RenderableType]:
    table = Columns(
        Column("id"),
        Column("people", right=True),
        Column("judge", right=True),
        Column("the judge's reason", rank=1, least=20, wraps=True),
        Column("the people's note", rank=2, least=17, wraps=True, optional=True),
    )
    ids = short_ids(disagreement.trajectory_id for disagreement in disagreements[:_SHOWN])
    for disagreement in disagreements[:_SHOWN]:
        table.add_row(
            ids[disagreement.trajectory_id],
            _verdict(disagreement.people),
            _verdict(disagreement.judge),
            one_row(shorten(disagreement.comment, 300)),
            one_row(shorten(disagreement.note, 300)),
        )
    more = len(disagreements) - _SHOWN
    title = Text("where they differ", style="italic")
    return [
        title,
        table,
        *([Text(f"{more} more (--json lists all)", style="dim")] if more > 0 else []),
    ]


def _verdict(passed: bool) -> Text:
    return Text("pass", style="green") if passed else Text("fail", style="red")


def _warning(calibration: Calibration) -> Text:
    few = "labelled run is" if calibration.labelled == 1 else "labelled runs are"
    return Text(
        f"{calibration.labelled} {few} few; more labels needed: {calibration.needed}. Until then "
        "the judge does not correct the pass rate.",
        style="yellow",
    )
