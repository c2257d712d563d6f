"""Agreement between a judge and people, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..experiments.calibration import Calibration, Consistency, Disagreement
from ..text import counted
from .columns import Column, Columns, one_row
from .text import clean, short_ids, shorten

__all__ = ["calibration_view"]

_SHOWN = 20


def calibration_view(found: Calibration) -> RenderableType:
    """Return the figures of a calibration, the confusion matrix and the disagreements.

    Args:
        found: The calibration.
    """
    parts: list[RenderableType] = [_figures(found), Text(), _confusion(found)]
    if found.disagreements:
        parts += [Text(), *_disagreements(found.disagreements)]
    if found.needed:
        parts += [Text(), _warning(found)]
    return Group(*parts)


def _figures(found: Calibration) -> RenderableType:
    people, judge = found.kappa.base_rates(True) if _has_pass(found) else (0.0, 0.0)
    rows = [
        ("judge", f"{found.evaluator} {found.version}"),
        ("labelled runs", _counts(found)),
        ("agreement", f"{found.kappa.agreement:.3f} ({found.kappa.by_chance:.3f} by chance)"),
        ("kappa", f"{found.kappa.kappa:.3f} {_range(found.kappa.interval)}"),
        ("base rate of pass", f"people {people:.3f}, judge {judge:.3f} on the labelled runs"),
        ("pass rate, judge", f"{found.judge_rate[0]:.3f} {_range(found.judge_rate[1])}, all runs"),
        (
            "pass rate, people",
            f"{found.people_rate[0]:.3f} {_range(found.people_rate[1])}, labelled",
        ),
    ]
    if found.corrected is not None:
        corrected = found.corrected
        rows.append(
            (
                "pass rate, corrected",
                f"{corrected.mean:.3f} {_range(corrected.interval)}, {_how(found)}",
            )
        )
    if found.consistency is not None:
        rows += _consistency(found.consistency)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    for name, value in rows:
        grid.add_row(name, Text(clean(value)))
    return grid


def _how(found: Calibration) -> str:
    """Describe which data a corrected rate comes from."""
    if found.needed:
        return f"of the labels alone (exact); more labels needed: {found.needed}"
    weight = found.corrected.weight if found.corrected else 0.0
    return f"all runs; the judge weighs {weight:.2f}"


def _has_pass(found: Calibration) -> bool:
    return True in found.kappa.confusion.labels


def _counts(found: Calibration) -> str:
    notes = []
    if found.unjudged:
        notes.append(f"{_more(found.unjudged)} no verdict of the judge")
    if found.tied:
        notes.append(f"{_more(found.tied)} as many passes as fails")
    return f"{found.labelled}" + (f" ({'; '.join(notes)})" if notes else "")


def _more(number: int) -> str:
    return f"{number} more {'has' if number == 1 else 'have'}"


def _consistency(found: Consistency) -> list[tuple[str, str]]:
    votes, runs = counted(found.votes, "vote"), counted(found.runs, "run")
    return [
        ("self-consistency", f"{found.agreeing:.3f} of {votes} on {runs}"),
        ("flip rate", f"{found.flipped:.3f} {_range(found.interval)}"),
    ]


def _range(interval: Sequence[float]) -> str:
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def _confusion(found: Calibration) -> RenderableType:
    table = Table(title="people (rows) and judge (columns)", title_justify="left")
    for name in ("", "judge pass", "judge fail"):
        table.add_column(name, justify="right" if name else "left")
    for word, people in (("people pass", True), ("people fail", False)):
        table.add_row(word, *(str(found.count(people, judge)) for judge in (True, False)))
    return table


def _disagreements(found: Sequence[Disagreement]) -> list[RenderableType]:
    table = Columns(
        Column("id"),
        Column("people", right=True),
        Column("judge", right=True),
        Column("the judge's reason", rank=1, least=20, wraps=True),
        Column("the people's note", rank=2, least=17, wraps=True, optional=True),
    )
    ids = short_ids(one.trajectory_id for one in found[:_SHOWN])
    for one in found[:_SHOWN]:
        table.add_row(
            ids[one.trajectory_id],
            _verdict(one.people),
            _verdict(one.judge),
            one_row(shorten(one.comment, 300)),
            one_row(shorten(one.note, 300)),
        )
    more = len(found) - _SHOWN
    title = Text("where they differ", style="italic")
    return [
        title,
        table,
        *([Text(f"{more} more (--json lists all)", style="dim")] if more > 0 else []),
    ]


def _verdict(passed: bool) -> Text:
    return Text("pass", style="green") if passed else Text("fail", style="red")


def _warning(found: Calibration) -> Text:
    few = "labelled run is" if found.labelled == 1 else "labelled runs are"
    return Text(
        f"{found.labelled} {few} few; more labels needed: {found.needed}. Until then the judge "
        "does not correct the pass rate.",
        style="yellow",
    )
